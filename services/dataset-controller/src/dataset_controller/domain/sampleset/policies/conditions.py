"""Conditions of an accepted set: stable reasons, messages that change only with their content."""

from __future__ import annotations

from datetime import datetime

from dataset_controller.domain.names import Cond, Reason, SetPhase
from dataset_controller.domain.sampleset.model import SetStatus
from dataset_controller.domain.sampleset.policies.runs import OwnRuns, RunDecision, Stage
from dataset_controller.domain.sampleset.runtime import Runtime


def with_conditions(
    status: SetStatus, runtime: Runtime, partitions: int, runs: OwnRuns, now: datetime
) -> SetStatus:
    """Mounted, Synced, Warmed and Ready of a status that has its phase already."""
    status = _with_mounted(status, runtime, now)
    status = _with_synced(status, runs.sync, now)
    status = _with_warmed(status, runs.warmup, now)
    reason, message = _readiness(status.phase, runtime, partitions, runs)
    return status.with_condition(Cond.READY, status.phase is SetPhase.READY, reason, message, now)


def _with_mounted(status: SetStatus, runtime: Runtime, now: datetime) -> SetStatus:
    if runtime.replicas < 0:
        return status
    if runtime.mounted:
        return status.with_condition(Cond.MOUNTED, True, "Mounted", "", now)
    return status.with_condition(Cond.MOUNTED, False, "NoPartitionMounted", runtime.first_trouble, now)


def _with_synced(status: SetStatus, sync: RunDecision, now: datetime) -> SetStatus:
    match sync.stage:
        case Stage.RUNNING:
            return status.with_condition(Cond.SYNCED, False, "Syncing", "", now)
        case Stage.FAILED if sync.state is not None:
            return status.with_condition(Cond.SYNCED, False, *sync.why("SyncJob"), now)
        case Stage.DONE if not status.holds(Cond.SYNCED):
            return status.with_condition(Cond.SYNCED, True, "Synced", "", now)
        case Stage.NOT_NEEDED if status.phase is SetPhase.PARTIAL_READY:
            return status.with_condition(Cond.SYNCED, True, Reason.NOT_NEEDED, "spec.noSync is set", now)
    return status


def _with_warmed(status: SetStatus, warmup: RunDecision, now: datetime) -> SetStatus:
    match warmup.stage:
        case Stage.RUNNING:
            return status.with_condition(Cond.WARMED, False, "Warming", "", now)
        case Stage.FAILED:
            return status.with_condition(Cond.WARMED, False, *warmup.why("WarmupJob"), now)
        case Stage.DONE if not status.holds(Cond.WARMED):
            return status.with_condition(Cond.WARMED, True, "Warmed", "", now)
        case Stage.NOT_NEEDED if warmup.state is not None:
            message = "the warmup was cancelled; the set is used cold"
            return status.with_condition(Cond.WARMED, False, "Cancelled", message, now)
    return status


def _readiness(phase: SetPhase, runtime: Runtime, partitions: int, runs: OwnRuns) -> tuple[str, str]:
    """Why the set is ready, or what it waits for."""
    match phase:
        case SetPhase.NEW:
            return "WaitingForVolume", "the claim is not bound yet"
        case SetPhase.BOUND:
            return "WaitingForMount", runtime.first_trouble
        case SetPhase.MOUNT:
            return "WaitingForFigures" if runs.sync.is_over else "WaitingForSync", ""
        case SetPhase.SYNCING:
            return "Syncing", ""
        case SetPhase.SYNC_FAILED:
            return "SyncFailed", "change the source, its Secret, or set spec.noSync"
        case SetPhase.READY:
            return "Ready", ""
    if not runtime.is_complete(partitions):
        count = f"{runtime.ready_below(partitions)} of {partitions} partitions are ready"
        trouble = runtime.first_trouble
        return "PartitionsNotReady", f"{count}; {trouble}" if trouble else count
    return ("WarmupFailed" if runs.warmup.stage is Stage.FAILED else "Warming"), ""
