"""The job's phase: a function of the current pods, whatever was observed before."""

from __future__ import annotations

from collections.abc import Mapping

from job_controller.core import names
from job_controller.core.model import RoleStatus
from job_controller.core.pods import PodState
from paddlewheel.contracts.crds import WORKER


def decide_phase(wanted: Mapping[str, int], roles: Mapping[str, RoleStatus]) -> str:
    """Completed, Running, Starting or Pending. Whether the job has failed is decided in `verdict`.

    Args:
        wanted: pods by role.
        roles: of the same roles, the pods that there are.
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
