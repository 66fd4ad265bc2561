"""`spec.partitions` against the StatefulSet: grown at once, but for a first pod that has to mount before, and
shrunk when the leaving caches are empty."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dataset_controller.domain import names
from dataset_controller.domain.actions import ForgetRun, WriteRun
from dataset_controller.domain.names import Cond, SetPhase
from dataset_controller.domain.runs import is_ended, make_run, run_id
from dataset_controller.domain.sampleset.model import ObservedSet, SetSpec, SetStatus
from dataset_controller.domain.sampleset.policies.staging import staged_writes
from dataset_controller.domain.sampleset.runtime import Runtime, startable
from dataset_controller.timing import CACHE_CLEAR_TIMEOUT_SECONDS, SCALING_CHECK_INTERVAL_SECONDS
from paddlewheel.contracts.generated.cache_v1 import ClearOperation
from paddlewheel.contracts.objects import key_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import age
from paddlewheel.operator.domain.plan import Patch


@dataclass(frozen=True)
class ScalingDecision:
    """What to do; the status remembers since when."""

    status: SetStatus
    actions: tuple[Any, ...] = ()
    wake_after: float | None = None


def decide_scaling(
    seen: ObservedSet, spec: SetSpec, runtime: Runtime, status: SetStatus, now: datetime
) -> ScalingDecision:
    """Bring the StatefulSet's replicas to the wanted partitions."""
    if seen.children.stateful_set is None:
        return ScalingDecision(status)
    if runtime.replicas == spec.partitions:
        return ScalingDecision(_settled(status, spec, now))
    possible = startable(seen, spec.partitions)
    if possible == runtime.replicas:
        return ScalingDecision(status)
    if _is_starting(runtime, spec, status):
        return ScalingDecision(status, (_resize(seen, possible),))
    step = f"from {runtime.replicas} to {spec.partitions} partitions"
    if staged := _staged_writes(seen, spec, runtime, now):
        # False, so that the time for emptying the caches begins when this is over.
        waits = f"{step}: {staged}"
        status = status.with_condition(Cond.SCALING, False, Reason.STAGED_WRITES, waits, now)
        return ScalingDecision(status, wake_after=SCALING_CHECK_INTERVAL_SECONDS)
    status = status.with_condition(Cond.SCALING, True, Reason.SCALING, step, now)
    leaving = tuple(p.index for p in runtime.partitions if p.ready and p.index >= spec.partitions)
    if not leaving:
        return ScalingDecision(status, (_resize(seen, possible),))
    return _shrink(seen, spec, runtime, status, leaving, now)


def _is_starting(runtime: Runtime, spec: SetSpec, status: SetStatus) -> bool:
    """The first pod has mounted, and the others follow: nobody has scaled the set."""
    is_new = status.phase in (SetPhase.NOT_BOUND, SetPhase.BOUND, SetPhase.MOUNT)
    return is_new and spec.partitions > runtime.replicas and status.condition(Cond.SCALING) is None


def _staged_writes(seen: ObservedSet, spec: SetSpec, runtime: Runtime, now: datetime) -> str:
    """Of those that leave; a set that grows waits for nothing."""
    if spec.partitions > runtime.replicas:
        return ""
    return staged_writes(seen, now, lambda partition: spec.partitions <= partition < runtime.replicas)


def _settled(status: SetStatus, spec: SetSpec, now: datetime) -> SetStatus:
    """Without a condition on sets that were never scaled."""
    if status.condition(Cond.SCALING) is None:
        return status
    return status.with_condition(Cond.SCALING, False, Reason.SCALED, f"{spec.partitions} partitions", now)


def _shrink(
    seen: ObservedSet,
    spec: SetSpec,
    runtime: Runtime,
    status: SetStatus,
    leaving: tuple[int, ...],
    now: datetime,
) -> ScalingDecision:
    own = seen.sample_set
    run = run_id(own.uid, "scale", str(own.generation), str(spec.partitions))
    since = status.condition(Cond.SCALING)
    left = CACHE_CLEAR_TIMEOUT_SECONDS - age(since.last_transition_time if since else "", now)
    if left <= 0 or is_ended(seen.runs.get(run)):
        return ScalingDecision(status, (_resize(seen, spec.partitions), ForgetRun(own.run_key(run))))
    operation = ClearOperation(partitions=list(leaving))
    record = make_run(own.identity, run, runtime.replicas, operation, now)
    return ScalingDecision(status, (WriteRun(record),), left)


def _resize(seen: ObservedSet, replicas: int) -> Patch:
    stateful_set = seen.children.stateful_set
    assert stateful_set is not None
    return Patch(names.STATEFUL_SET, key_of(stateful_set), {"spec": {"replicas": replicas}})
