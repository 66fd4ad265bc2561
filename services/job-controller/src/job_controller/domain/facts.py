"""The job's facts as contract models, built from what its status says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from job_controller.domain import names
from job_controller.domain.model import Job, JobStatus, PodState, RoleStatus
from paddlewheel.contracts.announcements import Announcement
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import (
    JobAccepted,
    JobDeleted,
    JobFailed,
    JobGated,
    JobRunning,
    JobStarting,
    JobSucceeded,
    RoleCounts,
)


def render_fact(job: Job, status: JobStatus, fact: Announcement) -> WireModel:
    """Body of one announced fact."""
    return _BUILDERS[fact.fact](job, status)


def is_fact(name: str) -> bool:
    """False for what another version announced and this one does not know."""
    return name in _BUILDERS


def _ref(job: Job) -> ObjectRef:
    return ObjectRef(
        namespace=job.key.namespace,
        name=job.key.name,
        uid=job.uid,
        generation=job.generation,
        resource_version=job.resource_version,
    )


def _replicas(job: Job) -> dict[str, int]:
    return {r.role: r.replicas for r in job.spec.roles}


def _role_counts(job: Job, status: JobStatus) -> dict[str, RoleCounts]:
    return {r.role: _counts(r.replicas, status.roles.get(r.role, RoleStatus())) for r in job.spec.roles}


def _counts(wanted: int, role: RoleStatus) -> RoleCounts:
    return RoleCounts(
        wanted=wanted,
        pending=role.count(PodState.PENDING),
        starting=role.count(PodState.STARTING),
        running=role.count(PodState.RUNNING),
        failed=role.count(PodState.FAILED),
        succeeded=role.count(PodState.SUCCEEDED),
    )


def _accepted(job: Job, status: JobStatus) -> WireModel:
    return JobAccepted(job=_ref(job), mode=status.mode, replicas=_replicas(job))


def _gated(job: Job, status: JobStatus) -> WireModel:
    """Told late, after the gate has opened, it still tells what was waited for."""
    held = next(
        (c for c in status.conditions if c.type == names.CONDITION_ADMITTED and c.status == "False"), None
    )
    return JobGated(
        job=_ref(job),
        reason=held.reason if held else "SampleSetNotReady",
        message=held.message if held else "",
        sample_set=job.spec.sample_set.name if job.spec.sample_set else "",
    )


def _starting(job: Job, _: JobStatus) -> WireModel:
    return JobStarting(job=_ref(job), replicas=_replicas(job))


def _running(job: Job, status: JobStatus) -> WireModel:
    return JobRunning(job=_ref(job), roles=_role_counts(job, status))


def _succeeded(job: Job, status: JobStatus) -> WireModel:
    return JobSucceeded(
        job=_ref(job),
        roles=_role_counts(job, status),
        seconds=_seconds(status),
        results=dict(status.results),
    )


def _seconds(status: JobStatus) -> float:
    if not status.start_time or not status.completion_time:
        return 0.0
    started, ended = (datetime.fromisoformat(t) for t in (status.start_time, status.completion_time))
    return max(0.0, (ended - started).total_seconds())


def _failed(job: Job, status: JobStatus) -> WireModel:
    why = next((c for c in status.conditions if c.type == names.CONDITION_FAILED), None)
    return JobFailed(
        job=_ref(job),
        roles=_role_counts(job, status),
        reason=why.reason if why else "",
        message=why.message if why else "",
    )


def _deleted(job: Job, _: JobStatus) -> WireModel:
    return JobDeleted(job=_ref(job))


_BUILDERS: Mapping[str, Callable[[Job, JobStatus], WireModel]] = {
    names.JOB_ACCEPTED: _accepted,
    names.JOB_GATED: _gated,
    names.JOB_STARTING: _starting,
    names.JOB_RUNNING: _running,
    names.JOB_SUCCEEDED: _succeeded,
    names.JOB_FAILED: _failed,
    names.JOB_DELETED: _deleted,
}
