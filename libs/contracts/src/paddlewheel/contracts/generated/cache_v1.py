# Generated from protos/paddlewheel/cache/v1/cache.proto by `make gen`; do not edit.
"""The cache data plane: what dataset-controller asks of a data set's runtime, how agents share the
work, and what they report. Records of runs live in the key-value bucket `pw_cache_runs`:
`<set-uid>.<run-id>.spec` is a RunSpec, written once by dataset-controller;
`<set-uid>.<run-id>.state` a RunState, written by the run's master (compare-and-set);
`<set-uid>.<run-id>.part-<i>` a PartitionState, written by the agent of partition i only;
`<set-uid>.<run-id>.cancel` any value, written by dataset-controller.
Node records live in `pw_cache_nodes`: `<set-uid>.<partition>` is a NodeStatus.

Subjects: pw.evt.cache.run.<fact>.v1.<namespace>.<set-uid>, pw.evt.cache.node.<fact>.v1.<namespace>.<set-uid>

Cache facts are told by the agents themselves, as they happen. The start and the end of a run are told until the
stream has stored them; progress and mounts are lossy by design, for RunState and NodeStatus hold the truth.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Bool, Double, Int32, Int64, Timestamp, WireEnum, WireModel


class RunPhase(WireEnum):
    """Where a run stands."""

    UNSPECIFIED = "RUN_PHASE_UNSPECIFIED", 0
    RUNNING = "RUN_PHASE_RUNNING", 1
    """Somebody took the master role."""
    SUCCEEDED = "RUN_PHASE_SUCCEEDED", 2
    FAILED = "RUN_PHASE_FAILED", 3
    CANCELLED = "RUN_PHASE_CANCELLED", 4


class RunSpec(WireModel):
    """One run as asked for: the command `run`. The SampleJob (or SampleSet) has the run's id in its status before the record
    is written; any agent of the set may then take the master role. Writing it again changes nothing.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.RunSpec"
    oneofs: ClassVar[dict[str, tuple[str, ...]]] = {'operation': ('sync', 'warmup', 'remove', 'clear')}

    run_id: str = ""
    """Unique among all runs of all sets; tells the wish and the try, so the same wish gets the same id."""
    set_namespace: str = ""
    set_name: str = ""
    set_uid: str = ""
    partitions: Int32 = 0
    """Over how many agents the work is spread."""
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
    """Prefix of the mounted secret files that hold the source's keys: "source" or "job-<run-id>"; "" = none needed."""
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
    """Bring files into the caches of the nodes, each partition its own share."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.WarmupOperation"

    paths: list[str] = []
    """Relative to the set's root; none = the whole set."""
    strategy: str = ""
    """sequence or random."""
    file: str = ""
    """Relative path of a ready list, one path a line; "" = walk `paths`."""
    threads: Int32 = 0
    """Per agent."""


class RemoveOperation(WireModel):
    """Remove paths from the mounted file system (rmr)."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.RemoveOperation"

    paths: list[str] = []


class ClearOperation(WireModel):
    """Empty cache directories on every node; none = all of them."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.ClearOperation"

    paths: list[str] = []
    partitions: list[Int32] = []
    """Only these partitions do it (those that a scale-down removes); none = all of them."""


class RunState(WireModel):
    """The run as its master sees it. The master writes it at least every 5 s; after 15 s of silence any agent takes over."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.RunState"

    run_id: str = ""
    phase: RunPhase = RunPhase.UNSPECIFIED
    master: str = ""
    """Pod name of the agent that holds the master role."""
    term: Int32 = 0
    """Counts up with each take-over; chunk ids carry it not: listing is deterministic."""
    heartbeat: Timestamp | None = None
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    listed: Bool = False
    """The listing is complete: `partitions` totals are final."""
    totals: list[PartitionTotals] = []
    """Totals so far, by partition index."""
    files_done: Int64 = 0
    """Sums over all partitions' PartitionState."""
    bytes_done: Int64 = 0
    files_total: Int64 = 0
    bytes_total: Int64 = 0
    chunks_done: Int64 = 0
    chunks_total: Int64 = 0
    cached_percent: Double = 0.0
    """Warmup: percent of bytes that `juicefs warmup --check` found cached, 0 to 100."""
    reason: str = ""
    """CamelCase, when failed."""
    message: str = ""


class PartitionTotals(WireModel):
    """What the master listed for one partition."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.PartitionTotals"

    files: Int64 = 0
    bytes: Int64 = 0
    chunks: Int64 = 0


class PartitionState(WireModel):
    """What one agent has done of its partition of one run; written before each acknowledgement."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.PartitionState"

    partition: Int32 = 0
    agent: str = ""
    node: str = ""
    chunks: list[Int64] = []
    """Ids of finished chunks, ascending."""
    files: Int64 = 0
    bytes: Int64 = 0
    cached_bytes: Int64 = 0
    """Bytes that the check found cached (warmup only)."""
    files_failed: Int64 = 0
    """Files that could not be done after all tries, at most 20 named."""
    failed_examples: list[str] = []
    updated_at: Timestamp | None = None


class Chunk(WireModel):
    """One piece of work for one partition, on the wire zstd-compressed proto3 JSON. It lies in the work queue until the
    partition's agent has done every file of it, written that down in PartitionState, and acknowledged.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.Chunk"

    run_id: str = ""
    id: Int64 = 0
    """Unique within the run, the same when the listing is done again."""
    partition: Int32 = 0
    files: list[FileEntry] = []


class FileEntry(WireModel):
    """One file. `path` is relative to the set's root (sync: the object's key below the source prefix)."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.FileEntry"

    path: str = ""
    size: Int64 = 0


class NodeStatus(WireModel):
    """One agent's view of its node; refreshed every 10 s, expires after 60 s of silence."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.NodeStatus"

    set_uid: str = ""
    partition: Int32 = 0
    agent: str = ""
    node: str = ""
    mounted: Bool = False
    message: str = ""
    """Why not mounted, for a person."""
    cached_bytes: Int64 = 0
    disk_size: Int64 = 0
    disk_used: Int64 = 0
    disk_available: Int64 = 0
    total_bytes: Int64 = 0
    """Of the whole data set, as the file system counts it."""
    total_files: Int64 = 0
    updated_at: Timestamp | None = None


class RunStarted(WireModel):
    """An agent took the master role of the run and holds it. Told again, with another id, each time the role goes to
    another agent because the one before fell silent.
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


class RunProgressed(WireModel):
    """How far the run was at ce-time: the sums over all partitions, exact to the acknowledged chunk. Lossy by design: at
    most one a second for each run, none while nothing moves, none while the bus is away; the next one counts for all
    before it. Do not wait for the last: RunEnded has the final figures.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.RunProgressed"

    set_namespace: str = ""
    set_name: str = ""
    set_uid: str = ""
    run_id: str = ""
    operation: str = ""
    files_done: Int64 = 0
    bytes_done: Int64 = 0
    files_total: Int64 = 0
    """Zero until listed."""
    bytes_total: Int64 = 0
    listed: Bool = False
    eta_seconds: Double = 0.0
    """Seconds left at the present rate; 0 when unknown."""


class RunEnded(WireModel):
    """The run ended, well or badly; its master wrote, or is about to write, the same into RunState. Told once. Terminal for
    the run: chunks that are left are dropped.
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
    """What was done, also when not all of it was."""
    bytes: Int64 = 0
    cached_percent: Double = 0.0
    """Of a warmup: percent of the bytes that JuiceFS's own check found on the nodes, 0 to 100."""
    reason: str = ""
    """CamelCase, when failed."""
    message: str = ""
    """For a person; names files that failed, 20 at most."""


class NodeMounted(WireModel):
    """The partition's agent mounted the data set on its node and a look into it was answered. Lossy by design: told once
    for each change, not told when the bus is away at that moment; NodeStatus has the truth.
    """

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.NodeMounted"

    set_namespace: str = ""
    set_name: str = ""
    set_uid: str = ""
    partition: Int32 = 0
    node: str = ""


class NodeUnmounted(WireModel):
    """The partition's agent found its mount gone or dead; it mounts again by itself. Lossy by design, as NodeMounted."""

    proto_name: ClassVar[str] = "paddlewheel.cache.v1.NodeUnmounted"

    set_namespace: str = ""
    set_name: str = ""
    set_uid: str = ""
    partition: Int32 = 0
    node: str = ""
    message: str = ""
    """What was seen, for a person."""
