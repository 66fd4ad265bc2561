# Generated from protos/paddlewheel/datasets/v1/datasets.proto by `make gen`; do not edit.
"""Facts about SampleSets and SampleJobs.
Subjects: pw.evt.datasets.sampleset.<fact>.v1.<namespace>.<uid>, pw.evt.datasets.samplejob.<fact>.v1.<namespace>.<uid>

Facts of one object come in the order in which they became true. Nothing here is lossy: a fact stands in the object's
status until the stream has stored it. Figures say what was so when the fact was told, which after an outage of the
bus is later than ce-time, when the fact became true. When the bus has lost a run's records, they say what the status
and the nodes still tell of it. After a loss of the stream all facts are told again, with their ids.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, Int32, Int64, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class CacheFigures(WireModel):
    """What the data set holds and how much of it lies on the nodes."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.CacheFigures"

    total_bytes: Int64 = 0
    """Of the whole data set, as its file system counts it."""
    total_files: Int64 = 0
    cached_bytes: Int64 = 0
    """On the nodes, summed over the partitions."""


class SampleSetBound(WireModel):
    """The set's volume and claim exist and are bound to each other; nothing is mounted yet. Told once."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetBound"

    sample_set: ObjectRef | None = None
    partitions: Int32 = 0
    """Runtime pods asked for when the fact was told."""


class SampleSetMounted(WireModel):
    """For the first time at least one runtime pod had the data set mounted and was ready. Told once."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetMounted"

    sample_set: ObjectRef | None = None


class SampleSetSynced(WireModel):
    """Everything in the source was copied into the cache engine; nothing is warm yet. Told once; not told with spec.noSync."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetSynced"

    sample_set: ObjectRef | None = None
    files: Int64 = 0
    """What the copy brought."""
    bytes: Int64 = 0


class SampleSetSyncFailed(WireModel):
    """The copy from the source failed; the set waits for a changed source, Secret or spec.noSync. Told once for each try."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetSyncFailed"

    sample_set: ObjectRef | None = None
    reason: str = ""
    """CamelCase, e.g. FilesFailed."""
    message: str = ""
    """Names files that failed, 20 at most."""


class SampleSetWarmed(WireModel):
    """The warmup asked for in the set's own spec ended well: each node holds its partition. Told once; not told without such
    a warmup, nor when it was cancelled.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetWarmed"

    sample_set: ObjectRef | None = None
    files: Int64 = 0
    """What was warmed."""
    bytes: Int64 = 0
    cached_percent: Double = 0.0
    """Percent of the bytes that JuiceFS's own check found on the nodes, 0 to 100."""


class SampleSetReady(WireModel):
    """Every partition is mounted on a node of its own, that node carries its label, and the set's own warmup, where asked
    for, is over: jobs may start. Told again each time after a SampleSetDegraded.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetReady"

    sample_set: ObjectRef | None = None
    partitions: Int32 = 0
    """All of them ready."""
    figures: CacheFigures | None = None


class SampleSetDegraded(WireModel):
    """A ready set lost a partition or is being scaled. New jobs wait; running ones go on, and read what is not cached from
    the object store. Told each time, always after a SampleSetReady.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetDegraded"

    sample_set: ObjectRef | None = None
    reason: str = ""
    """CamelCase, e.g. PartitionsNotReady."""
    message: str = ""
    """How many partitions are ready, and what is wrong with the first that is not."""


class SampleSetDeleted(WireModel):
    """The set is taken down: caches emptied, pods, claim and volume gone; the data in the object store stays. The object
    goes once this fact is stored, or after 600 s without the bus; what waited longer is lost with it. Terminal.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetDeleted"

    sample_set: ObjectRef | None = None


class SampleJobStarted(WireModel):
    """An agent of the data set's runtime took up the work. Told once for each run; always before the run's end, also when
    the run was over before anybody saw it begin.
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
    """The work ended well, every file of it. Terminal: the job never runs again."""

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
    """The work ended badly, was cancelled, or its SampleSet is gone. The end of this run; a job whose options are changed
    afterwards runs again under another run_id.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleJobFailed"

    sample_job: ObjectRef | None = None
    sample_set: str = ""
    type: str = ""
    run_id: str = ""
    reason: str = ""
    """CamelCase: the runtime's word (e.g. FilesFailed), Cancelled or ErrorSampleSetNotExist."""
    message: str = ""
    """Names files that failed, 20 at most."""


class SampleJobDeleted(WireModel):
    """The job is being deleted: what it still ran was cancelled, and its run's records are gone. The object goes once this
    fact is stored, or after 600 s without the bus; what waited longer is lost with it. Terminal.
    """

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleJobDeleted"

    sample_job: ObjectRef | None = None
    sample_set: str = ""
    type: str = ""
    run_id: str = ""
    """The job's last run, "" when there was none."""
