"""The phase of a job, and the pods that are missing or too many: functions of the present pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.job_status import RoleStatus
from job_controller.core.model import Observed
from job_controller.core.pods import Pod, PodId, PodState
from paddlewheel.contracts.crds import WORKER, Network


def decide_phase(wanted: Mapping[str, int], roles: Mapping[str, RoleStatus]) -> str:
    """Completed, Running, Starting or Pending. Whether the job has failed is decided in `verdict`.

    Args:
        wanted: pods by role.
        roles: the present pods of the same roles.
    """
    active = {role: pods for role, pods in wanted.items() if pods > 0}
    if not active:
        # Scaled to nothing: what has not begun or was given up has not succeeded.
        return names.PENDING
    if _has_succeeded(active, roles):
        return names.COMPLETED
    if all(_is_running(pods, roles[role]) for role, pods in active.items()):
        return names.RUNNING
    return names.STARTING if _total(roles, PodState.STARTING) else names.PENDING


def _has_succeeded(active: Mapping[str, int], roles: Mapping[str, RoleStatus]) -> bool:
    """A job ends with its workers, since servers may wait forever; without workers, with all its pods."""
    deciding = {WORKER: active[WORKER]} if WORKER in active else active
    return all(roles[role].count(PodState.SUCCEEDED) == pods for role, pods in deciding.items())


def _is_running(pods: int, status: RoleStatus) -> bool:
    """Some workers may have finished while others still train."""
    return status.count(PodState.RUNNING) + status.count(PodState.SUCCEEDED) == pods


def _total(roles: Mapping[str, RoleStatus], state: PodState) -> int:
    return sum(r.count(state) for r in roles.values())


def missing_pods(seen: Observed) -> tuple[PodId, ...]:
    """Wanted and not there; a terminating pod still holds its name. What has succeeded is not run again."""
    return tuple(p for p in seen.job.pod_ids if p not in seen.by_id and p not in seen.succeeded)


def needs_config_name(seen: Observed) -> bool:
    """The job's first pods are about to be made, and its ConfigMap only once they have addresses."""
    job = seen.job
    comes_later = job.network is not Network.SERVICE and not job.elastic and seen.config is None
    has_begun = seen.pods or seen.old_pods or job.status.epoch > 0
    return comes_later and not has_begun and not job.spec.suspend and bool(missing_pods(seen))


def service_names(job: Job) -> tuple[str, ...]:
    """Names of the pods that are addressed by name. Other pods need no Service."""
    ids = job.pod_ids if job.network is Network.SERVICE else ()
    return tuple(map(job.pod_name, ids))


def surplus_pods(seen: Observed) -> tuple[Pod, ...]:
    """There and no longer wanted."""
    return tuple(p for p in seen.pods if p.id not in seen.job.wanted and not p.terminating)


def is_scaled_to_nothing(job: Job) -> bool:
    """Every role of the spec has replicas 0."""
    return bool(job.roles) and all(role.replicas == 0 for role in job.roles)


def is_growth(job: Job, missing: Iterable[PodId]) -> bool:
    """True when a job that had all its pods before now wants more of them."""
    had = {role: len(status.refs) for role, status in job.status.roles.items()}
    return any(had.get(p.role) and p.ordinal >= had[p.role] for p in missing)
