# Generated from protos/paddlewheel/jobs/v1/jobs.proto by `make gen`; do not edit.
"""Facts about PaddleJobs. Subject: pw.evt.jobs.job.<fact>.v1.<namespace>.<uid>

The facts of a job are published in the order in which they became true: accepted, then gated if the job had to wait,
starting, running, and one of succeeded and failed. Starting and running are published once per epoch: restarted begins
a new one, and so does suspended with the resumed that follows it. Stuck may come at any time before the end, once per
cause, and deleted may follow any of them. All others are published at most once in a job's life. A short job may skip
states that were never observed (running, or starting). Nothing here is lossy: a fact is kept in the job's status, with its
content, until the stream has stored it.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, Int32, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class RoleCounts(WireModel):
    """Pods of one role by state."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.RoleCounts"

    wanted: Int32 = 0
    """The role's replicas in the job's spec."""
    pending: Int32 = 0
    """Created, but not bound to a node yet or still pulling images."""
    starting: Int32 = 0
    """On a node, not ready yet."""
    running: Int32 = 0
    """Ready."""
    failed: Int32 = 0
    succeeded: Int32 = 0


class JobAccepted(WireModel):
    """The job was observed for the first time and its manifest is valid; nothing has been created for it yet. A job with an
    invalid manifest has no such fact: its condition Accepted=False names the fields.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobAccepted"

    job: ObjectRef | None = None
    mode: str = ""
    """PS, Collective or Single."""
    replicas: dict[str, Int32] = {}
    """Wanted pods by role (ps, worker, heter)."""


class JobGated(WireModel):
    """The job's pods are held back: none has been created, nothing runs. The gate of the data set does not close again once it has
    opened, so a set that degrades later does not affect a running job.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobGated"

    job: ObjectRef | None = None
    reason: str = ""
    """CamelCase: ScaledToZero, SampleSetNotFound, SampleSetNotReady, SampleSetFailed, SampleSetUnreadable,
    HostPortsExhausted, GangTooLarge or GangNotEnqueued.
    """
    message: str = ""
    """What the job waits for, human-readable."""
    sample_set: str = ""
    """Name of the job's SampleSet, "" when it names none."""


class JobStarting(WireModel):
    """The gate is open and every pod of every role exists in the API server; some may still wait for a node."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobStarting"

    job: ObjectRef | None = None
    replicas: dict[str, Int32] = {}
    """Wanted pods by role."""
    epoch: Int32 = 0
    """How often all pods were made anew before; 0 is the first epoch."""


class JobStuck(WireModel):
    """The job will not run, or not go on, before somebody mends the cause: an image that cannot be pulled, a request that fits
    on no node, a container that ends again and again, a data set that has failed, a program that has reported progress and
    does so no more. Published once per cause, whichever pod and however often; what often passes, such as a lack of room, is
    a cause once the pod is 30 s old.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobStuck"

    job: ObjectRef | None = None
    reason: str = ""
    """CamelCase: ImagePullBackOff, InvalidImageName, Unschedulable, CreateContainerConfigError, ContainerCannotStart,
    CrashLoopBackOff, GangUnschedulable, GangTooLarge, NoProgress or SampleSetFailed.
    """
    message: str = ""
    """Names the pod or the data set and what it waits for."""


class JobRunning(WireModel):
    """All pods of all roles are ready, or have already succeeded, for the first time in an epoch."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobRunning"

    job: ObjectRef | None = None
    roles: dict[str, RoleCounts] = {}
    """By role (ps, worker, heter)."""
    epoch: Int32 = 0
    """How often all pods were made anew before; 0 is the first epoch."""


class JobRestarted(WireModel):
    """Pods are made anew, from the last checkpoint if the program keeps any: all of them together as a new epoch, or the one
    that failed. Published once per restart, when it is decided.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobRestarted"

    job: ObjectRef | None = None
    reason: str = ""
    """PodFailed, OOMKilled, Evicted, Preempted, NodeLost, MountLost, RejectedByNode or PodDeleted; Ignored: a rule says not to count
    the failure; Suspended, Scaled, TemplateChanged or RestartRequested: the user's change; Resized: there is
    room for another number of workers.
    """
    message: str = ""
    """Names the pod, its exit code and its last line of output, or the change."""
    epoch: Int32 = 0
    """Number of the epoch that begins; that of the present one when a single pod is replaced."""
    restarts: dict[str, Int32] = {}
    """Restarts so far by reason, this one included."""


class JobSuspended(WireModel):
    """spec.suspend was set: the job has no pods, or gives them up. Published once per suspension."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobSuspended"

    job: ObjectRef | None = None


class JobResumed(WireModel):
    """spec.suspend was removed: the job goes on as soon as its gates allow it. Published once per suspension."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobResumed"

    job: ObjectRef | None = None


class JobSucceeded(WireModel):
    """The job completed: every worker succeeded (in a job without workers, every pod). Terminal: none of its pods is
    created again; only its deletion can follow.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobSucceeded"

    job: ObjectRef | None = None
    roles: dict[str, RoleCounts] = {}
    """By role; parameter servers may still run, the clean-up policy decides about them."""
    seconds: Double = 0.0
    """Seconds from start time to completion time."""
    results: dict[str, Double] = {}
    """Numbers from the termination message of the first worker (accuracy, loss, epochs ...)."""


class JobFailed(WireModel):
    """The job failed: a pod failed and no rule restarts it, or the deadline is over. Terminal: none of the job's pods is created
    again; only its deletion can follow.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobFailed"

    job: ObjectRef | None = None
    roles: dict[str, RoleCounts] = {}
    """By role."""
    reason: str = ""
    """CamelCase: the cause of the failure that was not restarted (PodFailed, OOMKilled, Evicted ...), BackoffLimitExceeded,
    FailureRule or DeadlineExceeded.
    """
    message: str = ""
    """Names the pod that failed first, its exit code and its last line of output."""


class JobDeleted(WireModel):
    """The object is being deleted, and its pods with it. The job's finalizer waits until this fact is stored. If a user has
    deleted the job, it waits at most 600 s for the bus (JOB_CONTROLLER_DELETION_PATIENCE); after that the fact is lost with
    the object. Terminal.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobDeleted"

    job: ObjectRef | None = None
