"""Conditions of an accepted set: stable reasons, messages that change only with their content."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from dataset_controller.domain.names import Cond, SetPhase
from dataset_controller.domain.sampleset.model import CacheChange, CacheMark, ObservedSet, SetStatus
from dataset_controller.domain.sampleset.policies.capacity import with_capacity
from dataset_controller.domain.sampleset.policies.cold import cold_partitions
from dataset_controller.domain.sampleset.policies.runs import OwnRuns, RunDecision, Stage
from dataset_controller.domain.sampleset.policies.staging import writes_left
from dataset_controller.domain.sampleset.runtime import Runtime, is_serious
from paddlewheel.contracts.conditions import find
from paddlewheel.contracts.crds.limits import NODES_WITH_WRITES
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import milliseconds_stamp

WARMED_ONCE = (Reason.WARMED, Reason.PARTLY_CACHED, Reason.CACHE_CLEARED)
"""Reasons of Warmed when the set's own warmup is over: it is not started again."""
_AFTER_A_FAILED_SYNC = "change the source or its Secret, or set spec.noSync"


def with_conditions(
    seen: ObservedSet, status: SetStatus, runtime: Runtime, partitions: int, runs: OwnRuns, now: datetime
) -> SetStatus:
    """Mounted, Healthy, StagedWrites, Synced, Warmed and Ready of a status that has its phase already."""
    status = with_mounts(status, runtime, now)
    status = _with_synced(status, runs.sync, now)
    status = _with_warmed(status, runs.warmup, seen.cache_change, now)
    status = with_capacity(status, runtime, partitions, now)
    status = with_staged_writes(seen, status, now)
    reason, message = _readiness(status, runtime, partitions, runs)
    if status.phase is SetPhase.READY:
        ailment = describe_ailment(runtime.ailing) if runtime.ailing else ""
        message = ailment or message or cold_partitions(runtime, partitions, seen.sample_set.key)
    return status.with_condition(Cond.READY, status.phase is SetPhase.READY, reason, message, now)


def with_mounts(status: SetStatus, runtime: Runtime, now: datetime) -> SetStatus:
    """Mounted and Healthy: what agents and their pods say."""
    return _with_health(_with_mounted(status, runtime, now), runtime, now)


def with_staged_writes(seen: ObservedSet, status: SetStatus, now: datetime) -> SetStatus:
    """Without a condition on sets whose partitions have left nothing behind."""
    if not seen.are_records_known:
        return status
    left = writes_left(seen)
    named = sorted(left.nodes) if left.message else ()
    status = replace(status, nodes_with_writes=tuple(named[:NODES_WITH_WRITES]))
    if left.message:
        return status.with_condition(Cond.STAGED_WRITES, True, Reason.STAGED_WRITES, left.message, now)
    if status.condition(Cond.STAGED_WRITES) is None:
        return status
    return status.with_condition(Cond.STAGED_WRITES, False, Reason.NOTHING_STAGED, "", now)


def _with_mounted(status: SetStatus, runtime: Runtime, now: datetime) -> SetStatus:
    if runtime.replicas < 0 and not status.was_mounted:
        return status
    if runtime.mounted:
        return status.with_condition(Cond.MOUNTED, True, Reason.MOUNTED, "", now)
    return status.with_condition(Cond.MOUNTED, False, Reason.NO_PARTITION_MOUNTED, runtime.first_trouble, now)


def _with_health(status: SetStatus, runtime: Runtime, now: datetime) -> SetStatus:
    """Without a condition on sets that have always been well. The last word stays while nobody reports, or an
    agent has not mounted yet."""
    ailing = runtime.ailing
    if ailing is not None:
        return status.with_condition(Cond.HEALTHY, False, ailing.ailment, describe_ailment(ailing), now)
    is_mounted = bool(runtime.reports) and all(report.mounted for report in runtime.reports)
    if not is_mounted or status.condition(Cond.HEALTHY) is None:
        return status
    return status.with_condition(Cond.HEALTHY, True, Reason.HEALTHY, "", now)


def describe_ailment(report: NodeStatus) -> str:
    """Where, what, and the remedy."""
    return f"partition {report.partition} on node {report.node}: {report.ailment_message}"


def _with_synced(status: SetStatus, sync: RunDecision, now: datetime) -> SetStatus:
    match sync.stage:
        case Stage.RUNNING:
            return status.with_condition(Cond.SYNCED, False, *sync.waits_for(Reason.SYNCING), now)
        case Stage.FAILED if sync.state is not None:
            return status.with_condition(Cond.SYNCED, False, *sync.why, now)
        case Stage.DONE if not status.holds(Cond.SYNCED):
            return status.with_condition(Cond.SYNCED, True, Reason.SYNCED, "", now)
        case Stage.NOT_NEEDED if status.phase is SetPhase.PARTIAL_READY:
            return status.with_condition(Cond.SYNCED, True, Reason.NOT_NEEDED, "spec.noSync is set", now)
    return status


def _with_warmed(
    status: SetStatus, warmup: RunDecision, change: CacheChange | None, now: datetime
) -> SetStatus:
    match warmup.stage:
        case Stage.DUE if warmup.is_again:
            return status.with_condition(Cond.WARMED, False, Reason.WARMING, "partitions have moved", now)
        case Stage.DUE if was_cancelled(status):
            return status.with_condition(Cond.WARMED, False, Reason.WARMING, "its options have changed", now)
        case Stage.RUNNING:
            return status.with_condition(Cond.WARMED, False, *warmup.waits_for(Reason.WARMING), now)
        case Stage.FAILED:
            return status.with_condition(Cond.WARMED, False, *warmup.why, now)
        case Stage.DONE:
            return _with_cache(status, warmup, change, now)
        case Stage.NOT_NEEDED if warmup.state is not None:
            message = "the warmup was cancelled; the set is used cold"
            return status.with_condition(Cond.WARMED, False, Reason.CANCELLED, message, now)
    return status


def _with_cache(
    status: SetStatus, warmup: RunDecision, change: CacheChange | None, now: datetime
) -> SetStatus:
    """The set's own warmup is over. A SampleJob may have emptied the cache since, or filled it again."""
    if not _was_warmed(status):
        status = replace(status, cache_mark=CacheMark(milliseconds_stamp(now)))
        return _with_own_warmup(status, warmup, now)
    if change is None or not is_news(change, status):
        return status
    job = change.mark.job
    messages = {
        Reason.WARMED: f"by SampleJob {job}",
        Reason.PARTLY_CACHED: f"by SampleJob {job}, whose message has the share",
        Reason.CACHE_CLEARED: f"SampleJob {job} has emptied the cache; one of type warmup fills it again",
    }
    is_warm = change.reason is Reason.WARMED
    status = replace(status, cache_mark=change.mark)
    return status.with_condition(Cond.WARMED, is_warm, change.reason, messages[change.reason], now)


def is_news(change: CacheChange, status: SetStatus) -> bool:
    """The status of a set that was warm once does not say what this SampleJob has done since. An older one
    never counts, also when the last one is deleted."""
    return _was_warmed(status) and change.mark > status.cache_mark


def _was_warmed(status: SetStatus) -> bool:
    warmed = status.condition(Cond.WARMED)
    return warmed is not None and warmed.reason in WARMED_ONCE


def was_cancelled(status: SetStatus) -> bool:
    """The set's own warmup, on purpose."""
    warmed = status.condition(Cond.WARMED)
    return warmed is not None and warmed.reason == Reason.CANCELLED


def _with_own_warmup(status: SetStatus, warmup: RunDecision, now: datetime) -> SetStatus:
    state = warmup.state
    if state is not None and state.reason == Reason.PARTLY_CACHED:
        return status.with_condition(Cond.WARMED, False, Reason.PARTLY_CACHED, state.message, now)
    return status.with_condition(Cond.WARMED, True, Reason.WARMED, "", now)


def _readiness(status: SetStatus, runtime: Runtime, partitions: int, runs: OwnRuns) -> tuple[str, str]:
    """Why the set is ready, or what it waits for."""
    match status.phase:
        case SetPhase.NOT_BOUND:
            return Reason.WAITING_FOR_VOLUME, "the claim is not bound yet"
        case SetPhase.BOUND:
            return Reason.WAITING_FOR_MOUNT, runtime.first_trouble
        case SetPhase.MOUNT:
            return Reason.WAITING_FOR_FIGURES if runs.sync.is_over else Reason.WAITING_FOR_SYNC, ""
        case SetPhase.SYNCING:
            return runs.sync.waits_for(Reason.SYNCING)
        case SetPhase.SYNC_FAILED:
            return Reason.SYNC_FAILED, f"{_message(status, Cond.SYNCED)}; {_AFTER_A_FAILED_SYNC}"
        case SetPhase.READY:
            return Reason.READY, "" if status.holds(Cond.WARMED) else _message(status, Cond.WARMED)
    if not runtime.bound:
        return Reason.WAITING_FOR_VOLUME, "the claim is not bound; pods that use it cannot start"
    if not runtime.is_complete(partitions):
        return incomplete(runtime, partitions)
    if runs.warmup.stage is Stage.FAILED:
        return Reason.WARMUP_FAILED, _message(status, Cond.WARMED)
    return runs.warmup.waits_for(Reason.WARMING)


def incomplete(runtime: Runtime, partitions: int) -> tuple[str, str]:
    """Why not every partition is ready."""
    count = f"{runtime.ready_below(partitions)} of {partitions} partitions are ready"
    ailing, trouble = runtime.ailing, runtime.first_trouble
    if ailing is not None and ailing.mounted and is_serious(ailing) and not trouble:
        return ailing.ailment, describe_ailment(ailing)
    return Reason.PARTITIONS_NOT_READY, f"{count}; {trouble}" if trouble else count


def _message(status: SetStatus, condition: str) -> str:
    """Of a condition that outlives the run which it is about."""
    found = find(status.conditions, condition)
    return found.message if found else ""
