"""All time constants of cache-runtime, in seconds.

A TIMEOUT ends a wait; an INTERVAL separates two tries; a GRACE is how long a state may last before it counts.
"""

from __future__ import annotations

# The master of a run


HEARTBEAT_INTERVAL_SECONDS = 4.0
"""The master writes the state of a run this often even if nothing changed."""
BUS_CHECK_GRACE_SECONDS = 6.0
"""After this time without a write of the master, an agent checks whether the bus is reachable."""
STATE_WRITE_TIMEOUT_SECONDS = 10.0
"""A master that could not write for this long, which is less than `MASTER_TIMEOUT_SECONDS`, aborts its
deletions: another agent may soon lead, and nothing may be deleted after that one has ended the run."""
MASTER_TIMEOUT_SECONDS = 15.0
"""After this time without a write of the master, any agent may take over its role."""
UNMOUNTED_AGENT_TIMEOUT_SECONDS = 2 * MASTER_TIMEOUT_SECONDS
"""After this time an agent without a mount may take over the role too, and a master that cannot list without
a mount leaves it to an agent that has one."""
RUN_END_TIMEOUT_SECONDS = 120.0
"""A master whose steps to end a run fail for this long leaves its role to another agent."""
RUN_CLOSE_TIMEOUT_SECONDS = 600.0
"""How long the end of a run is announced in vain, and then how long its chunks are removed in vain, while
records can be written."""
RUN_RESYNC_INTERVAL_SECONDS = 1.0
"""The time between two passes when nothing changes, to notice a master that no longer writes."""
TASK_RESTART_INTERVAL_SECONDS = 5.0
"""A task that an unexpected error has ended is started again after this time."""
AGENT_AWAY_TIMEOUT_SECONDS = 25.0
"""An agent counts as away after at least this time without a report."""
AGENT_GONE_TIMEOUT_SECONDS = 300.0
"""After this time without a report, nobody waits for work that only that agent can do."""
STALE_REPORT_GRACE_SECONDS = 60.0
"""An agent is gone when its report is this much older than the newest one."""
BUS_RETRY_INTERVAL_SECONDS = 0.2
"""The time before a failed call of the bus is repeated; it doubles each time."""
LONGEST_BUS_RETRY_INTERVAL_SECONDS = 5.0
"""The longest time before a failed call of the bus is repeated."""

# Chunks


CHUNK_REQUEST_INTERVAL_SECONDS = 0.05
"""The time until a chunk that is not published yet is requested again; it doubles each time."""
LONGEST_CHUNK_REQUEST_INTERVAL_SECONDS = 1.0
"""The longest time until such a chunk is requested again."""
LOST_CHUNK_GRACE_SECONDS = 5.0
"""A published chunk that is absent for this long is lost; replicas of a stream lag."""
REFUSED_CHUNK_GRACE_SECONDS = 10.0
"""A chunk must be refused for this long before the record states the reason; also the time between two such
texts."""
RUN_CONTACT_TIMEOUT_SECONDS = 10.0
"""An agent without contact to its run for this long aborts its chunk before another agent may lead or take
its place: the run may end without it, and nothing may be deleted or copied after that."""
RUN_READ_INTERVAL_SECONDS = 2.0
"""The time between two tries to read the run after contact was lost."""
STORE_AWAY_TIMEOUT_SECONDS = 1800.0
"""A chunk waits this long for stores that are away; an object that can never be copied may look the same."""
CACHE_COUNT_TIMEOUT_SECONDS = 120.0
"""How long an agent tries to read the size of its cache at the end of a warmup."""
PARTITION_CHECK_INTERVAL_SECONDS = 30.0
"""The record of a finished partition is read again after this time, since the bus may have lost records or
been restored."""
EXECUTION_RETRY_INTERVAL_SECONDS = 1.0
"""The second execution of a chunk waits three times as long; each further wait is three times the last."""
TIDY_TIMEOUT_SECONDS = 3.0
"""The end of a run or an agent waits this long for the removal of unfinished copies, which then goes on by
itself."""
CLOCK_STEP_GRACE_SECONDS = 2.0
"""A clock may be set back, or times of files may be rounded, by this much."""
CLOCK_CORRECTION_GRACE_SECONDS = 1.0
"""The clock of a node may be set back by this much during a copy."""
CHUNK_COPY_TIMEOUT_SECONDS = 3600.0
"""How long a chunk may take besides the time for its bytes and objects."""
OBJECT_COPY_TIMEOUT_SECONDS = 5.0
"""How long each object may take, which may need a client of its own."""
DELETION_TIMEOUT_SECONDS = 6 * 3600.0
"""How long each of the two steps of a deletion may take."""
PROGRESS_INTERVAL_SECONDS = 1.0
"""The least time between two progress facts of one run; those in between are dropped."""

# Listings


LISTING_TIMEOUT_SECONDS = 300.0
"""A listing must give output within this time, as it does with each page of the store."""
LISTING_RETRY_INTERVAL_SECONDS = 1.0
"""The time before a failed listing is tried again; it doubles each time."""
LONGEST_LISTING_RETRY_INTERVAL_SECONDS = 30.0
"""The longest time before a failed listing is tried again."""
LISTING_RETRY_TIMEOUT_SECONDS = 600.0
"""A listing without progress fails after this much time between tries; the listing itself, which may take
hours, does not count."""
WINDOW_STALL_TIMEOUT_SECONDS = 600.0
"""After this time without a finished chunk, the chunks of a full window are checked for losses."""
WINDOW_CHECK_INTERVAL_SECONDS = 0.5
"""The time between two looks at finished chunks while the window is full."""

# Mounts


MOUNT_PROBE_INTERVAL_SECONDS = 1.0
"""The time between two probes of a mount."""
MOUNT_PROBE_STEP_INTERVAL_SECONDS = 0.5
"""At most this much of a wait for an answer counts at once, see `_is_answered`."""
SLOW_MOUNT_GRACE_SECONDS = 2.5
"""A mount that does not answer for this long is reported as silent."""
LOST_MOUNT_TIMEOUT_SECONDS = 10.0
"""A mount that does not answer for this long is lost; a healthy one on a busy machine may be late, and must
not be unmounted for that."""
FIRST_MOUNT_REPORT_INTERVAL_SECONDS = 10.0
"""The time between two log lines about the step that a first mount waits for."""
MOUNT_RETRY_INTERVAL_SECONDS = 0.5
"""The time before a failed mount is tried again; it doubles each time."""
LONGEST_MOUNT_RETRY_INTERVAL_SECONDS = 30.0
"""The longest time before a failed mount is tried again."""
SHORT_MOUNT_GRACE_SECONDS = 60.0
"""A mount that is lost sooner than this counts as one that has failed."""
PARTITION_LEAVE_TIMEOUT_SECONDS = 900.0
"""A process that ends within this time after `leave` leaves nothing behind. A partition and its pod go
sooner; if they are still there later, the user has kept them after all."""
MOUNT_CHECK_INTERVAL_SECONDS = 5.0
"""The time between two checks of a mounted client."""
MOUNT_CHECK_TIMEOUT_SECONDS = 4.0
"""How long a check waits for an answer."""
STORE_CHECK_INTERVAL_SECONDS = 30.0
"""The time between two requests to a store that answers, since all nodes of all sets ask the same one."""
KERNEL_MOUNT_TIMEOUT_SECONDS = 10.0
"""How long the kernel may take to mount or unmount."""
MOUNT_READY_TIMEOUT_SECONDS = 60.0
"""How long a client may take to mount."""
CLIENT_LEAVE_TIMEOUT_SECONDS = 1.0
"""A client ends by itself within this time when nothing shows its file system."""
CLIENT_FLUSH_TIMEOUT_SECONDS = 12.0
"""How long a client may take to write its buffers once the kernel has closed the file system."""
CLIENT_KILL_TIMEOUT_SECONDS = 10.0
"""How long a killed process may take to end; a process that waits for a disk in the kernel does not."""
DISK_TIMEOUT_SECONDS = 10.0
"""How long a disk or the kernel may take to answer a mount."""
CONTROL_FILE_TIMEOUT_SECONDS = 120.0
"""A client that sends no frame for this long, where one is due every 0.3 s, hangs."""
CONTROL_FILE_POLL_INTERVAL_SECONDS = 0.005
"""The time between two reads of a client's answer."""
METADATA_TIMEOUT_SECONDS = 30.0
"""How long the metadata engine may take to answer."""
REMOVE_TIMEOUT_SECONDS = 3600.0
"""How long the removal of a directory may take."""
LOCAL_SOURCE_TIMEOUT_SECONDS = 30.0
"""How long a file system of the node may take to answer."""
SECRET_POLL_INTERVAL_SECONDS = 1.0
"""The time between two looks for a file of a Secret."""

# Reports of a node


FIGURES_TIMEOUT_SECONDS = 5.0
"""How long a report waits for new figures."""
SIZE_SETTLED_GRACE_SECONDS = 30.0
"""A reported size is final after this time without a change."""
EMPTY_NODE_REPORT_GRACE_SECONDS = 600.0
"""A report names a node on which nothing is left for this long."""
LAST_REPORT_INTERVAL_SECONDS = 1.0
"""The time between two tries of the last report."""
FLUSH_CHECK_INTERVAL_SECONDS = 0.5
"""The time between the first two looks at data that is left to upload, each of which walks through all of it;
it doubles each time."""
LONGEST_FLUSH_CHECK_INTERVAL_SECONDS = 5.0
"""The longest time between two such looks."""
STAGED_BYTES_TIMEOUT_SECONDS = 5.0
"""How long the disk may take to give the size of data that is left to upload."""
