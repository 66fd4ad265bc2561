# Generated from protos/paddlewheel/datasets/v1/datasets.proto by `make gen`; do not edit.
"""Facts about SampleSets and SampleJobs.
Subjects: pw.evt.datasets.sampleset.<fact>.v1.<namespace>.<uid>, pw.evt.datasets.samplejob.<fact>.v1.<namespace>.<uid>
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, Int32, Int64, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class CacheFigures(WireModel):
    """What the data set holds and how much of it lies on the nodes."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.CacheFigures"

    total_bytes: Int64 = 0
    total_files: Int64 = 0
    cached_bytes: Int64 = 0


class SampleSetBound(WireModel):
    """Volume and claim exist and are bound."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetBound"

    sample_set: ObjectRef | None = None
    partitions: Int32 = 0


class SampleSetMounted(WireModel):
    """At least one runtime pod has the data set mounted."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetMounted"

    sample_set: ObjectRef | None = None


class SampleSetSynced(WireModel):
    """The source was copied into the cache engine."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetSynced"

    sample_set: ObjectRef | None = None
    files: Int64 = 0
    bytes: Int64 = 0


class SampleSetSyncFailed(WireModel):
    """The copy from the source failed; the set waits for a changed spec or secret."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetSyncFailed"

    sample_set: ObjectRef | None = None
    reason: str = ""
    message: str = ""


class SampleSetWarmed(WireModel):
    """The warmup asked for in the set's own spec ended well."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetWarmed"

    sample_set: ObjectRef | None = None
    files: Int64 = 0
    bytes: Int64 = 0
    cached_percent: Double = 0.0
    """Percent of the bytes that JuiceFS's own check found on the nodes, 0 to 100."""


class SampleSetReady(WireModel):
    """Every partition is mounted, labelled and, where asked for, warmed: jobs may start."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetReady"

    sample_set: ObjectRef | None = None
    partitions: Int32 = 0
    figures: CacheFigures | None = None


class SampleSetDegraded(WireModel):
    """A ready set lost a partition or is being scaled; reads still work, slower."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetDegraded"

    sample_set: ObjectRef | None = None
    reason: str = ""
    message: str = ""


class SampleSetDeleted(WireModel):
    """The object is gone; remote data stays. Terminal."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleSetDeleted"

    sample_set: ObjectRef | None = None


class SampleJobStarted(WireModel):
    """The work was handed to the data set's runtime."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleJobStarted"

    sample_job: ObjectRef | None = None
    sample_set: str = ""
    type: str = ""
    """sync, warmup, rmr or clear."""
    run_id: str = ""


class SampleJobSucceeded(WireModel):
    """The work ended well. Terminal for this run."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleJobSucceeded"

    sample_job: ObjectRef | None = None
    sample_set: str = ""
    type: str = ""
    run_id: str = ""
    files: Int64 = 0
    bytes: Int64 = 0
    cached_percent: Double = 0.0


class SampleJobFailed(WireModel):
    """The work ended badly. Terminal for this run."""

    proto_name: ClassVar[str] = "paddlewheel.datasets.v1.SampleJobFailed"

    sample_job: ObjectRef | None = None
    sample_set: str = ""
    type: str = ""
    run_id: str = ""
    reason: str = ""
    message: str = ""
