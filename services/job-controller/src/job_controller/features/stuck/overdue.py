"""Deleted pods that do not go, as on a lost node: they hold their names, so nothing can take their places."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from job_controller.core.model import Observed
from job_controller.core.pods import Pod


def overdue_pod(seen: Observed, now: datetime) -> Pod | None:
    """The first pod that should be gone and holds a name that is needed."""
    return next((pod for pod, due in _leaving(seen) if due <= now), None)


def overdue_times(seen: Observed) -> Iterator[datetime]:
    """When each pod is overdue: only time would wake the job then."""
    return (due for _, due in _leaving(seen))


def overdue_message(pod: Pod) -> str:
    """Why the pod is still there, and what to do."""
    return f"pod {pod.name} was deleted and should be gone since {pod.ends_by}, {_why(pod)}"


def _why(pod: Pod) -> str:
    if pod.finalizers:
        held = ", ".join(pod.finalizers)
        return f"but has the finalizers {held}, which their owners have to remove"
    if not pod.node:
        return "but is still there"
    return (
        f"but node {pod.node} does not confirm its end; if the node is lost for good, delete the Node or"
        " taint it with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    )


def _leaving(seen: Observed) -> Iterator[tuple[Pod, datetime]]:
    """Deleted pods that hold names that are needed, and when each is overdue."""
    for pod in (*seen.pods, *seen.old_pods, *seen.former_pods):
        is_needed = seen.job.trains(pod.id) and pod.id not in seen.succeeded
        if is_needed and (due := pod.overdue_at):
            yield pod, due
