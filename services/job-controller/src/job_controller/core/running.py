"""The condition `Running`: why a job runs, or does not run yet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from job_controller.core import names
from job_controller.core.gate import Gate
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus, RoleStatus
from job_controller.core.losses import in_place_message
from job_controller.core.model import Observed
from job_controller.core.pods import Pod, PodState
from paddlewheel.contracts.conditions import Condition, find
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import seconds_stamp
from paddlewheel.operator.domain.hindrance import Hindrance
from paddlewheel.operator.domain.plan import shorten


def restarting_message(status: JobStatus, begins: datetime | None) -> str:
    """The message of a job between two epochs. `begins`: when the next epoch may begin."""
    last = status.last_restart
    why = f": {last.message}" if last else ""
    if begins is not None:
        return shorten(f"epoch {status.epoch} begins at {seconds_stamp(begins)}{why}")
    return shorten(f"epoch {status.epoch} begins when the pods of the former one are gone{why}")


def count_running(roles: Mapping[str, RoleStatus]) -> int:
    """The number of pods that run and are ready."""
    return sum(role.count(PodState.RUNNING) for role in roles.values())


_FORMER = "objects of the deleted job of this name still exist; pods are created when they are gone"
_NOT_RUNNING = {
    names.PENDING: Reason.PODS_PENDING,
    names.STARTING: Reason.PODS_STARTING,
    names.RESTARTING: Reason.RESTARTING,
    names.COMPLETED: Reason.COMPLETED,
    names.FAILED: Reason.POD_FAILED,
}


def running_condition(
    seen: Observed, status: JobStatus, gate: Gate, now: datetime, *, begins: datetime | None
) -> Condition:
    """The condition `Running`. `begins`: when the next missing pods may be made."""
    if not gate.is_open:
        return Condition(names.CONDITION_RUNNING, "False", gate.reason)
    if status.phase == names.RUNNING:
        said = (feature.running_message(seen) for feature in seen.features)
        message = in_place_message(seen) or next(filter(None, said), "")
        return Condition(names.CONDITION_RUNNING, "True", Reason.ALL_PODS_RUNNING, message)
    if status.final:
        return Condition(names.CONDITION_RUNNING, "False", _NOT_RUNNING[status.phase])
    return Condition(names.CONDITION_RUNNING, "False", *_why_waiting(seen, status, now, begins))


def _why_waiting(
    seen: Observed, status: JobStatus, now: datetime, begins: datetime | None
) -> tuple[Reason, str]:
    """Reason and message; first what keeps pods from being created at all."""
    found = (feature.why_waiting(seen, status, now) for feature in seen.features)
    if why := next(filter(None, found), None):
        return why
    if seen.waits_for_former:
        return Reason.FORMER_JOB_ENDING, _FORMER
    if status.phase == names.RESTARTING:
        return Reason.RESTARTING, restarting_message(status, begins)
    hindered = hindered_pod(seen)
    if hindered is None or hindered.hindrance is None:
        return _why_not_all(seen, status, begins)
    return hindered.hindrance.reason, _hindrance_message(seen.job, hindered.name, hindered.hindrance)


def _why_not_all(seen: Observed, status: JobStatus, begins: datetime | None) -> tuple[Reason, str]:
    """Nothing hinders the present pods. Pods that take the places of others may have to wait."""
    progress = _progress(seen.job, status)
    if begins is None:
        return _NOT_RUNNING[status.phase], progress
    delay = next((d for d in seen.delays.values() if d.until == begins), None)
    last = delay.why if delay else status.last_restart.message if status.last_restart else ""
    why = f": {last}" if last else ""
    return Reason.RESTARTING, shorten(f"{progress}; others are made at {seconds_stamp(begins)}{why}")


def hindered_pod(seen: Observed) -> Pod | None:
    """The first hindered pod of the pods that train together. A pod that keeps all others from running comes
    before it."""
    found = (pod for feature in seen.features if (pod := feature.hindrance(seen)))
    return next(found, next((pod for pod in seen.world_pods if pod.hindrance), None))


def _hindrance_message(job: Job, pod: str, hindrance: Hindrance) -> str:
    before = find(job.status.conditions, names.CONDITION_RUNNING)
    if before is not None and _says_the_same(before, job, pod, hindrance):
        return before.message
    if hindrance.reason is Reason.GANG_UNSCHEDULABLE:
        return shorten(hindrance.message)
    return shorten(f"pod {pod}: {hindrance.message}".removesuffix(": "))


def _progress(job: Job, status: JobStatus) -> str:
    return f"{count_running(status.roles)} of {len(job.pod_ids)} pods are running and ready"


def _says_the_same(before: Condition, job: Job, pod: str, hindrance: Hindrance) -> bool:
    """The scheduler counts nodes in its words, which change with every other pod and node."""
    if hindrance.reason != before.reason or before.observed_generation != job.generation:
        return False
    if hindrance.reason is Reason.GANG_UNSCHEDULABLE:
        return before.message.partition(":")[0] == hindrance.message.partition(":")[0]
    return hindrance.reason is Reason.UNSCHEDULABLE and before.message.startswith(f"pod {pod}: ")
