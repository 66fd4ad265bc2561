"""A change of a pod that may change its job's phase is handled at once. Mere counts may wait."""

from __future__ import annotations

from collections.abc import Mapping

from job_controller.core.pods import PodState


def may_change_phase(state: PodState, role: Mapping[PodState, int]) -> bool:
    """True for a failed pod, and for the last of its role to run or to succeed.

    Args:
        state: the state of the pod that has changed.
        role: number of pods of its role by state, the pod included.
    """
    match state:
        case PodState.FAILED:
            return True
        case PodState.RUNNING:
            return all_run(role)
        case PodState.SUCCEEDED:
            return role.get(PodState.SUCCEEDED, 0) == sum(role.values())
    return False


def all_run(role: Mapping[PodState, int]) -> bool:
    """Every pod of a role runs or has succeeded."""
    return role.get(PodState.RUNNING, 0) + role.get(PodState.SUCCEEDED, 0) == sum(role.values())
