"""The contract's path, one step at a time: each phase can be seen, each step has its reason in the world."""

from __future__ import annotations

from dataset_controller.domain.names import SetPhase
from dataset_controller.domain.sampleset.policies.own_runs import RunDecision, Standing
from dataset_controller.domain.sampleset.world import World


def next_phase(
    phase: SetPhase, world: World, partitions: int, sync: RunDecision, warmup: RunDecision
) -> SetPhase:
    """The phase from now on. Decisions never hang on it alone: they look at the world again each time."""
    complete = world.is_complete(partitions)
    match phase:
        case SetPhase.NEW:
            return SetPhase.BOUND if world.bound else phase
        case SetPhase.BOUND:
            return SetPhase.MOUNT if world.mounted else phase
        case SetPhase.MOUNT:
            return _after_mount(world, sync)
        case SetPhase.SYNCING:
            return _after_sync(sync)
        case SetPhase.SYNC_FAILED:
            return phase if sync.standing in (Standing.FAILED, Standing.BLOCKED) else SetPhase.MOUNT
        case SetPhase.PARTIAL_READY:
            return SetPhase.READY if complete and warmup.is_over else phase
        case SetPhase.READY:
            return phase if complete else SetPhase.PARTIAL_READY


def _after_mount(world: World, sync: RunDecision) -> SetPhase:
    if sync.standing is Standing.DUE:
        return SetPhase.SYNCING if world.mounted else SetPhase.MOUNT
    if sync.standing is Standing.FAILED:
        return SetPhase.SYNC_FAILED
    return SetPhase.PARTIAL_READY if sync.is_over and _has_figures(world, sync) else SetPhase.MOUNT


def _after_sync(sync: RunDecision) -> SetPhase:
    if sync.standing is Standing.RUNNING:
        return SetPhase.SYNCING
    return SetPhase.SYNC_FAILED if sync.standing is Standing.FAILED else SetPhase.MOUNT


def _has_figures(world: World, sync: RunDecision) -> bool:
    """A mounted agent has measured the set, and not before the sync was over."""
    ended = sync.state.ended_at if sync.state else None
    return any(r.mounted and (ended is None or (r.updated_at or ended) >= ended) for r in world.reports)
