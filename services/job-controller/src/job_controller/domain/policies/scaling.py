"""Which pods are missing and which are too many."""

from __future__ import annotations

from job_controller.domain.model import Job, Pod, PodId


def missing_pods(job: Job, pods: tuple[Pod, ...]) -> tuple[PodId, ...]:
    """Wanted and not there; a pod on its way out still holds its name."""
    there = {p.id for p in pods}
    return tuple(p for p in job.spec.pod_ids() if p not in there)


def surplus_pods(job: Job, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """There and no longer wanted."""
    wanted = set(job.spec.pod_ids())
    return tuple(p for p in pods if p.id not in wanted and not p.terminating)


def is_growth(job: Job, missing: tuple[PodId, ...]) -> bool:
    """True when a job that had all its pods before now wants more of them."""
    had = {role: len(status.refs) for role, status in job.status.roles.items()}
    return any(had.get(p.role) and p.index >= had[p.role] for p in missing)
