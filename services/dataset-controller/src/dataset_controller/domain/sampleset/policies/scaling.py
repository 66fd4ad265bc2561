"""`spec.partitions` against the StatefulSet: grown at once, shrunk once the leaving caches are empty."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dataset_controller.domain.actions import Action, ForgetRun, Patch, WriteRun
from dataset_controller.domain.journal import Journal
from dataset_controller.domain.names import Cond
from dataset_controller.domain.objects import generation_of, key_of
from dataset_controller.domain.runs import is_ended, make_run, run_id
from dataset_controller.domain.sampleset.model import ObservedSet
from dataset_controller.domain.sampleset.spec import SetSpec
from dataset_controller.domain.sampleset.world import World
from dataset_controller.domain.text import age
from paddlewheel.contracts.generated.cache_v1 import ClearOperation

CLEAR_SECONDS = 60.0
"""How long leaving partitions may take to empty their caches; a dead node must not hold the scaling."""


@dataclass(frozen=True)
class ScalingDecision:
    """What to do, and the journal that remembers since when."""

    journal: Journal
    actions: tuple[Action, ...] = ()
    wake_after: float | None = None


def decide_scaling(
    seen: ObservedSet, spec: SetSpec, world: World, journal: Journal, now: datetime
) -> ScalingDecision:
    """Bring the StatefulSet's replicas to the wanted partitions."""
    if seen.children.stateful_set is None:
        return ScalingDecision(journal)
    if world.replicas == spec.partitions:
        return ScalingDecision(_settle(journal, spec, now))
    step = f"from {world.replicas} to {spec.partitions} partitions"
    noted = journal.note(Cond.SCALING, True, "Scaling", step, now)
    leaving = tuple(p.index for p in world.partitions if p.ready and p.index >= spec.partitions)
    if not leaving:
        return ScalingDecision(noted, (_resize(seen, spec.partitions),))
    return _shrink(seen, spec, world, noted, leaving, now)


def _settle(journal: Journal, spec: SetSpec, now: datetime) -> Journal:
    """Silent on sets that were never scaled."""
    if journal.condition(Cond.SCALING) is None:
        return journal
    return journal.note(Cond.SCALING, False, "Scaled", f"{spec.partitions} partitions", now)


def _shrink(
    seen: ObservedSet, spec: SetSpec, world: World, journal: Journal, leaving: tuple[int, ...], now: datetime
) -> ScalingDecision:
    run = run_id(seen.uid, "scale", str(generation_of(seen.obj)), str(spec.partitions))
    since = journal.condition(Cond.SCALING)
    left = CLEAR_SECONDS - age(since.last_transition_time if since else "", now)
    if left <= 0 or is_ended(seen.runs.get(run)):
        return ScalingDecision(journal, (_resize(seen, spec.partitions), ForgetRun(seen.run_key(run))))
    operation = ClearOperation(partitions=list(leaving))
    record = make_run(seen.identity, run, world.replicas, operation, now)
    return ScalingDecision(journal, (WriteRun(record),), left)


def _resize(seen: ObservedSet, replicas: int) -> Patch:
    stateful_set = seen.children.stateful_set
    assert stateful_set is not None
    return Patch("StatefulSet", key_of(stateful_set), {"spec": {"replicas": replicas}})
