"""The set's status, computed from what is observed now."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.names import Cond, SetPhase
from dataset_controller.domain.sampleset.facts import FACTS, Case
from dataset_controller.domain.sampleset.figures import runtime_status
from dataset_controller.domain.sampleset.model import ObservedSet, SetStatus
from dataset_controller.domain.sampleset.policies.children import used_directories
from dataset_controller.domain.sampleset.policies.conditions import (
    incomplete,
    with_conditions,
    with_mounts,
    with_staged_writes,
)
from dataset_controller.domain.sampleset.policies.lost_mounts import find_lost_mounts
from dataset_controller.domain.sampleset.policies.phase import next_phase
from dataset_controller.domain.sampleset.policies.runs import OwnRuns, RunDecision, Stage
from dataset_controller.domain.sampleset.policies.staging import is_or_was_writeback
from dataset_controller.domain.sampleset.runtime import Runtime, runtime_of, wanted_partitions
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import milliseconds_stamp


def judged_status(seen: ObservedSet, problem: Problem | None, now: datetime, remark: str = "") -> SetStatus:
    """The recorded status for the present generation, with what was found of the user's wishes."""
    status = replace(
        seen.status,
        observed_generation=seen.sample_set.generation,
        was_writeback=is_or_was_writeback(seen.sample_set),
        cache_directories=used_directories(seen),
    )
    if problem is None:
        return status.with_condition(Cond.ACCEPTED, True, Reason.ACCEPTED, remark, now)
    return status.with_condition(Cond.ACCEPTED, False, problem.reason, problem.message, now)


def active_status(
    seen: ObservedSet, status: SetStatus, partitions: int, runtime: Runtime, runs: OwnRuns, now: datetime
) -> SetStatus:
    """Phase, runs, conditions and facts on top of `status`."""
    phase = next_phase(seen.status.phase, runtime, partitions, runs)
    status = replace(
        status,
        phase=phase,
        sync_job=runs.sync.run_id if _is_started(runs.sync, phase) else status.sync_job,
        sync_origin=runs.sync.origin if _is_started(runs.sync, phase) else status.sync_origin,
        warmup_job=runs.warmup.run_id if runs.warmup.stage is Stage.DUE else status.warmup_job,
        warmup_series=runs.warmup.series if runs.warmup.stage is Stage.DUE else status.warmup_series,
        warmup_digest=runs.warmup.digest or status.warmup_digest,
        warmup_nodes=_warmup_nodes(status, runs.warmup, runtime.nodes_of(partitions)),
        runtime=_runtime_status(seen, runtime, partitions, now),
    )
    return with_facts(seen, with_conditions(seen, status, runtime, partitions, runs, now), now)


def _runtime_status(seen: ObservedSet, runtime: Runtime, partitions: int, now: datetime) -> dict[str, object]:
    lost = [each.render() for each in find_lost_mounts(seen, runtime, partitions, now)]
    return {**runtime_status(runtime, partitions), **({"lostMounts": lost} if lost else {})}


def observed_status(seen: ObservedSet, status: SetStatus, now: datetime) -> SetStatus:
    """Of a set that is refused, or kept from being deleted, while pods go on using it: where it is mounted,
    and which nodes have writes, on top of `status`. It may be degraded by that; it is ready again when
    nothing else speaks against it. While pods still have it mounted without a StatefulSet, nothing new is
    said of mounts."""
    runtime, partitions = runtime_of(seen, now), wanted_partitions(seen)
    status = with_staged_writes(seen, status, now)
    if runtime.replicas < 0 and (runtime.mounted or not status.was_mounted):
        return status
    status = with_mounts(
        replace(status, runtime=_runtime_status(seen, runtime, partitions, now)), runtime, now
    )
    if status.phase is SetPhase.READY and not runtime.is_complete(partitions):
        status = replace(status, phase=SetPhase.PARTIAL_READY)
        status = status.with_condition(Cond.READY, False, *incomplete(runtime, partitions), now)
    return with_facts(seen, status, now)


def unready_status(seen: ObservedSet, reason: str, message: str, now: datetime) -> SetStatus:
    """Of a set that is being deleted."""
    status = replace(seen.status, observed_generation=seen.sample_set.generation)
    return status.with_condition(Cond.READY, False, reason, message, now)


def with_facts(seen: ObservedSet, status: SetStatus, now: datetime, *, is_removed: bool = False) -> SetStatus:
    """Declare what the status makes true."""
    case = Case(seen, status, is_removed)
    facts = FACTS.declare(status.announcements, case, milliseconds_stamp(now))
    return replace(status, announcements=facts)


def _warmup_nodes(status: SetStatus, warmup: RunDecision, complete_on: tuple[str, ...]) -> tuple[str, ...]:
    """Recorded with the run's id, which is derived from them."""
    is_new = warmup.stage is Stage.DUE
    return complete_on if is_new and complete_on else status.warmup_nodes


def _is_started(sync: RunDecision, phase: SetPhase) -> bool:
    """A run's id, and what it copies, is recorded in the status before its record is written."""
    return sync.stage is Stage.DUE and phase is SetPhase.SYNCING
