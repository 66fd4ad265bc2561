# Generated from protos/paddlewheel/jobs/v1/jobs.proto by `make gen`; do not edit.
"""Facts about PaddleJobs. Subject: pw.evt.jobs.job.<fact>.v1.<namespace>.<uid>

Each fact is told at most once in a job's life, in the order in which they became true: accepted, then gated if the
job had to wait, starting, running, and one of succeeded and failed; deleted may follow any of them. A short job may
skip what nobody had time to see (running, or starting). Nothing here is lossy: a fact stands in the job's status
until the stream has stored it. Counts say what was so when the fact was told, which after an outage of the bus is
later than ce-time, when the fact became true.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, Int32, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class RoleCounts(WireModel):
    """How many pods of one role stand where."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.RoleCounts"

    wanted: Int32 = 0
    """The role's replicas in the job's spec."""
    pending: Int32 = 0
    """Created, not bound to a node yet, or its images are still to come."""
    starting: Int32 = 0
    """On a node, not ready yet."""
    running: Int32 = 0
    """Ready."""
    failed: Int32 = 0
    succeeded: Int32 = 0


class JobAccepted(WireModel):
    """The job was seen for the first time and its manifest makes sense; nothing was created for it yet. A job whose
    manifest makes no sense gets no fact: its condition Accepted=False names the fields.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobAccepted"

    job: ObjectRef | None = None
    mode: str = ""
    """PS, Collective or Single."""
    replicas: dict[str, Int32] = {}
    """Wanted pods by role (ps, worker, heter)."""


class JobGated(WireModel):
    """The job's pods are held back: none was created, nothing runs. Once the gate has opened it never shuts again, so a
    data set that degrades later gates no running job.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobGated"

    job: ObjectRef | None = None
    reason: str = ""
    """CamelCase: SampleSetNotFound, SampleSetNotReady or HostPortsExhausted."""
    message: str = ""
    """What is waited for, for a person."""
    sample_set: str = ""
    """Name of the job's SampleSet, "" when it names none."""


class JobStarting(WireModel):
    """The gate is open and every pod of every role exists in the API server; some may still wait for a node."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobStarting"

    job: ObjectRef | None = None
    replicas: dict[str, Int32] = {}
    """Wanted pods by role."""


class JobRunning(WireModel):
    """For the first time every pod of every role was ready (or, of some, had succeeded already). Pods that restart later
    do not repeat it.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobRunning"

    job: ObjectRef | None = None
    roles: dict[str, RoleCounts] = {}
    """By role (ps, worker, heter)."""


class JobSucceeded(WireModel):
    """The job ended well: every worker succeeded (of a job without workers, every pod). Terminal: no pod of it is ever
    created again; only its deletion can follow.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobSucceeded"

    job: ObjectRef | None = None
    roles: dict[str, RoleCounts] = {}
    """By role; servers may still run, they are removed as the clean-up policy says."""
    seconds: Double = 0.0
    """Seconds from start time to completion time."""
    results: dict[str, Double] = {}
    """Numbers the first worker left in its termination message (accuracy, loss, epochs ...)."""


class JobFailed(WireModel):
    """The job ended badly: a pod failed and its restart policy gives it no other try. Terminal: no pod of it is ever
    created again; only its deletion can follow.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobFailed"

    job: ObjectRef | None = None
    roles: dict[str, RoleCounts] = {}
    """By role."""
    reason: str = ""
    """CamelCase, e.g. PodFailed."""
    message: str = ""
    """Names the pod that failed first, its exit code and the last line it said."""


class JobDeleted(WireModel):
    """The object is being deleted; its pods go with it. The job's finalizer waits for this fact to be stored, 600 s at most
    while the bus is down (JOB_CONTROLLER_DELETION_PATIENCE); what waited longer is lost with the object. Terminal.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobDeleted"

    job: ObjectRef | None = None
