# Generated from protos/paddlewheel/cache/v1/cache.proto by `make gen`; do not edit.
"""The cache data plane: the work that dataset-controller requests from the agents of a data set, the records by which
agents share the work, and the facts that they publish.

Records of runs are in the key-value bucket `pw_cache_runs`:
`<set-uid>.<run-id>.spec` is a RunSpec, written once by dataset-controller;
`<set-uid>.<run-id>.state` is a RunState, written by the run's master (compare-and-set);
`<set-uid>.<run-id>.part-<i>` is a PartitionState, written by the agent that does the work of partition i;
`<set-uid>.<run-id>.cancel` has any value, written by dataset-controller.
Records of nodes are in the bucket `pw_cache_nodes`: `<set-uid>.<partition>` is a NodeStatus.

Subjects: pw.evt.cache.run.<fact>.v1.<namespace>.<set-uid>, pw.evt.cache.node.<fact>.v1.<namespace>.<set-uid>

Agents publish these facts as they happen. The start and the end of a run are published until the stream has stored
them. Facts about mounts may be lost, because NodeStatus is authoritative. The progress of runs is in
paddlewheel.cacheprogress.v1.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Bool, Double, Int32, Int64, Timestamp, WireEnum, WireModel


class RunPhase(WireEnum):
    """The phase of a run."""

    UNSPECIFIED = "RUN_PHASE_UNSPECIFIED", 0
    RUNNING = "RUN_PHASE_RUNNING", 1
    """An agent has taken the master role."""
    SUCCEEDED = "RUN_PHASE_SUCCEEDED", 2
    FAILED = "RUN_PHASE_FAILED", 3
    CANCELLED = "RUN_PHASE_CANCELLED", 4


class RunSpec(WireModel):
    """The command `run`: the specification of one run. The status of the SampleJob or SampleSet contains the run's id before
    this record is written. Any agent of the set may then take the master role. Writing the record again has no effect.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.RunSpec"
    oneofs: ClassVar[dict[str, tuple[str, ...]]] = {'operation': ('sync', 'warmup', 'remove', 'clear')}

    run_id: str = ""
    """Unique among the runs of all sets. It is derived from the request and the attempt, so the same request has the same id."""
    set_namespace: str = ""
    set_name: str = ""
    set_uid: str = ""
    partitions: Int32 = 0
    """Number of partitions, which share the work. Another partition does the work of one that is unavailable."""
    sync: SyncOperation | None = None
    warmup: WarmupOperation | None = None
    remove: RemoveOperation | None = None
    clear: ClearOperation | None = None
    requested_at: Timestamp | None = None


class SyncOperation(WireModel):
    """Copy files from an object store into the mounted file system."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.SyncOperation"

    source: str = ""
    """Address as in the manifest, without credentials: [NAME://]BUCKET[.ENDPOINT][/PREFIX]."""
    secret: str = ""
    """Prefix of the files with the source's keys in the mounted Secret: "source" or "job-<run-id>"; "" = no keys."""
    destination: str = ""
    """Directory to copy into, relative to the set's root; "" = the root."""
    threads: Int32 = 0
    """Concurrent transfers of each agent."""
    bandwidth_limit: Int32 = 0
    """Bandwidth of all agents together, in Mbit per second; 0 = no limit."""
    include: list[str] = []
    exclude: list[str] = []
    update: Bool = False
    force_update: Bool = False
    perms: Bool = False
    dirs: Bool = False
    dry: Bool = False
    delete_src: Bool = False
    delete_dst: Bool = False
    no_https: Bool = False
    start: str = ""
    end: str = ""


class WarmupOperation(WireModel):
    """Load files into the caches of the nodes. Each partition loads its own share."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.WarmupOperation"

    paths: list[str] = []
    """Files and directories to warm, relative to the set's root; none = the whole set."""
    strategy: str = ""
    """How files are assigned to partitions: sequence, random or sampler."""
    file: str = ""
    """A file, relative to the set's root, that lists the paths to warm, one per line; "" = use `paths`."""
    threads: Int32 = 0
    """Concurrent reads of each agent."""
    sampler: SamplerOrder | None = None
    """Order of the sampler; only with the strategy sampler."""


class SamplerOrder(WireModel):
    """The order in which paddle.io.DistributedBatchSampler reads."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.SamplerOrder"

    batch_size: Int32 = 0
    shuffle: Bool = False
    epoch: Int32 = 0
    """The seed of the shuffle."""
    extensions: list[str] = []
    """Only files below a class directory whose names end with one of these are samples; none = DatasetFolder's default."""


class RemoveOperation(WireModel):
    """Remove paths from the mounted file system (rmr)."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.RemoveOperation"

    paths: list[str] = []


class ClearOperation(WireModel):
    """Empty cache directories on every node."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.ClearOperation"

    paths: list[str] = []
    """Cache directories to empty; none = all."""
    partitions: list[Int32] = []
    """Partitions to clear because they will be removed. Their agents leave nothing on their nodes when they end. None = all
    partitions, and none of them is removed.
    """


class RunState(WireModel):
    """The state of a run, as its master reports it. The master writes it at least every 5 s. After 15 s without a write, any
    agent may take over.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.RunState"

    run_id: str = ""
    phase: RunPhase = RunPhase.UNSPECIFIED
    master: str = ""
    """Pod name of the agent that holds the master role."""
    term: Int32 = 0
    """Number of takeovers. Ids of chunks do not depend on it, because the listing is deterministic."""
    heartbeat: Timestamp | None = None
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    listed: Bool = False
    """The listing is complete, so the totals are final."""
    totals: list[PartitionTotals] = []
    """Number of chunks by index of the partition, once the listing is complete. It contains only the numbers that agents
    need, because every state is sent to all agents.
    """
    files_done: Int64 = 0
    """Sum of `files` over all partitions' PartitionState. The next fields are sums, too."""
    bytes_done: Int64 = 0
    files_total: Int64 = 0
    bytes_total: Int64 = 0
    chunks_done: Int64 = 0
    chunks_total: Int64 = 0
    cached_percent: Double = 0.0
    """For a warmup, percentage of bytes that `juicefs warmup --check` found cached, from 0 to 100. During the run it counts
    what was cached after each chunk. At the end it counts what the nodes then hold, which is less if the caches are too
    small.
    """
    reason: str = ""
    """Why the run waits or has failed, as one CamelCase word. PartlyCached if a warmup has succeeded, but the caches do not
    hold all of its files.
    """
    message: str = ""
    """Explanation of the reason. After success, notes about the run."""
    stand_ins: list[StandIn] = []
    """Partitions that are unavailable, and the partitions that do their work."""
    judgement: Judgement | None = None
    """The final result of the run, written before files are deleted (delete-src, delete-dst). A new master then only carries
    it out, and lists nothing again. The figures above are final.
    """
    closing: Bool = False
    """The phase is final, but RunEnded is not published yet, or some chunks are not removed yet. Any agent may do that."""
    crashes: Int32 = 0
    """Number of masters that an unexpected error has ended. After five, the run fails with InternalError."""
    limits: ChunkLimits | None = None
    """Limits by which the run is divided into chunks. Every master of the run uses them, whatever its release and settings."""
    files_kept: Int64 = 0
    """For a sync, number of files in files_done that were not copied, because they were complete already. The sum over all
    partitions.
    """
    files_failed: Int64 = 0
    """Number of files that failed in all attempts. The sum over all partitions."""


class ChunkLimits(WireModel):
    """The limits at which a chunk is full. Chunks of a large partition may be larger: up to 1/`share` of the bytes listed for
    the partition before, and at most `growth` times `bytes`.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.ChunkLimits"

    bytes: Int64 = 0
    """Size of the files."""
    files: Int32 = 0
    """Number of files."""
    encoded: Int32 = 0
    """Size of the chunk as uncompressed JSON, in bytes."""
    share: Int32 = 0
    growth: Int32 = 0


class Judgement(WireModel):
    """The result of a run whose chunks are all done."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.Judgement"

    phase: RunPhase = RunPhase.UNSPECIFIED
    reason: str = ""
    """The reason that RunState will have."""
    message: str = ""
    """The message that RunState will have."""


class StandIn(WireModel):
    """A partition that is unavailable, and the partition whose agent does its work meanwhile."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.StandIn"

    partition: Int32 = 0
    """Index of the unavailable partition."""
    by: Int32 = 0
    """Index of the partition that does its work."""


class PartitionTotals(WireModel):
    """The totals that the master has listed for one partition."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.PartitionTotals"

    files: Int64 = 0
    bytes: Int64 = 0
    chunks: Int64 = 0


class PartitionState(WireModel):
    """The finished work of one partition in one run. Agents write it by compare-and-set, so two agents never count a chunk
    twice.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.PartitionState"

    partition: Int32 = 0
    agent: str = ""
    node: str = ""
    chunks: list[Int64] = []
    """Ids of finished chunks from `watermark` on, ascending. There are few, because chunks are done in the order of their ids."""
    files: Int64 = 0
    """Number of finished files."""
    bytes: Int64 = 0
    """Number of finished bytes."""
    cached_bytes: Int64 = 0
    """For a warmup, number of bytes that the check found cached."""
    files_failed: Int64 = 0
    """Number of files that failed in all attempts."""
    failed_examples: list[str] = []
    """Paths of failed files, at most 20."""
    updated_at: Timestamp | None = None
    notes: list[str] = []
    """Notes that are not failures, e.g. a path to remove that did not exist; at most 20."""
    watermark: Int64 = 0
    """All chunks with a lower id are finished."""
    lacking: Int32 = 0
    """Number of times that the next chunk was missing after the listing, or could not be read. 0 once the chunk is done."""
    attempts: Int32 = 0
    """Number of agents that have begun with the next chunk as their first one. 0 once the chunk is done."""
    digest: Int64 = 0
    """Digest of the files of all finished chunks: the sum of a hash of each file's path and size, modulo 2^63. The master
    compares it with its listing. They differ if files change while a new master lists them again, because files then move
    between chunks.
    """
    reason: str = ""
    """Why the next chunk waits on its agent, as one CamelCase word; empty = it does not wait."""
    message: str = ""
    """Explanation of the reason."""
    uncounted: Bool = False
    """The cache could not be checked at the end of a warmup, so cached_bytes is 0."""
    files_kept: Int64 = 0
    """For a sync, number of files and directories that were not copied, because they existed with the same size or, with
    `update`, were not older than in the source. Their content is not compared. If a chunk was tried before, only files
    that have not changed since `begun_at` count.
    """
    files_uncompared: Int64 = 0
    """For a sync, number of files whose content was not compared, without directories. If a chunk was tried before, all files
    that existed at the last attempt count; an earlier attempt may have copied some of them. 0 from an older agent.
    """
    begun_at: Timestamp | None = None
    """The earliest time at which an agent began to work on this partition, by the clock of its node. This run has not changed
    files whose last change is older. Empty if an older agent, which does not report it, has worked on the partition.
    """


class Chunk(WireModel):
    """A unit of work for one partition, as zstd-compressed proto3 JSON. Agents read it by its subject. It stays in the stream
    until an agent has processed all of its files and recorded that in PartitionState; an empty message then replaces it.
    A chunk without files is the last one of a warmup: the agent checks how many bytes of the warmed files its cache holds.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.Chunk"

    run_id: str = ""
    id: Int64 = 0
    """Number of the chunk in its partition, from 0. It is the same if the listing is repeated."""
    partition: Int32 = 0
    files: list[FileEntry] = []


class FileEntry(WireModel):
    """A file. `path` is relative to the set's root. For a sync, it is the object's key without the prefix of the source."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.FileEntry"

    path: str = ""
    size: Int64 = 0


class NodeStatus(WireModel):
    """The report of an agent about its node, written every 10 s. The last report is kept until the set is deleted, because
    writes on a lost node still count.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.NodeStatus"

    set_uid: str = ""
    partition: Int32 = 0
    agent: str = ""
    node: str = ""
    mounted: Bool = False
    message: str = ""
    """Why the set is not mounted."""
    cached_bytes: Int64 = 0
    disk_size: Int64 = 0
    disk_used: Int64 = 0
    disk_available: Int64 = 0
    total_bytes: Int64 = 0
    """Size of the whole data set, as its file system reports it."""
    total_files: Int64 = 0
    """Number of files in the whole data set."""
    updated_at: Timestamp | None = None
    cache_capacity: Int64 = 0
    """Bytes that the cache can hold at most: its configured size, or less if its disks have less free space."""
    staged_bytes: Int64 = 0
    """With writeback, bytes that were written and acknowledged, but are not in the object store yet."""
    hit_bytes: Int64 = 0
    """Bytes that the mounted client has read from this cache since it was started."""
    miss_bytes: Int64 = 0
    """Bytes that the mounted client has read from elsewhere since it was started."""
    ailment: str = ""
    """Why the set is not mounted, or what is wrong with its mount, as one CamelCase word. Empty = nothing is wrong."""
    ailment_message: str = ""
    """Explanation of `ailment`, and what to do."""
    mount_changed_at: Timestamp | None = None
    """When `mounted` last changed."""
    staged_unknown: Bool = False
    """There may be more bytes than staged_bytes. The cache directories of this node could not be read recently, or, with
    writeback, since the mount changed.
    """
    staged_elsewhere: list[StagedElsewhere] = []
    """Writes that the partition has left on other nodes, by the last reports from there; with writeback, also nodes without
    writes. Up to 8 nodes. An agent of any partition that runs on such a node again uploads them.
    """
    volume_id: str = ""
    """UUID of the volume that the set was first mounted from; empty before that. A set keeps this volume for its whole life:
    as long as any of its records contains the id, no agent formats or mounts another volume for the set.
    """
    writeback: Bool = False
    """Pods write to the cache first (writeback), so while the set is mounted, staged_bytes can grow after this report."""
    volume_unknown: Bool = False
    """This record replaces one that could not be read and that may have contained volume_id."""
    staged_age: Int32 = 0
    """With writeback, seconds between the beginning of the measurement of staged_bytes and this report. Pods may have written
    in that time. 0 from an older agent.
    """
    size_unknown: Bool = False
    """This agent has not measured the data set yet: total_bytes and total_files are from the report before, or 0."""
    figures_problem: str = ""
    """Why a figure above is missing or old: a disk, the cache or the data set could not be measured. Empty = no problem."""
    cached_at: Timestamp | None = None
    """When the measurement of cached_bytes began, by the clock of the node. Empty if there is none, as figures_problem then
    explains, and from an older agent.
    """
    cached_age: Int32 = 0
    """Seconds between the beginning of the measurement of cached_bytes and this report, at least 1. It can be large while the
    next measurement takes long. 0 = there is no measurement, or an older agent does not report it.
    """
    size_age: Int32 = 0
    """Seconds between the time at which total_bytes and total_files were current and this report, at least 1. 0 = they are
    from the report before, or an older agent does not report it.
    """


class StagedElsewhere(WireModel):
    """Writes on a node that a partition has left."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.StagedElsewhere"

    node: str = ""
    staged_bytes: Int64 = 0
    staged_unknown: Bool = False
    """The writes could not be measured."""


class RunStarted(WireModel):
    """An agent has taken the master role of the run. Published again, under another id, when another agent takes over the role
    because its holder no longer renews it.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.RunStarted"

    set_namespace: str = ""
    set_name: str = ""
    set_uid: str = ""
    run_id: str = ""
    operation: str = ""
    """sync, warmup, remove or clear."""
    master: str = ""
    """Pod name of the agent."""


class RunEnded(WireModel):
    """The run has ended, successfully or not, as RunState shows. Published once, after the final state is stored. If the master
    dies in between, another agent publishes it. Terminal for the run: remaining chunks are removed.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.RunEnded"

    set_namespace: str = ""
    set_name: str = ""
    set_uid: str = ""
    run_id: str = ""
    operation: str = ""
    phase: RunPhase = RunPhase.UNSPECIFIED
    """SUCCEEDED, FAILED or CANCELLED."""
    files: Int64 = 0
    """Number of finished files, also if the run has failed."""
    bytes: Int64 = 0
    """Number of finished bytes."""
    cached_percent: Double = 0.0
    """For a warmup, percentage of the bytes that JuiceFS's own check found on the nodes, from 0 to 100."""
    reason: str = ""
    """Why the run has failed, as one CamelCase word."""
    message: str = ""
    """The first 500 characters of RunState's message, with at most 20 names of failed files."""


class NodeMounted(WireModel):
    """The partition's agent has mounted the data set on its node, and the mount responds. Published once for each change.
    May be lost while the bus is unreachable; NodeStatus is authoritative.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.NodeMounted"

    set_namespace: str = ""
    set_name: str = ""
    set_uid: str = ""
    partition: Int32 = 0
    node: str = ""


class NodeUnmounted(WireModel):
    """The mount of a partition's agent is missing or does not respond, and the agent mounts the data set again. May be lost,
    like NodeMounted.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.NodeUnmounted"

    set_namespace: str = ""
    set_name: str = ""
    set_uid: str = ""
    partition: Int32 = 0
    node: str = ""
    message: str = ""
    """Description of the problem, at most 500 characters."""
