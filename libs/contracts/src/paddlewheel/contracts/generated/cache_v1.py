# Generated from protos/paddlewheel/cache/v1/cache.proto by `make gen`; do not edit.
"""The cache data plane: the work that dataset-controller requests of a data set's runtime, how agents share it, and what
they report. Records of runs are in the key-value bucket `pw_cache_runs`:
`<set-uid>.<run-id>.spec` is a RunSpec, written once by dataset-controller;
`<set-uid>.<run-id>.state` a RunState, written by the run's master (compare-and-set);
`<set-uid>.<run-id>.part-<i>` a PartitionState, written by the agent of partition i or by who stands in for it;
`<set-uid>.<run-id>.cancel` any value, written by dataset-controller.
Node records are in `pw_cache_nodes`: `<set-uid>.<partition>` is a NodeStatus.

Subjects: pw.evt.cache.run.<fact>.v1.<namespace>.<set-uid>, pw.evt.cache.node.<fact>.v1.<namespace>.<set-uid>

Agents publish cache facts themselves, as they happen. The start and the end of a run are published until the stream
has stored them; mounts are lossy by design, because NodeStatus is authoritative. Progress of runs, which is lossy too,
is in paddlewheel.cacheprogress.v1.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Bool, Double, Int32, Int64, Timestamp, WireEnum, WireModel


class RunPhase(WireEnum):
    """Phase of a run."""

    UNSPECIFIED = "RUN_PHASE_UNSPECIFIED", 0
    RUNNING = "RUN_PHASE_RUNNING", 1
    """An agent has taken the master role."""
    SUCCEEDED = "RUN_PHASE_SUCCEEDED", 2
    FAILED = "RUN_PHASE_FAILED", 3
    CANCELLED = "RUN_PHASE_CANCELLED", 4


class RunSpec(WireModel):
    """The specification of one run: the command `run`. The SampleJob (or SampleSet) has the run's id in its status before the
    record is written; any agent of the set may then take the master role. Writing it again has no effect.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.RunSpec"
    oneofs: ClassVar[dict[str, tuple[str, ...]]] = {'operation': ('sync', 'warmup', 'remove', 'clear')}

    run_id: str = ""
    """Unique among all runs of all sets; derived from the request and the attempt, so the same request has the same id."""
    set_namespace: str = ""
    set_name: str = ""
    set_uid: str = ""
    partitions: Int32 = 0
    """Number of shares of the work: partition i does the i-th, or another for it while it is away."""
    sync: SyncOperation | None = None
    warmup: WarmupOperation | None = None
    remove: RemoveOperation | None = None
    clear: ClearOperation | None = None
    requested_at: Timestamp | None = None


class SyncOperation(WireModel):
    """Copy from an object store into the mounted file system."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.SyncOperation"

    source: str = ""
    """Without credentials: [NAME://]BUCKET[.ENDPOINT][/PREFIX] as in the manifest."""
    secret: str = ""
    """Prefix of the mounted Secret's files with the source's keys: "source" or "job-<run-id>"; "" = none needed."""
    destination: str = ""
    """Below the set's root, "" = the root."""
    threads: Int32 = 0
    """Per agent."""
    bandwidth_limit: Int32 = 0
    """Mbit per second over all agents together, 0 = no limit."""
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
    """Load files into the caches of the nodes, each partition its own share."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.WarmupOperation"

    paths: list[str] = []
    """Relative to the set's root; none = the whole set."""
    strategy: str = ""
    """sequence, random or sampler."""
    file: str = ""
    """Relative path of a prepared list, one path per line; "" = walk `paths`."""
    threads: Int32 = 0
    """Per agent."""
    sampler: SamplerOrder | None = None
    """For the strategy sampler."""


class SamplerOrder(WireModel):
    """The order in which paddle.io.DistributedBatchSampler reads."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.SamplerOrder"

    batch_size: Int32 = 0
    shuffle: Bool = False
    epoch: Int32 = 0
    """The seed of the shuffle."""


class RemoveOperation(WireModel):
    """Remove paths from the mounted file system (rmr)."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.RemoveOperation"

    paths: list[str] = []


class ClearOperation(WireModel):
    """Empty cache directories on every node; none = all of them."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.ClearOperation"

    paths: list[str] = []
    partitions: list[Int32] = []
    """Only on these partitions, which are about to be removed: their agents leave nothing on their nodes when they end.
    None = all of them, and all stay.
    """


class RunState(WireModel):
    """The run as its master reports it. The master writes it at least every 5 s; after 15 s without a write any agent may
    take over.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.RunState"

    run_id: str = ""
    phase: RunPhase = RunPhase.UNSPECIFIED
    master: str = ""
    """Pod name of the agent that holds the master role."""
    term: Int32 = 0
    """Incremented with every takeover; not a part of chunk ids, because the listing is deterministic."""
    heartbeat: Timestamp | None = None
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    listed: Bool = False
    """The listing is complete: `partitions` totals are final."""
    totals: list[PartitionTotals] = []
    """Once all is listed, the number of chunks by partition index: all that agents need, for each state is sent to all of them."""
    files_done: Int64 = 0
    """Sums over all partitions' PartitionState."""
    bytes_done: Int64 = 0
    files_total: Int64 = 0
    bytes_total: Int64 = 0
    chunks_done: Int64 = 0
    chunks_total: Int64 = 0
    cached_percent: Double = 0.0
    """Warmup: percent of bytes that `juicefs warmup --check` found cached, 0 to 100. While it runs, of what was found after
    each chunk; at its end, of what the nodes then hold, which is less when the caches are too small.
    """
    reason: str = ""
    """CamelCase, when it waits or has failed; PartlyCached when a warmup has succeeded and the caches do not hold all of it."""
    message: str = ""
    """What it waits for, or why it failed; of a run that succeeded, what is worth knowing."""
    stand_ins: list[StandIn] = []
    """Who does the work of partitions that are away."""
    judgement: Judgement | None = None
    """How the run will end, written before anything is deleted for it (delete-src, delete-dst): a new master carries it out,
    and lists and judges nothing again. The figures above are final then.
    """
    closing: Bool = False
    """The phase is final; RunEnded is not published yet, or not all chunks are removed. Any agent may finish that."""
    crashes: Int32 = 0
    """How many masters an unexpected error has ended; after five the run fails with InternalError."""
    limits: ChunkLimits | None = None
    """By what the run is cut into chunks: every master of the run, of whatever release and settings, makes the same."""
    files_kept: Int64 = 0
    """Sum over all partitions: of files_done, those that a sync has left as they are. The others it has copied, or may have."""


class ChunkLimits(WireModel):
    """When a chunk is full. Those of a large partition grow: to one in `share` of what the partition holds before, and to
    `growth` times `bytes` at most.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.ChunkLimits"

    bytes: Int64 = 0
    files: Int32 = 0
    encoded: Int32 = 0
    """Bytes of uncompressed JSON."""
    share: Int32 = 0
    growth: Int32 = 0


class Judgement(WireModel):
    """How a run ends, once all of its chunks are done."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.Judgement"

    phase: RunPhase = RunPhase.UNSPECIFIED
    reason: str = ""
    """CamelCase, as in RunState."""
    message: str = ""
    """Human-readable, as in RunState."""


class StandIn(WireModel):
    """One partition that is away, and the one whose agent does its work meanwhile."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.StandIn"

    partition: Int32 = 0
    by: Int32 = 0


class PartitionTotals(WireModel):
    """What the master listed for one partition."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.PartitionTotals"

    files: Int64 = 0
    bytes: Int64 = 0
    chunks: Int64 = 0


class PartitionState(WireModel):
    """What is done of one partition of one run; written by compare-and-set, so that two agents count a chunk once."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.PartitionState"

    partition: Int32 = 0
    agent: str = ""
    node: str = ""
    chunks: list[Int64] = []
    """Ids of finished chunks from `watermark` on, ascending. Few, since chunks are done in the order of their ids."""
    files: Int64 = 0
    bytes: Int64 = 0
    cached_bytes: Int64 = 0
    """Bytes that the check found cached (warmup only)."""
    files_failed: Int64 = 0
    """Files that failed after all attempts; at most 20 are named."""
    failed_examples: list[str] = []
    updated_at: Timestamp | None = None
    notes: list[str] = []
    """What is worth knowing and is no failure, e.g. a path to remove that did not exist; at most 20."""
    watermark: Int64 = 0
    """All chunks with a lower id are finished."""
    lacking: Int32 = 0
    """How often its next chunk was looked for in vain after the listing, or could not be read; 0 once it is done."""
    attempts: Int32 = 0
    """How many agents have begun with its next chunk as their first one; 0 once it is done."""
    digest: Int64 = 0
    """Of the files of all finished chunks: the sum of a hash of path and size of each, modulo 2^63. The master compares it
    with what it has listed: when the files change while a run is listed again, files move between chunks.
    """
    reason: str = ""
    """CamelCase: what its next chunk waits for on its agent; empty = nothing."""
    message: str = ""
    """The same, human-readable."""
    uncounted: Bool = False
    """What the cache holds could not be looked up at the end of a warmup, so that cached_bytes is 0."""
    files_kept: Int64 = 0
    """Files of a sync that were there with the same size or, with `update`, not older than in the source: neither copied nor
    compared. Directories that were there count, too. Of a chunk that was tried before, those count that nobody has changed
    since `begun_at`.
    """
    files_uncompared: Int64 = 0
    """The same without directories, and with all that nobody has compared: of a chunk that was tried before, those that were
    there the last time. An earlier try may have copied some of them. 0 also of an older agent.
    """
    begun_at: Timestamp | None = None
    """The earliest time at which an agent began to work on this partition, each by the clock of its node: none has changed for
    this run what was changed last before it. Empty when an agent that does not say so has worked on it.
    """


class Chunk(WireModel):
    """One unit of work for one partition, zstd-compressed proto3 JSON on the wire. One without files, at the end of a warmup,
    has the agent look up what its cache then holds of the files it has warmed. Agents read it by its subject. It stays in
    the stream until one has processed all of its files and recorded that in PartitionState. An empty message in its place
    says that it is done.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.Chunk"

    run_id: str = ""
    id: Int64 = 0
    """Counts the chunks of its partition from 0; the same when the listing is repeated."""
    partition: Int32 = 0
    files: list[FileEntry] = []


class FileEntry(WireModel):
    """One file. `path` is relative to the set's root (sync: the object's key below the source prefix)."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.FileEntry"

    path: str = ""
    size: Int64 = 0


class NodeStatus(WireModel):
    """One agent's report about its node; refreshed every 10 s. The last one stays until the set is deleted: what a lost node has counts."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.NodeStatus"

    set_uid: str = ""
    partition: Int32 = 0
    agent: str = ""
    node: str = ""
    mounted: Bool = False
    message: str = ""
    """Why it is not mounted, human-readable."""
    cached_bytes: Int64 = 0
    disk_size: Int64 = 0
    disk_used: Int64 = 0
    disk_available: Int64 = 0
    total_bytes: Int64 = 0
    """Of the whole data set, as the file system reports it."""
    total_files: Int64 = 0
    updated_at: Timestamp | None = None
    cache_capacity: Int64 = 0
    """Bytes that the cache can hold at most: its own size, or less when the disks have less free."""
    staged_bytes: Int64 = 0
    """Bytes that were written and acknowledged, and are not in the object store yet (writeback)."""
    hit_bytes: Int64 = 0
    """Bytes that the mounted client has read from this cache, and those it had to get from elsewhere, since it was started."""
    miss_bytes: Int64 = 0
    ailment: str = ""
    """CamelCase: why it is not mounted; while it is, what the mount waits for or lacks. Empty = all is well."""
    ailment_message: str = ""
    """The same with the remedy, human-readable."""
    mount_changed_at: Timestamp | None = None
    """Since when it has been mounted, or has not."""
    staged_unknown: Bool = False
    """There may be more than staged_bytes: the cache directories of this node could not be read lately or, where pods write to the
    cache first, since the mount has changed.
    """
    staged_elsewhere: list[StagedElsewhere] = []
    """What the partition has left on nodes that it was on before, as their last report says; with writeback, also that it is
    nothing. Up to 8 nodes. An agent of any partition that runs there again uploads it.
    """
    volume_id: str = ""
    """UUID of the volume that the set was first mounted from, empty before that. A set has this volume for life: while any
    record of it says so, no agent formats another one for it, or mounts one.
    """
    writeback: Bool = False
    """Pods write to the cache first: while it is mounted, there may be more than staged_bytes a moment later."""
    volume_unknown: Bool = False
    """This record is in the place of one that could not be read, and that may have named the volume."""
    staged_age: Int32 = 0
    """Seconds from the begin of the measurement of staged_bytes to this report, where pods write to the cache first: they may have
    written since. 0 also of an older agent.
    """
    size_unknown: Bool = False
    """This agent has not measured the data set yet: total_bytes and total_files are those of the report before, or 0."""
    figures_problem: str = ""
    """Why a figure above is missing or old, human-readable: a disk, the cache or the data set could not be measured. Empty = none is."""
    cached_at: Timestamp | None = None
    """When the measurement of cached_bytes began, by the clock of the node, as mount_changed_at is. Empty while there is none, then
    figures_problem says so, and of an older agent.
    """
    cached_age: Int32 = 0
    """Seconds from the begin of the measurement of cached_bytes to this report, which may come while the next one takes long; 1 or more.
    0 = there is none, or an older agent does not say.
    """


class StagedElsewhere(WireModel):
    """Writes on a node that a partition has left."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.StagedElsewhere"

    node: str = ""
    staged_bytes: Int64 = 0
    staged_unknown: Bool = False
    """Nobody was able to measure them."""


class RunStarted(WireModel):
    """An agent has taken the master role of the run. Published again, under another id, whenever another agent takes over the
    role because its holder has stopped renewing it.
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
    """The run has ended, successfully or not; RunState says the same. Published once, after the final state is stored; when
    its master dies in between, by another agent. Terminal for the run: remaining chunks are dropped.
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
    """What was done, even if not everything was."""
    bytes: Int64 = 0
    cached_percent: Double = 0.0
    """Of a warmup: percent of the bytes that JuiceFS's own check found on the nodes, 0 to 100."""
    reason: str = ""
    """CamelCase, when failed."""
    message: str = ""
    """Human-readable; names files that failed, at most 20. The first 500 characters of what RunState has."""


class NodeMounted(WireModel):
    """The partition's agent has mounted the data set on its node, and the mount responds. Lossy by design: published once
    for each change, and not at all if the bus is unreachable at that moment; NodeStatus is authoritative.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.NodeMounted"

    set_namespace: str = ""
    set_name: str = ""
    set_uid: str = ""
    partition: Int32 = 0
    node: str = ""


class NodeUnmounted(WireModel):
    """The partition's agent has found its mount missing or unresponsive and is mounting again. Lossy by design, as
    NodeMounted.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.NodeUnmounted"

    set_namespace: str = ""
    set_name: str = ""
    set_uid: str = ""
    partition: Int32 = 0
    node: str = ""
    message: str = ""
    """What was observed, human-readable; 500 characters at most."""
