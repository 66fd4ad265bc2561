"""The contract's path of phases, one step at a time, so that each phase can be observed."""

from __future__ import annotations

from dataset_controller.domain.names import SetPhase
from dataset_controller.domain.sampleset.policies.runs import OwnRuns, RunDecision, Stage
from dataset_controller.domain.sampleset.runtime import Runtime, size_measured_at
from paddlewheel.contracts.stamps import seconds_stamp


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
    measured = [r for r in runtime.reports if r.mounted and not r.size_unknown]
    return any(ended is None or (size_measured_at(r) or ended) >= ended for r in measured)


def figures_awaited(runtime: Runtime, sync: RunDecision) -> str:
    """What a set whose sync is over waits for, "" when its figures are there."""
    mounted = sorted((r for r in runtime.reports if r.mounted), key=lambda r: r.partition)
    ended = sync.state.ended_at if sync.state else None
    if _has_figures(runtime, sync):
        return ""
    if not mounted:
        return runtime.first_trouble or "no partition that has mounted the set reports"
    if ended is not None and not all(r.size_unknown for r in mounted):
        return f"a report of after the end of the sync, {seconds_stamp(ended)}, has not come yet"
    first = mounted[0]
    since = max(filter(None, (ended, first.mount_changed_at)), default=None)
    begun = f" since {seconds_stamp(since)}" if since else ""
    waits = (
        f"partition {first.partition} has been measuring the size of the set{begun}; where that means to read"
        " the names of all files, it takes long"
    )
    return f"{waits}; {first.figures_problem}" if first.figures_problem else waits
