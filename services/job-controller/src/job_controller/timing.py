"""All time constants of job-controller, in seconds.

A TIMEOUT ends a wait; an INTERVAL separates two tries; a GRACE is how long a state may last before it counts.
"""

from __future__ import annotations

# Watching


POD_CHANGE_BATCH_INTERVAL_SECONDS = 0.2
"""A change that leaves the phase alone waits this long for others of its job, since pods change in bursts."""
COUNTS_INTERVAL_SECONDS = 1.0
"""The time between the first two passes that only count pods; it doubles until the counts rest, which saves
writes for large jobs."""
LONGEST_COUNTS_INTERVAL_SECONDS = 30.0
"""The longest time between two passes that only count pods."""
FACT_GRACE_SECONDS = 60.0
"""Facts that are at most this much older than the start of the service are read, too. Clocks differ, and a
data set may be read from the API server before its facts are read from the bus."""
NODE_LEASE_READ_INTERVAL_SECONDS = 2.0
"""The time between two reads of the Lease of a node that a verdict waits for."""
NODE_LEASE_GAP_TIMEOUT_SECONDS = 10.0
"""A longer time without an answer of the API server starts the wait for the renewal of a Lease again."""
LOGS_READ_TIMEOUT_SECONDS = 5.0
"""How long a pass waits for the logs of a job's pods before it deletes the pods."""
EVENTS_READ_INTERVAL_SECONDS = 10.0
"""The time between two reads of the Events about a pod."""

# Endpoints for pods


GATE_POLL_TIMEOUT_SECONDS = 25.0
"""A waiting gate gets an answer after this time and asks again."""
GATE_URL_TIMEOUT_SECONDS = 5.0
"""The look-up of this service's own address, for gates that cannot look it up, takes at most this long."""
GATE_URL_INTERVAL_SECONDS = 30.0
"""The time between two look-ups."""
GATE_GRACE_SECONDS = 60.0
"""A gate that has nothing more to wait for may take this long: DNS remembers that a name was not there."""
GATE_CHECK_INTERVAL_SECONDS = 30.0
"""The time between two looks at a job whose pods wait at their gates."""
GATE_FALLBACK_TIMEOUT_SECONDS = 30.0
"""A gate without an answer for this long lets its pod start, which then waits for its ConfigMap."""
PROGRESS_BODY_TIMEOUT_SECONDS = 5.0
"""The body of a progress report must arrive within this time."""
PROGRESS_SWEEP_INTERVAL_SECONDS = 60.0
"""The time between two searches for jobs that no longer report progress."""
PROGRESS_CHECK_INTERVAL_SECONDS = 1.0
"""The time between two looks for progress that is due to be written."""
PROGRESS_RETRY_INTERVAL_SECONDS = 5.0
"""No progress is written for this long after the API server refused a write."""

# Policies


NODE_SILENCE_TIMEOUT_SECONDS = 45.0
"""A kubelet renews the Lease of its node every 10 s. A node is lost if its Lease was not renewed for this
long."""
NODE_DOUBT_TIMEOUT_SECONDS = 600.0
"""The failure of a rank is judged after this time when the API server does not answer reads of Leases, so a
shorter outage leads to no wrong verdict."""
EXPIRED_PODS_GRACE_SECONDS = 5.0
"""The pods of an expired job go with the job, or after this time when its facts have to wait for the bus."""
FIRST_STATUS_GRACE_SECONDS = 1.0
"""A new job's first status may wait this long for its pods to run, so that a quick start is one write."""
CLOCK_SKEW_GRACE_SECONDS = 30.0
"""The clocks of a node and of the API server may differ by this much."""
END_REPORT_GRACE_SECONDS = 1.0
"""A kubelet may report the end of a container this much later than another kubelet: it looks every second."""
POD_PREPARATION_GRACE_SECONDS = 30.0
"""A node may take this long to prepare volumes and network; later, Events are read again this often."""
STUCK_POD_GRACE_SECONDS = 30.0
"""A pod younger than this is not stuck: nodes become free and volumes are bound."""
SCHEDULER_GRACE_SECONDS = 30.0
"""A scheduler looks at a pod within this time after its last work, whether it finds room or not."""
SCHEDULER_CHECK_GRACE_SECONDS = 15.0
"""A pod that no scheduler has looked at for this long makes its scheduler's Lease read."""
SCHEDULER_LEASE_READ_INTERVAL_SECONDS = 5.0
"""The time between two reads of a scheduler's Lease."""
SCHEDULER_LEASE_GAP_TIMEOUT_SECONDS = 90.0
"""The same for a scheduler, whose Lease is read in passes that may be 30 s apart."""
UNSCHEDULABLE_POD_GRACE_SECONDS = 30.0
"""An elastic job waits this long for a pod that fits on no node before it runs with fewer workers."""
USELESS_POD_GRACE_SECONDS = 60.0
"""An ended worker beyond the present world is deleted this long after its creation, at the earliest."""
LONGEST_USELESS_POD_GRACE_SECONDS = 300.0
"""The same, at the latest."""
GROWTH_INTERVAL_SECONDS = 60.0
"""The time between a restart and the next one for more workers; it doubles with each growth that was lost."""
LONGEST_GROWTH_INTERVAL_SECONDS = 3600.0
"""The longest time between two restarts for more workers."""
GROWTH_PROOF_GRACE_SECONDS = 600.0
"""A growth that lasted this long was not lost, whatever comes later."""
RESTART_LOSS_GRACE_SECONDS = 30.0
"""Each worker loses this time by a restart: the steps since the last checkpoint, and the program's start."""
ROOM_CHECK_INTERVAL_SECONDS = 30.0
"""The time between two looks of a job that has fewer workers than it wants at what other jobs need."""
ROOM_YIELD_GRACE_SECONDS = 60.0
"""A job that could grow waits this long for pods of other jobs that might take its room meanwhile."""
RIVAL_GROWTH_GRACE_SECONDS = 600.0
"""Jobs give way to the growth of another job for this long."""
NEED_GRACE_SECONDS = 120.0
"""A pod without a node needs room for this long; one that waits longer fits nowhere."""
PROGRAM_END_GRACE_SECONDS = 10.0
"""A kubelet that ends a whole pod reports the end of its last container this long after the pod's own grace
period."""
LONGEST_PROGRAM_END_GRACE_SECONDS = 60.0
"""An end beside other containers counts after this time, however long the pod's own grace period is."""
POD_END_GRACE_SECONDS = 30.0
"""A kubelet may confirm the end of a pod this long after the pod's own grace period."""
POD_REMOVAL_GRACE_SECONDS = 45.0
"""Longest time between the removals of two pods of a lost node. Every 20 s, Kubernetes looks for pods of
nodes that are out of service. A node that is back gives each pod its own grace period, 30 s by default."""
KEPT_LOGS_TIMEOUT_SECONDS = 60.0
"""The pods of a job that has ended wait this long for their logs to be kept."""
STALL_GRACE_SECONDS = 120.0
"""A job may report no progress for at least this long, since evaluations and checkpoints take time."""
MOUNT_RETURN_GRACE_SECONDS = 30.0
"""A lost mount may come back within this time before the ranks on its node are restarted."""
MOUNT_REPLACEMENT_GRACE_SECONDS = 300.0
"""A mount may come back within this time while its runtime pod is replaced, since a restart would cost
more."""
UNWELL_SET_CHECK_INTERVAL_SECONDS = 30.0
"""The time between two looks at a data set that is not well, since not every change is a fact."""
RESTART_INTERVAL_SECONDS = 10.0
"""The time before the first restart of a job; it doubles with each further one."""
LONGEST_RESTART_INTERVAL_SECONDS = 300.0
"""The longest time before a restart."""
RESTART_RESET_GRACE_SECONDS = 600.0
"""After a job has run this long, its next restart waits for the shortest time again, like a container's with
its kubelet."""
