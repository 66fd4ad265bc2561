"""Kubernetes Events about a job, which `kubectl describe` shows. Each is created once."""

from __future__ import annotations

from job_controller.core import names
from job_controller.core.gate import Gate
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus
from job_controller.core.phase import is_growth
from job_controller.core.pods import Pod, PodId
from job_controller.core.verdict import Restart
from paddlewheel.contracts.conditions import find
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import KubernetesEvent

_BY_THE_USER = (
    Reason.SAMPLE_SET_NOT_READY,
    Reason.SUSPENDED,
    Reason.SCALED_TO_ZERO,
    Reason.GANG_NOT_ENQUEUED,
    Reason.WAITING_IN_QUEUE,
    Reason.FORMER_JOB_ENDING,
)
"""Reasons of a closed gate that are no fault."""


def gate_events(job: Job, gate: Gate) -> tuple[KubernetesEvent, ...]:
    """The job's pods are held back, for a reason that is new."""
    before = find(job.status.conditions, names.CONDITION_ADMITTED)
    if before is not None and before.reason == gate.reason:
        return ()
    if gate.reason in _BY_THE_USER:
        return (KubernetesEvent("Normal", gate.reason, gate.message),)
    return (KubernetesEvent("Warning", gate.reason, gate.message),)


def restart_event(why: Restart) -> KubernetesEvent:
    """Pods are replaced. The Event is a warning unless a change by the user is the cause."""
    lost = "the lost pod is" if len(why.only) == 1 else f"{len(why.only)} lost pods are"
    what = f"{lost} replaced" if why.only else "all pods are replaced"
    return KubernetesEvent(
        "Warning" if why.is_failure else "Normal", Reason.RESTARTED, f"{what}: {why.message}"
    )


def expiry_event(job: Job) -> KubernetesEvent:
    """The job is deleted some time after its end."""
    seconds = job.spec.ttl_seconds_after_finished
    return KubernetesEvent("Normal", Reason.TTL_EXPIRED, f"deleted {seconds} s after its end")


def refusal_events(job: Job) -> tuple[KubernetesEvent, ...]:
    """A spec that can never work, once per generation."""
    if job.status.observed_generation == job.generation:
        return ()
    return (KubernetesEvent("Warning", Reason.INVALID_SPEC, "; ".join(job.problems)),)


def end_event(status: JobStatus) -> KubernetesEvent:
    """The job has ended."""
    failed = find(status.conditions, names.CONDITION_FAILED)
    complete = find(status.conditions, names.CONDITION_COMPLETE)
    why = failed or (complete if complete and complete.message else None)
    if why is None:
        return KubernetesEvent("Normal", Reason.COMPLETED, "the job has succeeded")
    return KubernetesEvent("Warning", why.reason, why.message)


def scale_events(
    job: Job, missing: tuple[PodId, ...], surplus: tuple[Pod, ...]
) -> tuple[KubernetesEvent, ...]:
    """Pods are created or deleted because another number of them is wanted."""
    events = []
    if is_growth(job, missing):
        events.append(KubernetesEvent("Normal", Reason.SCALED, f"created {_pods(len(missing))}"))
    if surplus:
        events.append(KubernetesEvent("Normal", Reason.SCALED, f"deleted {_pods(len(surplus))}"))
    return tuple(events)


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
