"""Which pods are missing and which are too many."""

from __future__ import annotations

from collections.abc import Iterable

from job_controller.core.model import Job, Observed
from job_controller.core.pods import Pod, PodId
from paddlewheel.contracts.crds import Network


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
    """Of the pods that are addressed by name; the others need no Service."""
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
