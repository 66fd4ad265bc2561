"""Containers that kubelets restart in place, because the template has a `restartPolicy` of its own.

The pods of such a job do not fail, so its failure rules never apply. The restarts are counted instead, and
stay counted when the pods are replaced.
"""

from __future__ import annotations

from collections.abc import Collection

from job_controller.core.model import Job, Observed
from job_controller.core.pods import Pod


def in_place_message(seen: Observed) -> str:
    """How often, and in which pod most; "" for no restart."""
    counts = {pod.name: pod.restarts for pod in _ranks(seen) if pod.restarts}
    if not counts:
        return ""
    most = max(counts, key=lambda name: counts[name])
    total = _times(sum(counts.values()))
    return f"kubelets restarted containers {total} in place, those of pod {most} {_times(counts[most])}"


def is_beyond_limit(seen: Observed) -> bool:
    """Restarts in place and those of pods count together."""
    limit, count = _limit(seen.job), sum(pod.restarts for pod in _ranks(seen))
    if limit is None or not count:
        return False
    return count + seen.status.budgets.get("backoffLimit", 0) > limit


def restarts_given_up(seen: Observed, only: Collection[str]) -> int:
    """Restarts in place of the pods that are replaced now: all, or those with these uids."""
    if _limit(seen.job) is None:
        return 0
    return sum(pod.restarts for pod in _ranks(seen) if not only or pod.uid in only)


def _limit(job: Job) -> int | None:
    """Elastic pods are restarted in place by design."""
    return None if job.elastic else job.spec.backoff_limit


def _ranks(seen: Observed) -> list[Pod]:
    return [pod for pod in seen.known_pods if seen.job.trains(pod.id)]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
