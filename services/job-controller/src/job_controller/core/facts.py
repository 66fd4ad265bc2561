"""The job's facts: one table. A new fact is a message in `protos/` and a row here."""

from __future__ import annotations

from dataclasses import dataclass

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus, RoleStatus
from job_controller.core.pods import PodState
from job_controller.core.results import published_digest, why_unpublished
from paddlewheel.contracts.conditions import find, is_true
from paddlewheel.contracts.crds.paddlejob import OutputModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import (
    JobAccepted,
    JobDeleted,
    JobFailed,
    JobGated,
    JobRestarted,
    JobResumed,
    JobRunning,
    JobStarting,
    JobStuck,
    JobSucceeded,
    JobSuspended,
    RoleCounts,
)
from paddlewheel.contracts.generated.models_v1 import ModelPublished
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.facts import Fact, FactTable

_STUCK_BY = (
    names.CONDITION_ADMITTED,
    names.CONDITION_RUNNING,
    names.CONDITION_STALLED,
    names.CONDITION_GATE_UNANSWERED,
)
REPORTED = "Reported"
"""The program reported that it saved the model, and no other program has read the files."""
_UID = 8
"""Characters of a job's uid that are its model's version."""


@dataclass(frozen=True)
class Case:
    """A job and the status that is or will be recorded."""

    job: Job
    status: JobStatus

    @property
    def is_accepted(self) -> bool:
        return is_true(self.status.conditions, names.CONDITION_ACCEPTED)

    @property
    def is_live(self) -> bool:
        """It was accepted and is not being deleted."""
        return self.is_accepted and self.status.phase != names.TERMINATING

    @property
    def was_accepted(self) -> bool:
        """Once, though its spec may be wrong by now; and it is not being deleted."""
        return self.status.was_accepted and self.status.phase != names.TERMINATING

    @property
    def has_saved_model(self) -> bool:
        """The program reported that it saved the model at the place in the spec."""
        return self.job.spec.output_model is not None and not why_unpublished(self.job, self.status)

    @property
    def is_admitted(self) -> bool:
        return is_true(self.status.conditions, names.CONDITION_ADMITTED)

    @property
    def is_suspended(self) -> bool:
        return is_true(self.status.conditions, names.CONDITION_SUSPENDED)

    @property
    def is_resumed(self) -> bool:
        return self.status.suspensions > 0 and not self.is_suspended

    @property
    def has_all_pods(self) -> bool:
        return self.status.phase != names.RESTARTING and sum(
            len(r.refs) for r in self.status.roles.values()
        ) >= len(self.job.world)


def _accepted(case: Case, ref: ObjectRef) -> JobAccepted:
    return JobAccepted(job=ref, mode=case.status.mode, replicas=_replicas(case))


def _gated(case: Case, ref: ObjectRef) -> JobGated:
    """When published after the gate has opened, it still names the data set."""
    held = find(case.status.conditions, names.CONDITION_ADMITTED)
    is_held = held is not None and held.status == "False"
    sample_set = case.job.sample_set
    return JobGated(
        job=ref,
        reason=held.reason if held and is_held else Reason.SAMPLE_SET_NOT_READY,
        message=held.message if held and is_held else "",
        sample_set=sample_set.name if sample_set else "",
    )


def _starting(case: Case, ref: ObjectRef) -> JobStarting:
    return JobStarting(job=ref, replicas=_replicas(case), epoch=case.status.epoch)


def _restarted(case: Case, ref: ObjectRef) -> JobRestarted:
    last, status = case.status.last_restart, case.status
    return JobRestarted(
        job=ref,
        reason=last.reason if last else "",
        message=last.message if last else "",
        epoch=status.epoch,
        restarts=dict(status.restarts),
    )


def _suspended(_: Case, ref: ObjectRef) -> JobSuspended:
    return JobSuspended(job=ref)


def _resumed(_: Case, ref: ObjectRef) -> JobResumed:
    return JobResumed(job=ref)


def _stuck(case: Case, ref: ObjectRef) -> JobStuck:
    cause = next(reversed(case.status.stuck_on), "")
    held = (find(case.status.conditions, t) for t in _STUCK_BY)
    said = next((c.message for c in held if c and c.reason == cause), "")
    return JobStuck(job=ref, reason=cause, message=said)


def _running(case: Case, ref: ObjectRef) -> JobRunning:
    return JobRunning(job=ref, roles=_role_counts(case), epoch=case.status.epoch)


def _succeeded(case: Case, ref: ObjectRef) -> JobSucceeded:
    return JobSucceeded(
        job=ref,
        roles=_role_counts(case),
        seconds=case.status.seconds or 0.0,
        results=dict(case.status.results),
    )


def _failed(case: Case, ref: ObjectRef) -> JobFailed:
    why = find(case.status.conditions, names.CONDITION_FAILED)
    return JobFailed(
        job=ref,
        roles=_role_counts(case),
        reason=why.reason if why else "",
        message=why.message if why else "",
    )


def _published(case: Case, ref: ObjectRef) -> ModelPublished:
    job, model = case.job, case.job.spec.output_model or OutputModel()
    return ModelPublished(
        source=ref,
        name=model.name or job.key.name,
        version=str(model.version or job.uid[:_UID]),
        digest=published_digest(model, case.status.saved_model),
        evidence=REPORTED,
        uri=model.uri,
        metrics=dict(case.status.results),
        sample_set=job.sample_set.name if job.sample_set else "",
    )


def _deleted(_: Case, ref: ObjectRef) -> JobDeleted:
    return JobDeleted(job=ref)


def _epoch(case: Case) -> int:
    return case.status.epoch


def _suspension(case: Case) -> int:
    return case.status.suspensions - 1


FACTS: FactTable[Case] = FactTable(
    Fact(JobAccepted, lambda c: c.is_accepted, _accepted),
    Fact(JobSuspended, lambda c: c.is_live and c.is_suspended, _suspended, attempt=_suspension),
    Fact(JobResumed, lambda c: c.is_live and c.is_resumed, _resumed, attempt=_suspension),
    Fact(JobGated, lambda c: c.is_live and not c.is_admitted and not c.is_suspended, _gated),
    Fact(
        JobRestarted,
        lambda c: c.was_accepted and bool(c.status.restarts),
        _restarted,
        attempt=lambda c: sum(c.status.restarts.values()) - 1,
    ),
    Fact(JobStarting, lambda c: c.is_live and c.is_admitted and c.has_all_pods, _starting, attempt=_epoch),
    Fact(
        JobStuck,
        lambda c: c.is_live and bool(c.status.stuck_on),
        _stuck,
        attempt=lambda c: len(c.status.stuck_on) - 1,
    ),
    Fact(JobRunning, lambda c: c.is_live and c.status.phase == names.RUNNING, _running, attempt=_epoch),
    Fact(JobSucceeded, lambda c: c.status.phase == names.COMPLETED, _succeeded),
    Fact(ModelPublished, lambda c: c.status.phase == names.COMPLETED and c.has_saved_model, _published),
    Fact(JobFailed, lambda c: c.status.phase == names.FAILED, _failed),
    Fact(JobDeleted, lambda c: c.status.phase == names.TERMINATING, _deleted),
)


def _replicas(case: Case) -> dict[str, int]:
    return {r.name: r.replicas for r in case.job.roles}


def _role_counts(case: Case) -> dict[str, RoleCounts]:
    roles = case.status.roles
    return {r.name: _counts(r.replicas, roles.get(r.name, RoleStatus())) for r in case.job.roles}


def _counts(wanted: int, role: RoleStatus) -> RoleCounts:
    return RoleCounts(
        wanted=wanted,
        pending=role.count(PodState.PENDING),
        starting=role.count(PodState.STARTING),
        running=role.count(PodState.RUNNING),
        failed=role.count(PodState.FAILED),
        succeeded=role.count(PodState.SUCCEEDED),
    )
