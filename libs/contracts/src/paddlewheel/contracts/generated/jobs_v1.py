# Generated from protos/paddlewheel/jobs/v1/jobs.proto by `make gen`; do not edit.
"""Facts about PaddleJobs. Subject: pw.evt.jobs.job.<fact>.v1.<namespace>.<uid>

The facts of a job are published in the order in which they became true: accepted; gated if the job has to wait; starting;
running; and succeeded or failed.

Starting and running are published once per epoch. An epoch begins with restarted, or with resumed after suspended. Stuck
is published at any time before the end, once for each cause. Deleted may follow any other fact. All others are published
at most once for a job. A short job may skip running, or starting and running, if they were never observed.

None of the facts is lost: the job's status keeps a fact with its content until the stream has stored it.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, Int32, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class RoleCounts(WireModel):
    """The number of pods of one role in each state."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.RoleCounts"

    wanted: Int32 = 0
    """Desired number of pods: the role's replicas in the spec."""
    pending: Int32 = 0
    """Number of pods that are not on a node yet, or still pull images."""
    starting: Int32 = 0
    """Number of pods that run and are not ready yet."""
    running: Int32 = 0
    """Number of pods that are ready."""
    failed: Int32 = 0
    succeeded: Int32 = 0


class JobAccepted(WireModel):
    """The job was observed for the first time, and its manifest is valid. Nothing has been created for it yet. Not published for
    a job with an invalid manifest: its condition Accepted=False names the fields.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobAccepted"

    job: ObjectRef | None = None
    mode: str = ""
    """Mode of the training: PS, Collective or Single."""
    replicas: dict[str, Int32] = {}
    """Desired number of pods by role (ps, worker, heter)."""


class JobGated(WireModel):
    """The job waits, and none of its pods has been created. A SampleSet that has become ready no longer holds the job back, so
    a set that degrades later does not affect a running job.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobGated"

    job: ObjectRef | None = None
    reason: str = ""
    """Why the job waits, as one CamelCase word: ScaledToZero, SampleSetNotFound, SampleSetNotReady, SampleSetFailed,
    SampleSetUnreadable, HostPortsExhausted, GangTooLarge or GangNotEnqueued.
    """
    message: str = ""
    """Explanation of the reason."""
    sample_set: str = ""
    """Name of the job's SampleSet; "" if it has none."""


class JobStarting(WireModel):
    """The job no longer waits, and all pods of all roles exist. Some of them may still wait for a node."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobStarting"

    job: ObjectRef | None = None
    replicas: dict[str, Int32] = {}
    """Desired number of pods by role."""
    epoch: Int32 = 0
    """Number of times that all pods were replaced together before; 0 in the first epoch."""


class JobStuck(WireModel):
    """The job cannot start or continue until someone fixes the cause: an image that cannot be pulled, a request that fits on no
    node, a container that fails repeatedly, a data set that has failed, or a program that no longer reports progress.
    Published once for each cause. A cause that often passes by itself, such as too little room, is reported only when the
    pod is 30 s old.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobStuck"

    job: ObjectRef | None = None
    reason: str = ""
    """The cause, as one CamelCase word: ImagePullBackOff, InvalidImageName, Unschedulable, CreateContainerConfigError,
    ContainerCannotStart, CrashLoopBackOff, GangUnschedulable, GangTooLarge, NoProgress or SampleSetFailed.
    """
    message: str = ""
    """The pod or the data set, and what it waits for."""


class JobRunning(WireModel):
    """All pods of all roles are ready, or have already succeeded, for the first time in an epoch."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobRunning"

    job: ObjectRef | None = None
    roles: dict[str, RoleCounts] = {}
    """Pods by role (ps, worker, heter)."""
    epoch: Int32 = 0
    """Number of times that all pods were replaced together before; 0 in the first epoch."""


class JobRestarted(WireModel):
    """Pods are replaced: all of them together as a new epoch, or only the one that failed. The program continues from its last
    checkpoint, if it keeps any. Published once for each restart, when it is decided.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobRestarted"

    job: ObjectRef | None = None
    reason: str = ""
    """The cause, as one CamelCase word. A failure: PodFailed, OOMKilled, Evicted, Preempted, NodeLost, MountLost,
    RejectedByNode or PodDeleted; Ignored if a rule does not count it. A change by the user: Suspended, Scaled,
    TemplateChanged or RestartRequested. Resized: there is room for another number of workers.
    """
    message: str = ""
    """The pod, its exit code and its last line of output, or the change."""
    epoch: Int32 = 0
    """Number of the epoch that begins, or of the present epoch if a single pod is replaced."""
    restarts: dict[str, Int32] = {}
    """Number of restarts so far by reason, including this one."""


class JobSuspended(WireModel):
    """spec.suspend was set. The job's pods are deleted, if it has any. Published once for each suspension."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobSuspended"

    job: ObjectRef | None = None


class JobResumed(WireModel):
    """spec.suspend was removed. The job continues as soon as it has nothing to wait for. Published once for each suspension."""

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobResumed"

    job: ObjectRef | None = None


class JobSucceeded(WireModel):
    """The job has completed: every worker has succeeded, or every pod in a job without workers. Terminal: no pod is created
    again, and only the job's deletion can follow.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobSucceeded"

    job: ObjectRef | None = None
    roles: dict[str, RoleCounts] = {}
    """Pods by role. Parameter servers may still run; the clean-up policy applies to them."""
    seconds: Double = 0.0
    """Seconds from start time to completion time."""
    results: dict[str, Double] = {}
    """Numbers from the termination message of the first worker, e.g. accuracy, loss and epochs."""


class JobFailed(WireModel):
    """The job has failed: a pod has failed and is not restarted, or the deadline has passed. Terminal: no pod is created again,
    and only the job's deletion can follow.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobFailed"

    job: ObjectRef | None = None
    roles: dict[str, RoleCounts] = {}
    """Pods by role."""
    reason: str = ""
    """Why the job has failed, as one CamelCase word: the cause of the last failure (PodFailed, OOMKilled, Evicted ...),
    BackoffLimitExceeded, FailureRule or DeadlineExceeded.
    """
    message: str = ""
    """The pod that failed first, its exit code and its last line of output."""


class JobDeleted(WireModel):
    """The job is being deleted, and its pods with it. The finalizer waits until this fact is stored. If a user has deleted the
    job, it waits at most 600 s while the bus is unreachable (JOB_CONTROLLER_DELETION_PATIENCE); then the fact is lost with
    the object. Terminal.
    """

    proto_name: ClassVar[str] = "paddlewheel.jobs.v1.JobDeleted"

    job: ObjectRef | None = None
