"""All time constants of dataset-controller, in seconds.

A TIMEOUT ends a wait; an INTERVAL separates two tries; a GRACE is how long a state may last before it counts.
"""

from __future__ import annotations

# Records on the bus


RECORD_CHECK_INTERVAL_SECONDS = 10.0
"""A record that was written or found is not checked again for this long."""
RECORD_RETRY_INTERVAL_SECONDS = 5.0
"""The time until records that the bus did not take are tried again."""
RUN_CHECK_INTERVAL_SECONDS = 15.0
"""The time between two checks of the record of an unfinished run."""
KNOWN_RUNS_CHECK_INTERVAL_SECONDS = 2.0
"""The time between two checks whether the runs on the bus are known."""
RUN_RECORD_GRACE_SECONDS = 60.0
"""The records of a run stay on the bus for this long after its end is in the status."""
BUS_DELETION_TIMEOUT_SECONDS = 600.0
"""How long a deleted object waits for the bus; records that stay behind have the object's uid and do no
harm."""
REPORT_TIMEOUT_SECONDS = 60.0
"""An agent's report expires at this age."""

# Secrets and pods


CORRECTION_CHECK_INTERVAL_SECONDS = 5.0
"""The time between two checks of a mistake that the user has to correct, since Secrets are not watched."""
WRITTEN_SECRET_CHECK_INTERVAL_SECONDS = 1.0
"""The time until the set's own Secret is read again after a write, for the version that its pods get."""
SECRET_READ_INTERVAL_SECONDS = (30.0, 300.0)
"""The shortest and the longest time between two reads of a Secret; in between, a read waits as long as the
Secret has been the same."""
WRONG_SECRET_READ_INTERVAL_SECONDS = (1.0, 30.0)
"""The same for an object whose author has to correct a mistake."""
SECRET_IDLE_GRACE_SECONDS = 900.0
"""A Secret that was not asked for in this time is forgotten."""
POD_LIST_IDLE_GRACE_SECONDS = 60.0
"""The pods of a namespace that were not asked for in this time are forgotten."""
USERS_CHECK_INTERVAL_SECONDS = 5.0
"""The time between two looks at the users of a set that waits for them to end; in between, the last answer
holds."""
MIGRATION_CHECK_INTERVAL_SECONDS = 30.0
"""The time between two looks at the users of a set whose runtime is to move to the namespace of the
release."""
USERS_UNKNOWN_GRACE_SECONDS = 3 * USERS_CHECK_INTERVAL_SECONDS
"""After this time without a look at a set's users, it is unknown who has used the set meanwhile."""

# SampleSets


FIGURES_WRITE_INTERVAL_SECONDS = 5.0
"""The least time between two writes of a set's figures."""
CACHE_CLEAR_TIMEOUT_SECONDS = 60.0
"""How long a deletion or a scaling waits for agents to empty their caches; a dead node must not block it."""
RUNTIME_PODS_TIMEOUT_SECONDS = 120.0
"""How long a deletion waits for runtime pods to end; those of a dead node never do."""
MOVED_RUNTIME_TIMEOUT_SECONDS = 300.0
"""How long a deletion, and the move of the next runtime, wait until the pods of a moved runtime have mounted.
They may have to pull their image."""
RUNTIME_TERMINATION_GRACE_SECONDS = 20
"""The time in which a runtime pod with nothing to upload must end; its client has 13 s of it to write its
buffers."""
SCALING_CHECK_INTERVAL_SECONDS = 5.0
"""The time between two looks at partitions that leave."""
LOST_MOUNT_GRACE_SECONDS = 3600.0
"""A node that no partition is on is named for this long; jobs have restarted the pods that lost their data
there by then."""
LAST_WRITES_GRACE_SECONDS = 15.0
"""The time between the end of a set's last user and a measurement that has all its writes: two reports, and
the wait for their figures."""
CACHE_SCAN_GRACE_SECONDS = 300.0
"""A client may take this long after a mount to find the contents of its cache."""
WARMUP_RETRY_INTERVAL_SECONDS = 30.0
"""The time before a failed warmup runs again; it doubles each time."""
LONGEST_WARMUP_RETRY_INTERVAL_SECONDS = 600.0
"""The longest time before a failed warmup runs again."""

# SampleJobs


PROGRESS_WRITE_INTERVAL_SECONDS = 2.0
"""The least time between two writes of a job's progress."""
DEPENDENCY_GRACE_SECONDS = 60.0
"""The objects that a job waits for may be created this long after the job, since manifests are applied in any
order."""
SET_NOTICE_TIMEOUT_SECONDS = 60.0
"""How long a job waits for its set to take note of it; the time starts again with the service."""
SET_NOTICE_CHECK_INTERVAL_SECONDS = 2.0
"""The time between two looks whether the set has taken note."""
TURN_CHECK_INTERVAL_SECONDS = 15.0
"""The time between two looks of a job that waits for its turn, when the end of that wait wakes no job."""
RUN_CANCEL_TIMEOUT_SECONDS = 60.0
"""How long cancelled runs may take to end; a run without agents never reports its end."""
DELETED_JOB_CANCEL_TIMEOUT_SECONDS = 30.0
"""How long a deleted job waits for agents to stop; without agents nobody reports it."""
CANCEL_RETRY_INTERVAL_SECONDS = 15.0
"""The time between two cancels of a run, since a cancel may be lost and a record may appear later."""
NEW_RUN_CHECK_INTERVAL_SECONDS = 1.0
"""The time until the run of another job is looked up again when that run has no id yet."""
