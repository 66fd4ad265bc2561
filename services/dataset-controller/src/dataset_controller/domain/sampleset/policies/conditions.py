"""Conditions of an accepted set: stable reasons, messages that change only with what they tell."""

from __future__ import annotations

from datetime import datetime

from dataset_controller.domain.journal import Journal
from dataset_controller.domain.names import Cond, Reason, SetPhase
from dataset_controller.domain.sampleset.policies.own_runs import RunDecision, Standing
from dataset_controller.domain.sampleset.world import World


def note_conditions(
    journal: Journal,
    phase: SetPhase,
    world: World,
    partitions: int,
    runs: tuple[RunDecision, RunDecision],
    now: datetime,
) -> Journal:
    """Mounted, Synced, Warmed and Ready. `runs` are sync and warmup."""
    sync, warmup = runs
    journal = _note_mounted(journal, world, now)
    journal = _note_sync(journal, phase, sync, now)
    journal = _note_warmup(journal, warmup, now)
    reason, message = _readiness(phase, world, partitions, runs)
    return journal.note(Cond.READY, phase is SetPhase.READY, reason, message, now)


def _note_mounted(journal: Journal, world: World, now: datetime) -> Journal:
    if world.replicas < 0:
        return journal
    if world.mounted:
        return journal.note(Cond.MOUNTED, True, "Mounted", "", now)
    return journal.note(Cond.MOUNTED, False, "NoPartitionMounted", _first_trouble(world), now)


def _note_sync(journal: Journal, phase: SetPhase, sync: RunDecision, now: datetime) -> Journal:
    match sync.standing:
        case Standing.RUNNING:
            return journal.note(Cond.SYNCED, False, "Syncing", "", now)
        case Standing.FAILED if sync.state is not None:
            return journal.note(Cond.SYNCED, False, *sync.why("SyncJob"), now)
        case Standing.DONE:
            return (
                journal if journal.holds(Cond.SYNCED) else journal.note(Cond.SYNCED, True, "Synced", "", now)
            )
        case Standing.NOT_NEEDED if phase is SetPhase.PARTIAL_READY:
            return journal.note(Cond.SYNCED, True, Reason.NOT_NEEDED, "spec.noSync is set", now)
    return journal


def _note_warmup(journal: Journal, warmup: RunDecision, now: datetime) -> Journal:
    match warmup.standing:
        case Standing.RUNNING:
            return journal.note(Cond.WARMED, False, "Warming", "", now)
        case Standing.FAILED:
            return journal.note(Cond.WARMED, False, *warmup.why("WarmupJob"), now)
        case Standing.DONE:
            return (
                journal if journal.holds(Cond.WARMED) else journal.note(Cond.WARMED, True, "Warmed", "", now)
            )
        case Standing.NOT_NEEDED if warmup.state is not None:
            return journal.note(
                Cond.WARMED, False, "Cancelled", "the warmup was cancelled; the set is used cold", now
            )
    return journal


def _readiness(
    phase: SetPhase, world: World, partitions: int, runs: tuple[RunDecision, RunDecision]
) -> tuple[str, str]:
    """Why the set is ready, or what it waits for."""
    sync, warmup = runs
    match phase:
        case SetPhase.NEW:
            return "WaitingForVolume", "the claim is not bound yet"
        case SetPhase.BOUND:
            return "WaitingForMount", _first_trouble(world)
        case SetPhase.MOUNT:
            return "WaitingForFigures" if sync.is_over else "WaitingForSync", ""
        case SetPhase.SYNCING:
            return "Syncing", ""
        case SetPhase.SYNC_FAILED:
            return "SyncFailed", "change the source, its Secret, or set spec.noSync"
        case SetPhase.READY:
            return "Ready", ""
    if not world.is_complete(partitions):
        count = f"{world.ready_below(partitions)} of {partitions} partitions are ready"
        trouble = _first_trouble(world)
        return "PartitionsNotReady", f"{count}; {trouble}" if trouble else count
    return ("WarmupFailed" if warmup.standing is Standing.FAILED else "Warming"), ""


def _first_trouble(world: World) -> str:
    found = next((p for p in world.partitions if not p.ready and p.trouble), None)
    return f"partition {found.index}: {found.trouble}" if found else ""
