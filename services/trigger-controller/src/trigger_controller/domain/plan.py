"""Plans the actions for one trigger, and computes its status after them. All functions are pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from paddlewheel.contracts.base import write_time
from paddlewheel.contracts.conditions import Condition, find
from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.crds.trigger import StatusChild, StatusGathered
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain import plan as operator
from paddlewheel.operator.domain.plan import Applied, Create, Delete, KubernetesEvent, earliest
from trigger_controller.domain import names
from trigger_controller.domain.model import Observed, Occurrence, Outcome, Trigger
from trigger_controller.domain.policies import schedule
from trigger_controller.domain.policies.deferral import to_defer, with_deferred
from trigger_controller.domain.policies.history import outdated, replaced
from trigger_controller.domain.policies.intake import alone, take_in
from trigger_controller.domain.policies.release import gathers, may_fire, wait_before_release
from trigger_controller.domain.policies.schedule import wait_before_turn, with_schedule, without_expired
from trigger_controller.domain.render import child_name, render_child
from trigger_controller.domain.status import Creation, with_conditions, with_creations
from trigger_controller.timing import BUS_DELETION_TIMEOUT_SECONDS, RELEASE_RETRY_INTERVAL_SECONDS

Plan = operator.Plan[TriggerStatus]


@dataclass(frozen=True)
class Decision:
    """The decision about new and gathered events.

    Args:
        status: the status before objects are created.
        due: gatherings of events. One object must be created for each.
        loop: why events were skipped because triggers led to them; "" if none were skipped.
        missed: scheduled times that create nothing.
    """

    status: TriggerStatus
    due: tuple[StatusGathered, ...] = ()
    loop: str = ""
    missed: tuple[datetime, ...] = ()


@dataclass(frozen=True)
class Handled:
    """The events that a pass has handled.

    Args:
        trigger_uid: uid of the trigger.
        digests: digests of the recorded events, for their marks.
        held: ids of events that must wait.
        ended: ids of deferred events that were handled and can be removed from the bucket.
    """

    trigger_uid: str = ""
    digests: tuple[str, ...] = ()
    held: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()


def plan(seen: Observed, now: datetime) -> Plan:
    """Plan the objects to create for due events, and the children to delete.

    If the plan creates objects, the trigger is read again first, because another replica may have created
    them.
    """
    trigger = seen.trigger
    if trigger.deleted_at is not None:
        return _plan_deletion(trigger, trigger.deleted_at, now)
    decision = decide(seen, now)
    creates = tuple(Create(trigger.template.kind, render_child(trigger, due)) for due in decision.due)
    # Delete the running child only when the new one exists, so that a refusal does not end it.
    made_room = tuple(
        _delete(trigger, ref, needs=(trigger.template.kind,))
        for ref in replaced(seen, [create.key.name for create in creates])
    )
    actions = (*creates, *made_room, *(_delete(trigger, ref) for ref in outdated(seen)))
    is_held = names.FINALIZER in trigger.finalizers
    metadata = None if is_held else {"finalizers": [*trigger.finalizers, names.FINALIZER]}
    return Plan(decision.status, actions, metadata, verify=bool(creates))


def _plan_deletion(trigger: Trigger, deleted_at: datetime, now: datetime) -> Plan:
    """Publish the pending facts, and then remove the finalizer. The wait for the bus is limited."""
    if names.FINALIZER not in trigger.finalizers:
        return Plan()
    left = [name for name in trigger.finalizers if name != names.FINALIZER]
    is_over = now >= deleted_at + timedelta(seconds=BUS_DELETION_TIMEOUT_SECONDS)
    return Plan(release={"finalizers": left}, release_anyway=is_over)


def decide(seen: Observed, now: datetime) -> Decision:
    """Decide which events are due.

    Gathered events fire in two steps, and each step is recorded. First they become `firing`, so that later
    events count for another object. Then the object is created, with a name that depends on the newest of
    them.
    """
    intake = take_in(seen, now, gathers=gathers(seen))
    status = intake.status.model_copy(update={"observed_generation": seen.trigger.generation})
    status, missed = without_expired(seen, with_schedule(seen, status), now)
    due = [alone(occurrence, now) for occurrence in intake.direct]
    if status.firing is not None and may_fire(seen):
        due.append(status.firing)
    elif wait_before_release(seen, status, now) == 0:
        status = status.model_copy(update={"firing": status.waiting, "waiting": None})
    if seen.turn is not None and seen.turn.missed is not None:
        missed = (*missed, seen.turn.missed)
    return Decision(status, tuple(due), intake.loop, missed)


def may_release(seen: Observed, now: datetime) -> bool:
    """Whether gathered events fire or become `firing`, if the children are as observed."""
    decision = decide(seen, now)
    return bool(decision.due) or decision.status.firing != seen.status.firing


def conclude(seen: Observed, todo: Plan, applied: Applied, now: datetime) -> Plan:
    """The status and the Kubernetes Events after the actions were tried."""
    if todo.status is None:
        return todo
    undone = _undone(seen, applied, now)
    decision = decide(replace(seen, fresh=tuple(o for o in seen.fresh if o.id not in undone)), now)
    creations = _creations(seen.trigger, decision, applied)
    status = with_creations(seen, decision.status, creations, now)
    status = status.model_copy(update={"active": _active(seen, todo, applied)})
    status = with_deferred(seen, status, undone, applied)
    status = with_conditions(seen, status, decision.loop, applied, now)
    waits = seen.held.union(o.id for o in seen.postponed) - seen.kept
    recheck = RELEASE_RETRY_INTERVAL_SECONDS if waits or seen.troubles or seen.unrecorded else None
    steps = (
        _next_step(seen, status, now),
        _next_deferred(seen, status, undone),
        wait_before_turn(status, now),
    )
    events = (*_events(seen, status, creations), *map(_missed, decision.missed))
    return replace(todo, status=status, events=events, requeue_after=earliest(*steps, recheck))


def handled(seen: Observed, applied: Applied, now: datetime) -> Handled:
    """The events that the pass has handled."""
    undone, uid = _undone(seen, applied, now), seen.trigger.uid
    held = seen.held.union(undone, (o.id for o in seen.postponed)) - seen.kept
    digests = (
        names.digest(uid, o.id)
        for o in seen.fresh
        if o.id not in seen.held | undone and o.event.type != schedule.TYPE
    )
    ended = frozenset() if seen.deferred is None else seen.again - undone
    return Handled(uid, tuple(digests), held, ended)


def deferrable(seen: Observed, applied: Applied, now: datetime) -> tuple[Occurrence, ...]:
    """The events that must be deferred after the actions."""
    return to_defer(seen, _undone(seen, applied, now))


def _undone(seen: Observed, applied: Applied, now: datetime) -> frozenset[str]:
    """The ids of events whose creation failed.

    Their object may exist; they are tried again with the same name.
    """
    creations = _creations(seen.trigger, decide(seen, now), applied)
    return frozenset(c.gathered.newest.id for c in creations if c.is_undone)


def _creations(trigger: Trigger, decision: Decision, applied: Applied) -> tuple[Creation, ...]:
    kind = trigger.template.kind
    uids = {child.key.name: child.uid for child in applied.children if child.kind == kind}
    refusals = {t.key.name: t for t in applied.troubles if t.verb == "create" and t.is_refusal}
    creations = []
    for gathered in decision.due:
        name = child_name(trigger, gathered.newest)
        child = StatusChild(kind=kind, name=name, uid=uids[name]) if name in uids else None
        creations.append(Creation(gathered, child, refusals.get(name)))
    return tuple(creations)


def _active(seen: Observed, todo: Plan, applied: Applied) -> int:
    """The number of running children, including those just created, without those just replaced."""
    new = {child.key.name for child in applied.children}
    kept = {trouble.key.name for trouble in applied.troubles if trouble.verb == "delete"}
    gone = {action.key.name for action in todo.actions if isinstance(action, Delete)} - kept if new else set()
    running = {c.ref.name for c in seen.children if c.outcome is Outcome.ACTIVE}
    ended = {c.ref.name for c in seen.children if c.outcome is not Outcome.ACTIVE}
    return len((running | new) - gone - ended)


def _delete(trigger: Trigger, ref: StatusChild, needs: tuple[str, ...] = ()) -> Delete:
    return Delete(ref.kind, Key(trigger.key.namespace, ref.name), ref.uid, needs)


def _events(
    seen: Observed, status: TriggerStatus, creations: Collection[Creation]
) -> tuple[KubernetesEvent, ...]:
    """Kubernetes Events about created children, and about each trouble when it begins."""
    events = [_fired_event(c.gathered, c.child) for c in creations if c.child]
    for type_ in names.CONDITIONS:
        before, now = find(seen.status.conditions, type_), find(status.conditions, type_)
        if now and now != before and _is_trouble(now):
            events.append(KubernetesEvent("Warning", now.reason, now.message))
    return tuple(events)


def _missed(time: datetime) -> KubernetesEvent:
    why = "its deadline had passed, or the schedule was changed or suspended meanwhile"
    return KubernetesEvent(
        "Warning", Reason.MISSED_SCHEDULE, f"nothing was created for {write_time(time)}: {why}"
    )


def _is_trouble(condition: Condition) -> bool:
    if condition.type == names.CONDITION_READY:
        return condition.status == "False" and condition.reason != Reason.SUSPENDED
    return condition.status == "True"


def _fired_event(gathered: StatusGathered, child: StatusChild) -> KubernetesEvent:
    events = "1 event" if gathered.events == 1 else f"{gathered.events} events"
    return KubernetesEvent(
        "Normal", Reason.SUCCESSFUL_CREATE, f"created {child.kind} {child.name} for {events}"
    )


def _next_deferred(seen: Observed, status: TriggerStatus, undone: frozenset[str]) -> float | None:
    """Seconds until the next deferred events are tried: at once, as long as some can be handled."""
    return 0.0 if status.deferred is not None and seen.again - undone else None


def _next_step(seen: Observed, status: TriggerStatus, now: datetime) -> float | None:
    """Seconds until gathered events fire: at once if they have just become `firing`."""
    if status.firing is not None and status.firing != seen.status.firing:
        return 0.0
    return wait_before_release(seen, status, now)
