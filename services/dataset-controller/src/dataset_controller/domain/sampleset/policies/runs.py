"""How far a run that the set started itself has come, for the policies that depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from dataset_controller.domain.actions import CancelRun, RecordAction, WriteRun
from dataset_controller.domain.sampleset.model import ObservedSet, SyncOrigin
from paddlewheel.contracts.generated.cache_v1 import RunSpec, RunState
from paddlewheel.contracts.reasons import Reason


class Stage(StrEnum):
    """How far a piece of work has come."""

    NOT_NEEDED = "NotNeeded"
    BLOCKED = "Blocked"
    """Wanted, but it cannot start yet."""
    DUE = "Due"
    """To be started: its id is recorded in the status first, its record is written to the bus next."""
    RUNNING = "Running"
    DONE = "Done"
    FAILED = "Failed"


@dataclass(frozen=True)
class RunDecision:
    """One decision about one of the set's own runs.

    Args:
        run_id: of a run that is due.
        state: of a run that an agent has taken up.
        cause: why it is begun again, although such a run has ended before.
        series: of a warmup that is due.
        digest: of what a warmup that is due, or done, was asked for.
        origin: of a sync that is due.
    """

    stage: Stage
    run_id: str = ""
    actions: tuple[RecordAction, ...] = ()
    state: RunState | None = None
    wake_after: float | None = None
    cause: str = ""
    series: int = 0
    digest: str = ""
    origin: SyncOrigin = field(default_factory=SyncOrigin)

    @property
    def is_again(self) -> bool:
        """Such a run has ended before, and another begins or has to."""
        return bool(self.cause)

    @property
    def is_over(self) -> bool:
        """There is nothing to wait for."""
        return self.stage in (Stage.NOT_NEEDED, Stage.DONE)

    @property
    def why(self) -> tuple[str, str]:
        """Reason and message of a failed run."""
        state = self.state or RunState()
        return state.reason or Reason.RUN_FAILED, state.message or "the runtime gave no message"

    def waits_for(self, otherwise: str) -> tuple[str, str]:
        """Reason and message of a run that goes on; `otherwise`: the reason when it waits for nothing."""
        state = self.state or RunState()
        return state.reason or otherwise, state.message


@dataclass(frozen=True)
class OwnRuns:
    """Both of the set's own runs."""

    sync: RunDecision
    warmup: RunDecision

    def __iter__(self) -> Iterator[RunDecision]:
        return iter((self.sync, self.warmup))


def cancels_of(seen: ObservedSet, run_id: str) -> tuple[CancelRun, ...]:
    """A SampleJob with `spec.terminate` ends the run: in each pass, for the bus may have lost the cancel, or
    the run's record when the job asked for it."""
    return (CancelRun(seen.sample_set.run_key(run_id)),) if run_id in seen.cancelled_runs else ()


def requested(seen: ObservedSet, record: RunSpec) -> tuple[RecordAction, ...]:
    """The record of a run that goes on, which the bus may have lost; its cancel is there before it."""
    return (*cancels_of(seen, record.run_id), WriteRun(record))
