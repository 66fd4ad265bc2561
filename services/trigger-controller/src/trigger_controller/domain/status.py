"""Computes the trigger's conditions, and its status after creations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from paddlewheel.contracts.conditions import Condition, find, is_true, set_condition
from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.crds.trigger import (
    StatusChild,
    StatusDeferred,
    StatusGathered,
    StatusRefused,
    TriggerAnnouncement,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import milliseconds_stamp, seconds_stamp
from paddlewheel.operator.domain.plan import Applied, Trouble
from trigger_controller.domain import names
from trigger_controller.domain.facts import declare
from trigger_controller.domain.model import Deferred, Observed, Trigger
from trigger_controller.domain.policies.intake import join
from trigger_controller.timing import REFUSED_TEMPLATE_RETRY_INTERVAL_SECONDS

_WHAT_TO_DO = (
    "correct that: the events are kept and tried again within a minute, or at once when the value of the"
    f" annotation {names.ANNOTATION_RETRY} changes"
)
LOST_IDS = 4
"""Lost events that the condition names, at most."""
_DIGITS = 20
"""An annotation with so many digits or more is not a number of events."""


@dataclass(frozen=True)
class Creation:
    """The result of an attempt to create an object."""

    gathered: StatusGathered
    child: StatusChild | None = None
    refusal: Trouble | None = None

    @property
    def is_undone(self) -> bool:
        """Whether the attempt failed without a refusal. The object may exist."""
        return self.child is None and self.refusal is None


def with_creations(
    seen: Observed, status: TriggerStatus, creations: Sequence[Creation], now: datetime
) -> TriggerStatus:
    """Count created objects, keep the events of refused ones, and declare the facts."""
    for creation in creations:
        if creation.child is not None:
            status = _fired(status, creation.gathered, creation.child, now)
    refused = [creation for creation in creations if creation.refusal]
    if not refused:
        is_accepted = any(creation.child for creation in creations)
        return _changed(status, refused=None) if is_accepted else status
    for creation in refused:
        status = _kept(seen.trigger, status, creation.gathered, now)
    return status if _was_refused(seen.trigger) else _failed(status, refused[0].refusal, now)


def _fired(
    status: TriggerStatus, gathered: StatusGathered, child: StatusChild, now: datetime
) -> TriggerStatus:
    fired = _changed(
        status,
        fired=status.fired + 1,
        last_fired_time=now,
        last_event=gathered.newest.id,
        last_child=child,
        firing=None if gathered == status.firing else status.firing,
    )
    return declare(fired, replace(_content(gathered), created=child), milliseconds_stamp(now))


def _kept(trigger: Trigger, status: TriggerStatus, gathered: StatusGathered, now: datetime) -> TriggerStatus:
    """Keep the events of a refused object. They wait until the template is changed or accepted."""
    return _changed(
        status,
        waiting=join(gathered, status.waiting) if status.waiting else gathered,
        firing=None if gathered == status.firing else status.firing,
        refused=StatusRefused(
            generation=trigger.generation,
            retry_at=now + timedelta(seconds=REFUSED_TEMPLATE_RETRY_INTERVAL_SECONDS),
        ),
    )


def _failed(status: TriggerStatus, refusal: Trouble | None, now: datetime) -> TriggerStatus:
    if refusal is None or status.waiting is None:
        return status
    content = replace(_content(status.waiting), reason=refusal.reason, message=refusal.message)
    return declare(status, content, milliseconds_stamp(now))


def _was_refused(trigger: Trigger) -> bool:
    """Whether this template was refused before. A refusal is reported only once for each template."""
    refused = trigger.status.refused
    return refused is not None and refused.generation == trigger.generation


def _content(gathered: StatusGathered) -> TriggerAnnouncement:
    event = gathered.newest
    return TriggerAnnouncement("", 0, "", event=event.id, event_type=event.type, events=gathered.events)


def with_conditions(
    seen: Observed, status: TriggerStatus, loop: str, applied: Applied, now: datetime
) -> TriggerStatus:
    """Set the conditions."""
    refusal = next((t for t in applied.troubles if _is_refusal(t)), None)
    troubles = (*seen.troubles, *(t for t in applied.troubles if not _is_refusal(t)))
    conditions = (
        _ready(seen.trigger, status, refusal),
        _loop_guarded(seen.trigger, status, loop),
        _blocked(status, Applied(troubles=troubles).first),
        _events_lost(seen, status),
    )
    for condition in conditions:
        if condition is not None:
            status = _with_condition(seen.trigger, status, condition, now)
    return status


def _is_refusal(trouble: Trouble) -> bool:
    return trouble.verb == "create" and trouble.is_refusal


def _ready(trigger: Trigger, status: TriggerStatus, refusal: Trouble | None) -> Condition:
    if problems := trigger.template.problems:
        return Condition(names.CONDITION_READY, "False", Reason.INVALID_TEMPLATE, "; ".join(problems))
    if trigger.unscheduled:
        return Condition(names.CONDITION_READY, "False", Reason.INVALID_SCHEDULE, trigger.unscheduled)
    if trigger.ungranted:
        return Condition(names.CONDITION_READY, "False", Reason.SOURCE_NOT_GRANTED, trigger.ungranted)
    if trigger.spec.suspend:
        return Condition(names.CONDITION_READY, "False", Reason.SUSPENDED, "spec.suspend is true")
    if refusal:
        message = f"{refusal.reason}: {refusal.message}; change spec.create, the events wait"
        return Condition(names.CONDITION_READY, "False", Reason.TEMPLATE_REFUSED, message)
    before = find(status.conditions, names.CONDITION_READY)
    if status.refused and before:
        return replace(before, status="False")
    return Condition(names.CONDITION_READY, "True", Reason.ACTIVE)


def _loop_guarded(trigger: Trigger, status: TriggerStatus, loop: str) -> Condition | None:
    """LoopGuarded becomes True when an event was skipped, and False when the spec was changed."""
    if loop:
        reason, _, message = loop.partition(": ")
        return Condition(names.CONDITION_LOOP, "True", reason, message)
    before = find(status.conditions, names.CONDITION_LOOP)
    if before and before.status == "True" and before.observed_generation != trigger.generation:
        return Condition(names.CONDITION_LOOP, "False", Reason.SPEC_CHANGED)
    return None


def _blocked(status: TriggerStatus, trouble: Trouble | None) -> Condition | None:
    if (deferred := status.deferred) is not None and deferred.stuck:
        why = f"{deferred.reason}: {deferred.message}"
        return Condition(names.CONDITION_BLOCKED, "True", Reason.EVENTS_DEFERRED, f"{why}; {_WHAT_TO_DO}")
    if trouble is not None:
        return Condition(names.CONDITION_BLOCKED, "True", trouble.shown_reason, trouble.shown_message)
    if is_true(status.conditions, names.CONDITION_BLOCKED):
        return Condition(names.CONDITION_BLOCKED, "False", Reason.RECOVERED)
    return None


def _events_lost(seen: Observed, status: TriggerStatus) -> Condition | None:
    """EventsLost is True until the user has acknowledged the number of all lost events."""
    shown, deferred = seen.status.deferred, seen.deferred
    if status.lost > seen.status.lost and shown is not None and deferred is not None:
        message = (
            f"{_which_are_gone(seen, status.lost, shown, deferred)}: create their jobs yourself, or have the"
            f" store notify again; then annotate the trigger with {names.ANNOTATION_LOST}={status.lost}"
        )
        return Condition(names.CONDITION_LOST, "True", Reason.DEFERRED_EVENTS_LOST, message)
    is_known = seen.trigger.lost_known == str(status.lost)
    if is_true(status.conditions, names.CONDITION_LOST) and is_known:
        return Condition(names.CONDITION_LOST, "False", Reason.ACKNOWLEDGED)
    return None


def _which_are_gone(seen: Observed, lost: int, shown: StatusDeferred, deferred: Deferred) -> str:
    """The number of lost events that are not acknowledged yet, with times and examples of the last ones."""
    last, since_known = lost - seen.status.lost, lost - _known(seen)
    gone = [event_id for event_id in shown.ids if not deferred.has(event_id)][:LOST_IDS]
    examples = f", for example {', '.join(gone)}" if gone else ""
    when, where = _when_lost(shown, deferred), "gone from the bus's bucket pw_trigger_deferred"
    if since_known == last:
        return f"{last} deferred event(s){when} are {where}{examples}"
    return f"{since_known} deferred event(s) are {where}, the last {last}{when}{examples}"


def _known(seen: Observed) -> int:
    """The number of lost events that the user has acknowledged, at most the number that was lost."""
    number = seen.trigger.lost_known
    return min(int(number), seen.status.lost) if number.isdecimal() and len(number) < _DIGITS else 0


def _when_lost(shown: StatusDeferred, deferred: Deferred) -> str:
    """When the lost events happened, without times that events in the bucket have, too."""
    left = set(map(seconds_stamp, deferred.times))
    oldest, newest = seconds_stamp(shown.oldest), seconds_stamp(shown.newest)
    if oldest in left:
        return "" if newest in left else f" until {newest}"
    return f" since {oldest}" if newest in left else f" of {oldest} to {newest}"


def _with_condition(
    trigger: Trigger, status: TriggerStatus, condition: Condition, now: datetime
) -> TriggerStatus:
    """Set one condition, with the trigger's generation."""
    stamped = replace(condition, observed_generation=trigger.generation)
    return _changed(status, conditions=set_condition(status.conditions, stamped, seconds_stamp(now)))


def _changed(status: TriggerStatus, **changes: Any) -> TriggerStatus:
    return status.model_copy(update=changes)
