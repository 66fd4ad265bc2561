"""Containers that kubelets restart in place, because the template has a `restartPolicy` of its own.

The pods of such a job do not fail, so its failure rules never apply. The restarts are counted instead.
"""

from __future__ import annotations

from job_controller.domain.model import Observed


def in_place_message(seen: Observed) -> str:
    """How often, and in which pod most; "" for no restart."""
    counts = {pod.name: pod.restarts for pod in seen.world_pods if pod.restarts}
    if not counts:
        return ""
    most = max(counts, key=lambda name: counts[name])
    total = _times(sum(counts.values()))
    return f"kubelets restarted containers {total} in place, those of pod {most} {_times(counts[most])}"


def is_beyond_limit(seen: Observed) -> bool:
    """Restarts in place and those of pods count together. Elastic pods are restarted in place by design."""
    job, count = seen.job, sum(pod.restarts for pod in seen.world_pods)
    limit = job.spec.backoff_limit
    if limit is None or job.elastic or not count:
        return False
    return count + job.status.budgets.get("backoffLimit", 0) > limit


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
