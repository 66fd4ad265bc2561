"""Which change of a pod may turn its job's phase: it is acted on at once, where mere counts may wait."""

from __future__ import annotations

from collections.abc import Iterable

from job_controller.domain import names
from job_controller.domain.model import PodState
from job_controller.domain.pods import Raw, pod_state

_AS_FAR = {
    PodState.RUNNING: {PodState.RUNNING, PodState.SUCCEEDED},
    PodState.SUCCEEDED: {PodState.SUCCEEDED},
}


def may_turn_phase(pod: Raw, siblings: Iterable[Raw]) -> bool:
    """True for a failed pod, and for the last of its role to run or to succeed.

    Args:
        siblings: the pods of the job as they are now; the pod itself may be among them.
    """
    state = pod_state(pod)
    if state is PodState.FAILED:
        return True
    as_far = _AS_FAR.get(state, set())
    role = _role(pod)
    return bool(as_far) and all(pod_state(other) in as_far for other in siblings if _role(other) == role)


def _role(pod: Raw) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.LABEL_TYPE, ""))
