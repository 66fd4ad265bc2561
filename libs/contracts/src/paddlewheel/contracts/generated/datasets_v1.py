# Generated from protos/paddlewheel/datasets/v1/datasets.proto by `make gen`; do not edit.
"""Facts about SampleSets and SampleJobs.
Subjects: pw.evt.datasets.sampleset.<fact>.v1.<namespace>.<uid>, pw.evt.datasets.samplejob.<fact>.v1.<namespace>.<uid>

Facts of one object are published in the order in which they became true. None of them is lost: the object's status
keeps a fact with its content until the stream has stored it. After the loss of a stream, the facts that the status still
contains are published again under the same ids.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, Int32, Int64, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class CacheFigures(WireModel):
    """The size of the data set, and how much of it is cached on the nodes."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.CacheFigures"

    total_bytes: Int64 = 0
    """Size of the whole data set, as its file system reports it."""
    total_files: Int64 = 0
    """Number of files in the whole data set."""
    cached_bytes: Int64 = 0
    """Bytes cached on the nodes of all partitions together."""


class SampleSetBound(WireModel):
    """The set's volume and claim exist and are bound to each other; nothing is mounted yet. Published once."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetBound"

    sample_set: ObjectRef | None = None
    partitions: Int32 = 0
    """Desired number of runtime pods."""


class SampleSetMounted(WireModel):
    """At least one runtime pod is ready with the data set mounted, for the first time. Published once."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetMounted"

    sample_set: ObjectRef | None = None


class SampleSetSynced(WireModel):
    """All files of the source have been copied into the cache engine; nothing is cached on the nodes yet. Published once; not
    published with spec.noSync.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetSynced"

    sample_set: ObjectRef | None = None
    files: Int64 = 0
    """Number of copied files."""
    bytes: Int64 = 0
    """Number of copied bytes."""


class SampleSetSyncFailed(WireModel):
    """The copy from the source failed; the set waits until the source, the Secret or spec.noSync changes. Published once for
    each attempt.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetSyncFailed"

    sample_set: ObjectRef | None = None
    reason: str = ""
    """Why the copy failed, as one CamelCase word, e.g. FilesFailed."""
    message: str = ""
    """Explanation of the reason, with the names of at most 20 failed files."""


class SampleSetWarmed(WireModel):
    """The warmup in the set's own spec has succeeded: each node has cached as much of its partition as its cache can hold.
    Published once; not published without such a warmup, or if it was cancelled.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetWarmed"

    sample_set: ObjectRef | None = None
    files: Int64 = 0
    """Number of warmed files."""
    bytes: Int64 = 0
    """Number of warmed bytes."""
    cached_percent: Double = 0.0
    """Percentage of the bytes that JuiceFS's own check found on the nodes, from 0 to 100."""


class SampleSetReady(WireModel):
    """Every partition is mounted on its own node, the node is labelled, and the warmup in the set's spec, if any, has ended.
    Jobs that use the set may start. Published again after every SampleSetDegraded.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetReady"

    sample_set: ObjectRef | None = None
    partitions: Int32 = 0
    """Number of partitions. All of them are ready."""
    figures: CacheFigures | None = None


class SampleSetDegraded(WireModel):
    """A set that was ready has lost a partition, is being scaled, or is being warmed again. New jobs wait. Running jobs continue
    and read uncached data from the object store. Published each time, always after a SampleSetReady.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetDegraded"

    sample_set: ObjectRef | None = None
    reason: str = ""
    """Why the set is not ready, as one CamelCase word, e.g. PartitionsNotReady."""
    message: str = ""
    """Number of ready partitions, and what is wrong with the first one that is not ready."""


class SampleSetDeleted(WireModel):
    """The set has been removed: its caches are empty; its pods, claim and volume are deleted; the data in the object store
    stays. The finalizer waits until this fact is stored, at most 600 s while the bus is unreachable; then the fact is lost
    with the object. Terminal.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetDeleted"

    sample_set: ObjectRef | None = None


class SampleJobStarted(WireModel):
    """An agent of the data set has started the work. Published once for each run, always before the fact about the run's end,
    even if the start was only observed after the end.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleJobStarted"

    sample_job: ObjectRef | None = None
    sample_set: str = ""
    """Name of the SampleSet, in the namespace of the job."""
    type: str = ""
    """sync, warmup, rmr or clear."""
    run_id: str = ""
    """Id of the run, as in the facts of the cache: pw.evt.cache.run.*.v1.<namespace>.<uid of the set>."""


class SampleJobSucceeded(WireModel):
    """The work has succeeded for every file. Terminal: the job does not run again."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleJobSucceeded"

    sample_job: ObjectRef | None = None
    sample_set: str = ""
    type: str = ""
    run_id: str = ""
    files: Int64 = 0
    """Number of finished files."""
    bytes: Int64 = 0
    """Number of finished bytes."""
    cached_percent: Double = 0.0
    """For a warmup, percentage of the bytes that JuiceFS's own check found on the nodes, from 0 to 100."""


class SampleJobFailed(WireModel):
    """The work has failed, was cancelled, or its SampleSet was deleted. This run has ended. If the job's options are changed
    afterwards, it runs again with another run_id.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleJobFailed"

    sample_job: ObjectRef | None = None
    sample_set: str = ""
    type: str = ""
    run_id: str = ""
    reason: str = ""
    """Why the job has failed, as one CamelCase word: Cancelled, SampleSetNotFound, or a reason of the run, e.g. FilesFailed."""
    message: str = ""
    """Explanation of the reason, with the names of at most 20 failed files."""


class SampleJobDeleted(WireModel):
    """The job is being deleted: its run was cancelled, and the run's records are deleted. The finalizer waits until this fact
    is stored. If a user has deleted the job, it waits at most 600 s while the bus is unreachable; then the fact is lost with
    the object. Terminal.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleJobDeleted"

    sample_job: ObjectRef | None = None
    sample_set: str = ""
    type: str = ""
    run_id: str = ""
    """Id of the job's last run; "" if there was none."""
