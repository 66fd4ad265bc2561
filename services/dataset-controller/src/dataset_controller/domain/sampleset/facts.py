"""The facts of a SampleSet: one table. A new fact is a message in `protos/` and a row here."""

from __future__ import annotations

from dataclasses import dataclass

from dataset_controller.domain.names import Cond, SetPhase
from dataset_controller.domain.sampleset.figures import count_of, measure
from dataset_controller.domain.sampleset.model import ObservedSet, SetStatus
from dataset_controller.domain.sampleset.policies.warmth import was_warmed
from paddlewheel.contracts.generated.cache_v1 import RunState
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import (
    SampleSetBound,
    SampleSetDegraded,
    SampleSetDeleted,
    SampleSetMounted,
    SampleSetReady,
    SampleSetSynced,
    SampleSetSyncFailed,
    SampleSetWarmed,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.facts import Fact, FactTable


@dataclass(frozen=True)
class Case:
    """A set and the status that is or will be recorded.

    A phase is reached once per change of the recorded phase, however often the pass is repeated: phase and
    facts are recorded by the same write.

    Args:
        is_removed: all children are gone and the set is about to go.
    """

    seen: ObservedSet
    status: SetStatus
    is_removed: bool = False

    def reached(self, phase: SetPhase, *, after: SetPhase | None = None) -> bool:
        """This status is the first in the phase."""
        before = self.seen.status.phase
        return self.status.phase is phase and before is not phase and after in (None, before)

    @property
    def is_synced(self) -> bool:
        """By a run, not because no sync is needed."""
        synced = self.status.condition(Cond.SYNCED)
        return synced is not None and synced.status == "True" and synced.reason != Reason.NOT_NEEDED

    @property
    def is_warmed(self) -> bool:
        """The set's own warmup has succeeded, whatever the caches hold of it."""
        return was_warmed(self.status)

    @property
    def partitions(self) -> int:
        return int(self.status.runtime.get("specReplicas", 0))

    def run(self, run_id: str) -> RunState:
        """The run's state; when the bus has lost it, the figures of the set as it is now."""
        if found := self.seen.runs.get(run_id):
            return found
        figures = measure(self.seen.reports)
        if not figures.total_files:
            return RunState(files_done=count_of(self.status.cache.get("totalFiles", "")))
        cached = 100.0 * figures.cached_bytes / figures.total_bytes if figures.total_bytes else 100.0
        return RunState(
            files_done=figures.total_files, bytes_done=figures.total_bytes, cached_percent=min(100.0, cached)
        )

    def why(self, type_: str) -> tuple[str, str]:
        """Reason and message of the condition."""
        found = self.status.condition(type_)
        return (found.reason, found.message) if found else ("", "")


def _bound(case: Case, ref: ObjectRef) -> SampleSetBound:
    return SampleSetBound(sample_set=ref, partitions=case.partitions)


def _mounted(_: Case, ref: ObjectRef) -> SampleSetMounted:
    return SampleSetMounted(sample_set=ref)


def _synced(case: Case, ref: ObjectRef) -> SampleSetSynced:
    run = case.run(case.status.sync_job)
    return SampleSetSynced(sample_set=ref, files=run.files_done, bytes=run.bytes_done)


def _sync_failed(case: Case, ref: ObjectRef) -> SampleSetSyncFailed:
    reason, message = case.why(Cond.SYNCED)
    return SampleSetSyncFailed(sample_set=ref, reason=reason, message=message)


def _warmed(case: Case, ref: ObjectRef) -> SampleSetWarmed:
    run = case.run(case.status.warmup_job)
    return SampleSetWarmed(
        sample_set=ref, files=run.files_done, bytes=run.bytes_done, cached_percent=run.cached_percent
    )


def _ready(case: Case, ref: ObjectRef) -> SampleSetReady:
    partitions = case.partitions
    figures = measure([r for r in case.seen.reports if r.partition < partitions])
    return SampleSetReady(sample_set=ref, partitions=partitions, figures=figures)


def _degraded(case: Case, ref: ObjectRef) -> SampleSetDegraded:
    reason, message = case.why(Cond.READY)
    return SampleSetDegraded(sample_set=ref, reason=reason, message=message)


def _deleted(_: Case, ref: ObjectRef) -> SampleSetDeleted:
    return SampleSetDeleted(sample_set=ref)


FACTS: FactTable[Case] = FactTable(
    Fact(SampleSetSynced, lambda c: c.is_synced, _synced),
    Fact(SampleSetWarmed, lambda c: c.is_warmed, _warmed),
    Fact(SampleSetBound, lambda c: c.reached(SetPhase.BOUND), _bound),
    Fact(SampleSetMounted, lambda c: c.reached(SetPhase.MOUNT), _mounted),
    Fact(
        SampleSetSyncFailed,
        lambda c: c.reached(SetPhase.SYNC_FAILED),
        _sync_failed,
        attempt=lambda c: c.status.attempt(SampleSetSyncFailed) + 1,
    ),
    # The first Ready is 0, the one after the first Degraded is 1.
    Fact(
        SampleSetReady,
        lambda c: c.reached(SetPhase.READY),
        _ready,
        attempt=lambda c: c.status.attempt(SampleSetDegraded) + 1,
    ),
    Fact(
        SampleSetDegraded,
        lambda c: c.reached(SetPhase.PARTIAL_READY, after=SetPhase.READY),
        _degraded,
        attempt=lambda c: max(c.status.attempt(SampleSetReady), 0),
    ),
    Fact(SampleSetDeleted, lambda c: c.is_removed, _deleted),
)
