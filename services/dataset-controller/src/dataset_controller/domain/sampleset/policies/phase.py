"""The contract's path of phases, one step at a time, so that each phase can be observed."""

from __future__ import annotations

from dataset_controller.domain.names import SetPhase
from dataset_controller.domain.sampleset.policies.runs import OwnRuns, RunDecision, Stage
from dataset_controller.domain.sampleset.runtime import Runtime


def next_phase(phase: SetPhase, runtime: Runtime, partitions: int, runs: OwnRuns) -> SetPhase:
    """The phase to record. No decision depends on the phase alone: all look at the observed state again."""
    complete = runtime.is_complete(partitions)
    match phase:
        case SetPhase.NOT_BOUND:
            return SetPhase.BOUND if runtime.bound else phase
        case SetPhase.BOUND:
            return SetPhase.MOUNT if runtime.mounted else phase
        case SetPhase.MOUNT:
            return _after_mount(runtime, runs.sync)
        case SetPhase.SYNCING:
            return _after_sync(runs.sync)
        case SetPhase.SYNC_FAILED:
            return phase if runs.sync.stage in (Stage.FAILED, Stage.BLOCKED) else SetPhase.MOUNT
        case SetPhase.PARTIAL_READY:
            return SetPhase.READY if complete and runs.warmup.is_over else phase
        case SetPhase.READY:
            return phase if complete and not runs.warmup.is_again else SetPhase.PARTIAL_READY


def _after_mount(runtime: Runtime, sync: RunDecision) -> SetPhase:
    if sync.stage is Stage.DUE:
        return SetPhase.SYNCING if runtime.mounted else SetPhase.MOUNT
    if sync.stage is Stage.FAILED:
        return SetPhase.SYNC_FAILED
    return SetPhase.PARTIAL_READY if sync.is_over and _has_figures(runtime, sync) else SetPhase.MOUNT


def _after_sync(sync: RunDecision) -> SetPhase:
    if sync.stage is Stage.RUNNING:
        return SetPhase.SYNCING
    return SetPhase.SYNC_FAILED if sync.stage is Stage.FAILED else SetPhase.MOUNT


def _has_figures(runtime: Runtime, sync: RunDecision) -> bool:
    """A mounted agent has measured the set, and not before the sync was over."""
    ended = sync.state.ended_at if sync.state else None
    return any(r.mounted and (ended is None or (r.updated_at or ended) >= ended) for r in runtime.reports)
