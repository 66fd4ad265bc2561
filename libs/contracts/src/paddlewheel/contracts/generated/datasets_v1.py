# Generated from protos/paddlewheel/datasets/v1/datasets.proto by `make gen`; do not edit.
"""Facts about SampleSets and SampleJobs.
Subjects: pw.evt.datasets.sampleset.<fact>.v1.<namespace>.<uid>, pw.evt.datasets.samplejob.<fact>.v1.<namespace>.<uid>

Facts of one object are published in the order in which they became true. Nothing here is lossy: a fact is kept in the
object's status, with its content, until the stream has stored it. After the loss of a stream the facts that the status
still holds are republished under their ids.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, Int32, Int64, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class CacheFigures(WireModel):
    """Size of the data set and how much of it is cached on the nodes."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.CacheFigures"

    total_bytes: Int64 = 0
    """Of the whole data set, as its file system reports it."""
    total_files: Int64 = 0
    cached_bytes: Int64 = 0
    """On the nodes, summed over the partitions."""


class SampleSetBound(WireModel):
    """The set's volume and claim exist and are bound to each other; nothing is mounted yet. Published once."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetBound"

    sample_set: ObjectRef | None = None
    partitions: Int32 = 0
    """Wanted runtime pods."""


class SampleSetMounted(WireModel):
    """At least one runtime pod is ready with the data set mounted, for the first time. Published once."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetMounted"

    sample_set: ObjectRef | None = None


class SampleSetSynced(WireModel):
    """Everything in the source has been copied into the cache engine; nothing is cached on the nodes yet. Published once, and
    not with spec.noSync.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetSynced"

    sample_set: ObjectRef | None = None
    files: Int64 = 0
    """What was copied."""
    bytes: Int64 = 0


class SampleSetSyncFailed(WireModel):
    """The copy from the source failed; the set waits until the source, the Secret or spec.noSync changes. Published once for
    each attempt.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetSyncFailed"

    sample_set: ObjectRef | None = None
    reason: str = ""
    """CamelCase, e.g. FilesFailed."""
    message: str = ""
    """Names files that failed, at most 20."""


class SampleSetWarmed(WireModel):
    """The warmup in the set's own spec succeeded: each node has cached of its partition what its cache can hold. Published
    once; not published without such a warmup, nor when it was cancelled.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetWarmed"

    sample_set: ObjectRef | None = None
    files: Int64 = 0
    """What was warmed."""
    bytes: Int64 = 0
    cached_percent: Double = 0.0
    """Percent of the bytes that JuiceFS's own check found on the nodes, 0 to 100."""


class SampleSetReady(WireModel):
    """Every partition is mounted on a node of its own, that node has its label, and the warmup in the set's spec, if any,
    has ended: jobs may start. Published again after every SampleSetDegraded.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetReady"

    sample_set: ObjectRef | None = None
    partitions: Int32 = 0
    """All of them are ready."""
    figures: CacheFigures | None = None


class SampleSetDegraded(WireModel):
    """A ready set lost a partition, is being scaled or is warmed anew. New jobs wait; running ones continue and read from the object store
    what is not cached. Published each time, always after a SampleSetReady.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetDegraded"

    sample_set: ObjectRef | None = None
    reason: str = ""
    """CamelCase, e.g. PartitionsNotReady."""
    message: str = ""
    """How many partitions are ready, and what is wrong with the first that is not."""


class SampleSetDeleted(WireModel):
    """The set has been removed: caches emptied, pods, claim and volume deleted; the data in the object store stays. The
    object is released once this fact is stored, or after 600 s without the bus, when the fact is lost with it. Terminal.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetDeleted"

    sample_set: ObjectRef | None = None


class SampleJobStarted(WireModel):
    """An agent of the data set's runtime has started the work. Published once for each run, always before the run's end,
    even if the run had ended before its start was observed.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleJobStarted"

    sample_job: ObjectRef | None = None
    sample_set: str = ""
    """Name of the SampleSet, in the namespace of the job."""
    type: str = ""
    """sync, warmup, rmr or clear."""
    run_id: str = ""
    """The run in the facts of the cache: pw.evt.cache.run.*.v1.<namespace>.<uid of the set>."""


class SampleJobSucceeded(WireModel):
    """The work succeeded for every file. Terminal: the job does not run again."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleJobSucceeded"

    sample_job: ObjectRef | None = None
    sample_set: str = ""
    type: str = ""
    run_id: str = ""
    files: Int64 = 0
    """What was done."""
    bytes: Int64 = 0
    cached_percent: Double = 0.0
    """Of a warmup: percent of the bytes that JuiceFS's own check found on the nodes, 0 to 100."""


class SampleJobFailed(WireModel):
    """The work failed, was cancelled, or its SampleSet does not exist any more. The end of this run; a job whose options are
    changed afterwards runs again under another run_id.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleJobFailed"

    sample_job: ObjectRef | None = None
    sample_set: str = ""
    type: str = ""
    run_id: str = ""
    reason: str = ""
    """CamelCase: the runtime's reason (e.g. FilesFailed), Cancelled or SampleSetNotFound."""
    message: str = ""
    """Names files that failed, at most 20."""


class SampleJobDeleted(WireModel):
    """The job is being deleted: a run in progress was cancelled, and its records are deleted. The object is released once
    this fact is stored. If a user has deleted the job, it waits at most 600 s for the bus; after that the fact is lost with
    the object. Terminal.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleJobDeleted"

    sample_job: ObjectRef | None = None
    sample_set: str = ""
    type: str = ""
    run_id: str = ""
    """The job's last run, "" when there was none."""
