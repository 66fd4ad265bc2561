"""Times of a schedule as events: found from the clock and the status alone, so that none needs the bus."""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlewheel.contracts.base import write_time
from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.crds.trigger import StatusEvent, StatusSchedule
from trigger_controller.domain.facts import outbox_room
from trigger_controller.domain.model import Observed, Occurrence, Trigger, Turn
from trigger_controller.domain.policies.release import RECHECK
from trigger_controller.domain.timetable import Timetable

TYPE = "Schedule"
"""Takes the place of a fact's ce-type."""


def timetable_of(trigger: Trigger) -> Timetable | None:
    """None for a trigger that follows no clock, or no schedule that can be read."""
    schedule = trigger.spec.when.schedule if trigger.spec.when else None
    if schedule is None or trigger.unscheduled:
        return None
    return Timetable(schedule.cron, schedule.time_zone)


def look(trigger: Trigger, now: datetime) -> Turn | None:
    """Where the schedule stands, None without one. Of several times that were missed, the newest counts."""
    timetable = timetable_of(trigger)
    if timetable is None or trigger.spec.suspend:
        return None
    since = _since(trigger, timetable, now)
    newest = timetable.newest_within(since, now)
    if newest is None or not outbox_room(trigger.status):
        return Turn(since)
    if is_past_deadline(trigger, newest, now):
        return Turn(newest, missed=newest)
    event = StatusEvent(id=f"schedule-{write_time(newest)}", type=TYPE, time=newest)
    return Turn(since, due=Occurrence(event))


def is_past_deadline(trigger: Trigger, time: datetime, now: datetime) -> bool:
    """The schedule's time has passed for too long."""
    schedule = trigger.spec.when.schedule if trigger.spec.when else None
    deadline = schedule.starting_deadline_seconds if schedule else None
    return deadline is not None and now - time > timedelta(seconds=deadline)


def with_schedule(seen: Observed, status: TriggerStatus, now: datetime) -> TriggerStatus:
    """How far the schedule is after the pass: a time that is still to be tried again is not dealt with."""
    timetable, turn = timetable_of(seen.trigger), seen.turn
    if timetable is None or seen.trigger.spec.suspend:
        return status.model_copy(update={"schedule": None})
    if turn is None:
        return status
    since = turn.due.event.time if turn.due is not None and turn.due in seen.fresh else turn.since
    schedule = StatusSchedule(
        expression=timetable.expression, since=since, next=timetable.next_after(max(since, now))
    )
    missed = int(turn.missed is not None)
    counted = {"events": status.events + missed, "skipped": status.skipped + missed}
    return status.model_copy(update={"schedule": schedule, **counted})


def without_expired(seen: Observed, status: TriggerStatus, now: datetime) -> TriggerStatus:
    """A time that waited behind a running job for longer than its deadline starts nothing."""
    waiting = status.waiting
    if waiting is None or not is_past_deadline(seen.trigger, waiting.newest.time, now):
        return status
    return status.model_copy(update={"waiting": None, "skipped": status.skipped + waiting.events})


def wait_before_turn(status: TriggerStatus, now: datetime) -> float | None:
    """Seconds until the next time."""
    if status.schedule is None or status.schedule.next is None:
        return None
    if not outbox_room(status):
        return RECHECK
    return max(0.0, (status.schedule.next - now).total_seconds())


def _since(trigger: Trigger, timetable: Timetable, now: datetime) -> datetime:
    """What passed before a schedule was there, or while it was suspended, is not made up for."""
    before = trigger.status.schedule
    if before is not None and before.expression == timetable.expression:
        return before.since
    return now if trigger.status.observed_generation else trigger.created_at
