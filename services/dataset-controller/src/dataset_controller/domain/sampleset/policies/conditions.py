"""Conditions of an accepted set: stable reasons, messages that change only with their content."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from dataset_controller.domain.names import Cond, SetPhase
from dataset_controller.domain.sampleset.model import ObservedSet, SetStatus
from dataset_controller.domain.sampleset.policies.capacity import with_capacity
from dataset_controller.domain.sampleset.policies.cold import cold_partitions
from dataset_controller.domain.sampleset.policies.phase import figures_awaited
from dataset_controller.domain.sampleset.policies.runs import OwnRuns, RunDecision, Stage
from dataset_controller.domain.sampleset.policies.staging import writes_left
from dataset_controller.domain.sampleset.policies.warmth import with_begin, with_invalidation, with_warmth
from dataset_controller.domain.sampleset.runtime import Runtime, is_serious
from paddlewheel.contracts.conditions import find
from paddlewheel.contracts.crds.limits import NODES_WITH_WRITES
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.reasons import Reason

_OF_FORMER_SOURCE = (
    "files that only the source of a failed sync had may still be there: a SampleJob of type sync with"
    " delete-dst removes what the source does not have"
)
_NO_SYNC = "spec.noSync is set"
_NO_SYNC_ANY_MORE = (
    "spec.noSync was set when the first sync was due; a SampleJob of type sync copies the source"
)
EDITED, MOVED = "its options have changed", "partitions have moved"
"""Why the set's own warmup is begun anew."""
_AFTER_A_FAILED_SYNC = "change the source or its Secret, or set spec.noSync"


def with_conditions(
    seen: ObservedSet, status: SetStatus, runtime: Runtime, partitions: int, runs: OwnRuns, now: datetime
) -> SetStatus:
    """Mounted, Healthy, StagedWrites, Synced, Warmed and Ready of a status that has its phase already."""
    status = with_mounts(status, runtime, now)
    status = _with_synced(seen, status, runs.sync, now)
    status = _with_mirror(status, runs.sync, seen.mirrored_at, now)
    status = _with_warmed(seen, status, runs.warmup, runtime, now)
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
        reason = Reason.WRITES_GIVEN_UP if left.are_given_up else Reason.STAGED_WRITES
        return status.with_condition(Cond.STAGED_WRITES, True, reason, left.message, now)
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


def _with_synced(seen: ObservedSet, status: SetStatus, sync: RunDecision, now: datetime) -> SetStatus:
    match sync.stage:
        case Stage.DUE | Stage.RUNNING if status.phase is SetPhase.SYNCING:
            return status.with_condition(Cond.SYNCED, False, *sync.waits_for(Reason.SYNCING), now)
        case Stage.FAILED if sync.state is not None:
            return status.with_condition(Cond.SYNCED, False, *sync.why, now)
        case Stage.DONE if not status.holds(Cond.SYNCED):
            return status.with_condition(Cond.SYNCED, True, Reason.SYNCED, _copied(status, sync), now)
        case Stage.NOT_NEEDED if status.phase in (SetPhase.PARTIAL_READY, SetPhase.READY):
            is_set = seen.sample_set.spec is None or seen.sample_set.spec.no_sync
            message = _NO_SYNC if is_set else _NO_SYNC_ANY_MORE
            return status.with_condition(Cond.SYNCED, True, Reason.NOT_NEEDED, message, now)
    return status


def _with_mirror(status: SetStatus, sync: RunDecision, mirrored_at: str, now: datetime) -> SetStatus:
    """Once a SampleJob has removed what the first sync has left, nothing is said of that any more."""
    synced = status.condition(Cond.SYNCED)
    if synced is None or not is_mirror_news(status, mirrored_at):
        return status
    status = replace(status, sync_origin=replace(status.sync_origin, overwrites=False))
    said = synced.message.removesuffix(_OF_FORMER_SOURCE).removesuffix("; ")
    message = _copied(status, sync) if sync.state else said
    return status.with_condition(Cond.SYNCED, True, synced.reason, message, now)


def is_mirror_news(status: SetStatus, mirrored_at: str) -> bool:
    """A SampleJob that began then has removed what the status says is left of a former source."""
    synced = status.condition(Cond.SYNCED)
    if synced is None or not status.holds(Cond.SYNCED) or not status.sync_origin.overwrites:
        return False
    return mirrored_at != "" and mirrored_at >= synced.last_transition_time


def _copied(status: SetStatus, sync: RunDecision) -> str:
    """What a sync that succeeded does not claim."""
    said = sync.state.message if sync.state else ""
    extra = _OF_FORMER_SOURCE if status.sync_origin.overwrites else ""
    return "; ".join(filter(None, (said, extra)))


def _with_warmed(
    seen: ObservedSet, status: SetStatus, warmup: RunDecision, runtime: Runtime, now: datetime
) -> SetStatus:
    if warmup.stage is Stage.DUE:
        return _with_due_warmup(with_begin(status, now), warmup, now)
    if warmup.stage is Stage.DONE:
        return with_warmth(seen, status, warmup, runtime, now)
    status = with_invalidation(seen, status)
    match warmup.stage:
        case Stage.BLOCKED if warmup.is_again:
            message = "the warmup begins anew as soon as every partition is ready"
            return status.with_condition(Cond.WARMED, False, Reason.OPTIONS_CHANGED, message, now)
        case Stage.RUNNING:
            return status.with_condition(Cond.WARMED, False, *_why_it_warms(status, warmup), now)
        case Stage.FAILED:
            return status.with_condition(Cond.WARMED, False, *warmup.why, now)
        case Stage.NOT_NEEDED if warmup.state is not None:
            message = "the warmup was cancelled; the set is used cold"
            return status.with_condition(Cond.WARMED, False, Reason.CANCELLED, message, now)
        case Stage.NOT_NEEDED if _is_promised(status) and not _wants_warmup(seen):
            return status.without_conditions(Cond.WARMED)
    return status


def _is_promised(status: SetStatus) -> bool:
    """A warmup that goes on, or begins anew."""
    return status.reason_of(Cond.WARMED) in (Reason.WARMING, Reason.OPTIONS_CHANGED)


def _wants_warmup(seen: ObservedSet) -> bool:
    spec = seen.sample_set.spec
    return spec is not None and spec.warmup is not None


def _with_due_warmup(status: SetStatus, warmup: RunDecision, now: datetime) -> SetStatus:
    if cause := warmup.cause or (EDITED if was_cancelled(status) else ""):
        return status.with_condition(Cond.WARMED, False, Reason.WARMING, cause, now)
    return status


def _why_it_warms(status: SetStatus, warmup: RunDecision) -> tuple[str, str]:
    """What it waits for, else why it was begun anew, as was said then."""
    reason, message = warmup.waits_for(Reason.WARMING)
    said = _message(status, Cond.WARMED)
    return reason, said if said in (EDITED, MOVED) and not message else message


def was_cancelled(status: SetStatus) -> bool:
    """The set's own warmup, on purpose."""
    return status.reason_of(Cond.WARMED) == Reason.CANCELLED


def _readiness(status: SetStatus, runtime: Runtime, partitions: int, runs: OwnRuns) -> tuple[str, str]:
    """Why the set is ready, or what it waits for."""
    match status.phase:
        case SetPhase.NOT_BOUND:
            return Reason.WAITING_FOR_VOLUME, "the claim is not bound yet"
        case SetPhase.BOUND:
            return Reason.WAITING_FOR_MOUNT, runtime.first_trouble
        case SetPhase.MOUNT:
            if runs.sync.is_over:
                return Reason.WAITING_FOR_FIGURES, figures_awaited(runtime, runs.sync)
            return Reason.WAITING_FOR_SYNC, ""
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
