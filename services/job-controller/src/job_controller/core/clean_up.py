"""The choice of the pods and Services of a finished job that are deleted."""

from __future__ import annotations

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.model import Observed
from job_controller.core.pods import Pod
from paddlewheel.contracts.conditions import find
from paddlewheel.contracts.reasons import Reason

_DELETED_AT = {
    "": {names.COMPLETED},
    "Always": {names.COMPLETED, names.FAILED},
    "OnFailure": {names.FAILED},
    "OnCompletion": {names.COMPLETED},
    "Never": set[str](),
}


def deletes_children(policy: str, phase: str) -> bool:
    """The contract's clean-up table; any other word means Never."""
    return phase in _DELETED_AT.get(policy, set())


def pods_to_delete(seen: Observed) -> tuple[Pod, ...]:
    """All pods, or the pods that still run. The end of a job frees resources unless its policy is Never."""
    job = seen.job
    there = [pod for pod in (*seen.pods, *seen.old_pods) if not pod.terminating]
    if deletes_children(job.spec.clean_pod_policy, job.status.phase):
        return tuple(there)
    return tuple(pod for pod in there if pod.holds_node) if _ends_pods(job) else ()


def _ends_pods(job: Job) -> bool:
    """A deadline ends pods under every policy."""
    failed = find(job.status.conditions, names.CONDITION_FAILED)
    is_over_deadline = failed is not None and failed.reason == Reason.DEADLINE_EXCEEDED
    keeps_all = job.spec.clean_pod_policy not in _DELETED_AT or job.spec.clean_pod_policy == "Never"
    return is_over_deadline or not keeps_all
