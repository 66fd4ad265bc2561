# Generated from protos/paddlewheel/jobs/v1/jobs.proto by `make gen`; do not edit.
"""Facts about PaddleJobs. Subject: pw.evt.jobs.job.<fact>.v1.<namespace>.<uid>"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, Int32, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class RoleCounts(WireModel):
    """How many pods of one role stand where."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.RoleCounts"

    wanted: Int32 = 0
    pending: Int32 = 0
    starting: Int32 = 0
    running: Int32 = 0
    failed: Int32 = 0
    succeeded: Int32 = 0


class JobAccepted(WireModel):
    """The job was seen for the first time and its manifest makes sense."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobAccepted"

    job: ObjectRef | None = None
    mode: str = ""
    """PS, Collective or Single."""
    replicas: dict[str, Int32] = {}
    """Wanted pods by role (ps, worker, heter)."""


class JobGated(WireModel):
    """The job's pods are held back; nothing of it runs yet."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobGated"

    job: ObjectRef | None = None
    reason: str = ""
    """CamelCase, e.g. SampleSetNotReady."""
    message: str = ""
    sample_set: str = ""
    """The SampleSet waited for, when that is the reason."""


class JobStarting(WireModel):
    """Every pod of the job exists in the API server."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobStarting"

    job: ObjectRef | None = None
    replicas: dict[str, Int32] = {}


class JobRunning(WireModel):
    """Every pod of every role runs and is ready."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobRunning"

    job: ObjectRef | None = None
    roles: dict[str, RoleCounts] = {}


class JobSucceeded(WireModel):
    """The job ended well. Terminal."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobSucceeded"

    job: ObjectRef | None = None
    roles: dict[str, RoleCounts] = {}
    seconds: Double = 0.0
    """Seconds from start time to completion time."""
    results: dict[str, Double] = {}
    """Numbers the first worker left in its termination message (accuracy, loss, epochs ...)."""


class JobFailed(WireModel):
    """The job ended badly. Terminal."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobFailed"

    job: ObjectRef | None = None
    roles: dict[str, RoleCounts] = {}
    reason: str = ""
    """CamelCase."""
    message: str = ""
    """Names the pod, its exit code and the last line it said."""


class JobDeleted(WireModel):
    """The object is gone from the API server or being deleted. Terminal."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobDeleted"

    job: ObjectRef | None = None
