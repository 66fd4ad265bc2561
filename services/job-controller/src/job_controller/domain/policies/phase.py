"""The job's phase: a function of the current pods, whatever was observed before."""

from __future__ import annotations

from collections.abc import Mapping

from job_controller.domain import names
from job_controller.domain.model import Job, Role, RoleStatus
from job_controller.domain.pods import PodState
from paddlewheel.contracts.crds import WORKER


def decide_phase(job: Job, roles: Mapping[str, RoleStatus]) -> str:
    """Completed, Failed, Running, Starting or Pending."""
    active = [r for r in job.roles if r.replicas > 0]
    if _has_succeeded(active, roles):
        return names.COMPLETED
    if _total(roles, PodState.FAILED):
        return names.FAILED
    if all(_is_running(r, roles[r.name]) for r in active):
        return names.RUNNING
    return names.STARTING if _total(roles, PodState.STARTING) else names.PENDING


def _has_succeeded(active: list[Role], roles: Mapping[str, RoleStatus]) -> bool:
    """A job ends with its workers, since servers may wait forever; without workers, with all its pods."""
    deciding = [r for r in active if r.name == WORKER] or active
    return all(roles[r.name].count(PodState.SUCCEEDED) == r.replicas for r in deciding)


def _is_running(role: Role, status: RoleStatus) -> bool:
    """Some workers may have finished while others still train."""
    return status.count(PodState.RUNNING) + status.count(PodState.SUCCEEDED) == role.replicas


def _total(roles: Mapping[str, RoleStatus], state: PodState) -> int:
    return sum(r.count(state) for r in roles.values())
