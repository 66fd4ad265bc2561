"""The facts of a SampleJob: one table. A new fact is a message in `protos/` and a row here."""

from __future__ import annotations

from dataclasses import dataclass

from dataset_controller.domain.names import Cond, JobPhase
from dataset_controller.domain.samplejob.model import JobStatus, ObservedJob
from paddlewheel.contracts.generated.cache_v1 import RunState
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import (
    SampleJobDeleted,
    SampleJobFailed,
    SampleJobStarted,
    SampleJobSucceeded,
)
from paddlewheel.operator.domain.facts import Fact, FactTable

_TAKEN = (JobPhase.RUNNING, JobPhase.SUCCEEDED, JobPhase.FAILED)


@dataclass(frozen=True)
class Case:
    """A job and the status that is or will be recorded.

    Args:
        is_released: its run has ended and its records are removed.
    """

    seen: ObservedJob
    status: JobStatus
    is_released: bool = False

    @property
    def attempt(self) -> int:
        """Number of the present run. Counts failures recorded before this status, so that a new run never has
        the id of an old one."""
        failed = self.status.attempt(SampleJobFailed)
        return max(failed, 0) if self.seen.status.phase is JobPhase.FAILED else failed + 1

    @property
    def is_taken(self) -> bool:
        """The runtime has started the run, or it ended without."""
        return self.status.phase in _TAKEN

    @property
    def state(self) -> RunState:
        """Of the run; when the bus has lost it, as far as the status has recorded it."""
        if found := self.seen.runs.get(self.status.run_id):
            return found
        progress = self.status.progress
        return RunState(
            files_done=int(progress.get("filesDone", 0)),
            bytes_done=int(progress.get("bytesDone", 0)),
            cached_percent=float(progress.get("cachedPercent", 0)),
        )


def _started(case: Case, ref: ObjectRef) -> SampleJobStarted:
    job = case.seen.job
    return SampleJobStarted(sample_job=ref, sample_set=job.set_name, type=job.type, run_id=case.status.run_id)


def _succeeded(case: Case, ref: ObjectRef) -> SampleJobSucceeded:
    job, state = case.seen.job, case.state
    return SampleJobSucceeded(
        sample_job=ref,
        sample_set=job.set_name,
        type=job.type,
        run_id=case.status.run_id,
        files=state.files_done,
        bytes=state.bytes_done,
        cached_percent=state.cached_percent,
    )


def _failed(case: Case, ref: ObjectRef) -> SampleJobFailed:
    job, why = case.seen.job, case.status.condition(Cond.COMPLETE)
    return SampleJobFailed(
        sample_job=ref,
        sample_set=job.set_name,
        type=job.type,
        run_id=case.status.run_id,
        reason=why.reason if why else "",
        message=why.message if why else "",
    )


def _deleted(case: Case, ref: ObjectRef) -> SampleJobDeleted:
    job = case.seen.job
    return SampleJobDeleted(sample_job=ref, sample_set=job.set_name, type=job.type, run_id=case.status.run_id)


FACTS: FactTable[Case] = FactTable(
    Fact(SampleJobStarted, lambda c: c.is_taken, _started, attempt=lambda c: c.attempt),
    Fact(
        SampleJobSucceeded,
        lambda c: c.status.phase is JobPhase.SUCCEEDED,
        _succeeded,
        attempt=lambda c: c.attempt,
    ),
    Fact(SampleJobFailed, lambda c: c.status.phase is JobPhase.FAILED, _failed, attempt=lambda c: c.attempt),
    Fact(SampleJobDeleted, lambda c: c.is_released, _deleted),
)
