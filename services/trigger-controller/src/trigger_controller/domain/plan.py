"""What to do, and what to say and record once it is done. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.triggers_v1 import TriggerFailed, TriggerFired
from trigger_controller.domain import names
from trigger_controller.domain.model import (
    ChildRef,
    Conclusion,
    Created,
    Fact,
    Gathered,
    Note,
    Observed,
    Outcome,
    Plan,
    Refused,
    Status,
    Trigger,
)
from trigger_controller.domain.policies.history import outdated
from trigger_controller.domain.policies.intake import gather, join, take_in
from trigger_controller.domain.policies.release import REPLACE, gathers, wait_before_release
from trigger_controller.domain.render import render_creation, template_problems
from trigger_controller.domain.status import find_condition, with_condition

RETRY_REFUSED = timedelta(seconds=60)
"""A refused template is tried again after this, should nobody mend it."""


def plan(seen: Observed, now: datetime) -> Plan:
    """Sort the new events, and fire what is due.

    Gathered events fire in two steps, each recorded: first they become `firing`, so that what comes from then
    on is for another object; then the object is created, under a name that their newest event decides.
    """
    trigger = seen.trigger
    broken = bool(template_problems(trigger))
    intake = take_in(seen, now, gathers=gathers(seen) or broken)
    status = replace(intake.status, observed_generation=trigger.generation)
    due = [gathered for event in intake.direct if (gathered := gather(None, [event], now))]
    if status.firing is not None and not trigger.spec.suspend and not broken:
        due.append(status.firing)
    elif not broken and wait_before_release(seen, status, now) == 0:
        status = replace(status, firing=status.waiting, waiting=None)
    create = tuple(render_creation(trigger, gathered) for gathered in due)
    return Plan(status, create, outdated(seen), intake.loop)


def replaced(seen: Observed, done: Iterable[Created]) -> tuple[ChildRef, ...]:
    """Running children whose place a new one has taken. Only now: a refused one must end nothing."""
    new = {item.child.name for item in done if item.child}
    if seen.trigger.spec.concurrency_policy != REPLACE or not new:
        return ()
    active = (c.ref for c in seen.children if c.outcome is Outcome.ACTIVE)
    return tuple(ref for ref in active if ref.name not in new)


def conclude(seen: Observed, todo: Plan, done: tuple[Created, ...], now: datetime) -> Conclusion:
    """Status, facts and notes after the creations were tried."""
    status = todo.status
    for item in done:
        status = _fired(status, item, item.child, now) if item.child else _held(seen, status, item, now)
    refused = any(item.refusal for item in done)
    if done and not refused:
        status = replace(status, refused=None)
    status = replace(status, active=_active(seen, done))
    status = _with_ready(seen.trigger, status, done, now)
    status = _with_loop(seen.trigger, status, todo.loop, now)
    facts = tuple(_fact(seen.trigger, item) for item in done if item.child or not _was_refused(seen.trigger))
    return Conclusion(status, facts, _notes(seen, status, done), _next_look(seen, status, now))


def _fired(status: Status, item: Created, child: ChildRef, now: datetime) -> Status:
    return replace(
        status,
        fired=status.fired + 1,
        last_fired=now,
        last_event=item.creation.gathered.newest.id,
        last_child=child,
        firing=None if item.creation.gathered == status.firing else status.firing,
    )


def _held(seen: Observed, status: Status, item: Created, now: datetime) -> Status:
    """Nothing is lost: the events of a refused object wait for the template to be mended."""
    gathered = item.creation.gathered
    return replace(
        status,
        waiting=join(gathered, status.waiting) if status.waiting else gathered,
        firing=None if gathered == status.firing else status.firing,
        refused=Refused(seen.trigger.generation, now + RETRY_REFUSED),
    )


def _active(seen: Observed, done: tuple[Created, ...]) -> int:
    """Children at work, those just created among them; those just replaced not."""
    new = {item.child.name for item in done if item.child}
    gone = {ref.name for ref in replaced(seen, done)}
    running = {c.ref.name for c in seen.children if c.outcome is Outcome.ACTIVE}
    ended = {c.ref.name for c in seen.children if c.outcome is not Outcome.ACTIVE}
    return len((running | new) - gone - ended)


def _with_ready(trigger: Trigger, status: Status, done: tuple[Created, ...], now: datetime) -> Status:
    refusal = next((item.refusal for item in done if item.refusal), None)
    if problems := template_problems(trigger):
        condition = Condition(names.CONDITION_READY, "False", names.INVALID_TEMPLATE, "; ".join(problems))
    elif trigger.spec.suspend:
        condition = Condition(names.CONDITION_READY, "False", names.SUSPENDED, "spec.suspend is true")
    elif refusal:
        message = f"{refusal.reason}: {refusal.message}; mend spec.create, the events wait"
        condition = Condition(names.CONDITION_READY, "False", names.TEMPLATE_REFUSED, message)
    elif status.refused and (before := find_condition(status, names.CONDITION_READY)):
        condition = replace(before, status="False")
    else:
        condition = Condition(names.CONDITION_READY, "True", names.ACTIVE)
    return with_condition(trigger, status, condition, now)


def _with_loop(trigger: Trigger, status: Status, loop: str, now: datetime) -> Status:
    """Raised by an event, and lowered when the spec was changed."""
    before = find_condition(status, names.CONDITION_LOOP)
    if loop:
        reason, _, message = loop.partition(": ")
        condition = Condition(names.CONDITION_LOOP, "True", reason, message)
    elif before and before.status == "True" and before.observed_generation != trigger.generation:
        condition = Condition(names.CONDITION_LOOP, "False", names.SPEC_CHANGED)
    else:
        return status
    return with_condition(trigger, status, condition, now)


def _was_refused(trigger: Trigger) -> bool:
    """This very template: it is told once, however often it is tried again."""
    refused = trigger.status.refused
    return refused is not None and refused.generation == trigger.generation


def _fact(trigger: Trigger, item: Created) -> Fact:
    gathered = item.creation.gathered
    event = gathered.newest
    about = {"trigger": _ref(trigger), "event_id": event.id, "event_type": event.type}
    digest = names.digest(trigger.uid, event.id)
    if item.child:
        place = {"namespace": trigger.key.namespace, "name": item.child.name, "uid": item.child.uid}
        fired = TriggerFired(
            **about, events=gathered.events, kind=item.child.kind, created=ObjectRef(**place)
        )
        return Fact(f"{trigger.uid}/TriggerFired/{digest}", fired)
    assert item.refusal is not None
    failed = TriggerFailed(
        **about, events=gathered.events, reason=item.refusal.reason, message=item.refusal.message
    )
    return Fact(f"{trigger.uid}/TriggerFailed/{digest}-{trigger.generation}", failed)


def _ref(trigger: Trigger) -> ObjectRef:
    key = trigger.key
    return ObjectRef(
        namespace=key.namespace,
        name=key.name,
        uid=trigger.uid,
        generation=trigger.generation,
        resource_version=trigger.resource_version,
    )


def _notes(seen: Observed, status: Status, done: tuple[Created, ...]) -> tuple[Note, ...]:
    """What was created, and each trouble once, when it begins."""
    notes = [_fired_note(item.creation.gathered, item.child) for item in done if item.child]
    for type_ in (names.CONDITION_READY, names.CONDITION_LOOP):
        before, now = find_condition(seen.trigger.status, type_), find_condition(status, type_)
        if now and now != before and _is_trouble(type_, now):
            notes.append(Note("Warning", now.reason, now.message))
    return tuple(notes)


def _is_trouble(type_: str, condition: Condition) -> bool:
    if type_ == names.CONDITION_LOOP:
        return condition.status == "True"
    return condition.status == "False" and condition.reason != names.SUSPENDED


def _fired_note(gathered: Gathered, child: ChildRef) -> Note:
    events = "1 event" if gathered.events == 1 else f"{gathered.events} events"
    return Note("Normal", names.FIRED, f"created {child.kind} {child.name} for {events}")


def _next_look(seen: Observed, status: Status, now: datetime) -> float | None:
    """`firing` is seen to at once; what waits, when its time has come; neither while only the user helps."""
    if seen.trigger.spec.suspend or template_problems(seen.trigger):
        return None
    return 0.0 if status.firing is not None else wait_before_release(seen, status, now)
