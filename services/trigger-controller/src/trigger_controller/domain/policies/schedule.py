"""Turns the times of a schedule into events, from the clock, the status and the existing jobs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from paddlewheel.contracts.base import write_time
from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.crds.trigger import StatusEvent, StatusGathered, StatusSchedule
from paddlewheel.contracts.stamps import parse_stamp
from trigger_controller.domain.facts import outbox_room
from trigger_controller.domain.model import Child, Observed, Occurrence, Trigger, Turn
from trigger_controller.domain.timetable import Timetable
from trigger_controller.timing import FUTURE_TIME_GRACE_SECONDS, RELEASE_RETRY_INTERVAL_SECONDS

TYPE = "Schedule"
"""The type of an event that is a time of a schedule."""
_ID = "schedule-"


def timetable_of(trigger: Trigger) -> Timetable | None:
    """The trigger's timetable; None without a schedule, or if it is invalid."""
    schedule = trigger.spec.when.schedule if trigger.spec.when else None
    if schedule is None or trigger.unscheduled:
        return None
    return Timetable(schedule.cron, schedule.time_zone)


def look(trigger: Trigger, children: Iterable[Child], now: datetime) -> Turn | None:
    """The state of the schedule; None without a schedule.

    If several times have passed, only the newest is due. A time whose job exists already, but is not
    recorded, comes first.
    """
    timetable = timetable_of(trigger)
    if timetable is None or trigger.spec.suspend:
        return None
    since = _since(trigger, timetable, now)
    if not outbox_room(trigger.status):
        return Turn(since, now)
    if made := _unrecorded(children, since, now):
        return Turn(since, now, due=_occurrence(made))
    newest = timetable.newest_within(since, now)
    if newest is None:
        return Turn(since, now)
    if _is_past_deadline(trigger, newest, now):
        return Turn(newest, now, missed=newest)
    return Turn(since, now, due=_occurrence(newest))


def time_of(event_id: str) -> datetime | None:
    """The scheduled time of an event; None for an event of another kind."""
    return parse_stamp(event_id.removeprefix(_ID)) if event_id.startswith(_ID) else None


def is_dealt_with(status: TriggerStatus, time: datetime) -> bool:
    """Whether the time cannot become due again: the schedule has passed it, or there is no schedule."""
    return status.schedule is None or time <= status.schedule.since


def with_schedule(seen: Observed, status: TriggerStatus) -> TriggerStatus:
    """The status with the schedule after the pass.

    A time that must be tried again does not count as handled.
    """
    timetable, turn = timetable_of(seen.trigger), seen.turn
    if timetable is None or turn is None:
        return status.model_copy(update={"schedule": None})
    since = turn.due.event.time if turn.due is not None and turn.due in seen.fresh else turn.since
    schedule = StatusSchedule(
        expression=timetable.expression, since=since, next=timetable.next_after(max(since, turn.looked_at))
    )
    missed = int(turn.missed is not None)
    counted = {"events": status.events + missed, "skipped": status.skipped + missed}
    return status.model_copy(update={"schedule": schedule, **counted})


def without_expired(
    seen: Observed, status: TriggerStatus, now: datetime
) -> tuple[TriggerStatus, tuple[datetime, ...]]:
    """The status without expired times, and the expired times.

    A time that waits expires when its deadline has passed, or when the schedule was changed or suspended,
    unless its job exists already.
    """
    waiting = status.waiting if _is_expired(seen, status.waiting, now) else None
    firing = status.firing if _is_expired(seen, status.firing, now) and not _is_made(seen, status) else None
    gone = [gathered for gathered in (firing, waiting) if gathered is not None]
    if not gone:
        return status, ()
    changes = {
        "waiting": None if waiting else status.waiting,
        "firing": None if firing else status.firing,
        "skipped": status.skipped + sum(gathered.events for gathered in gone),
    }
    return status.model_copy(update=changes), tuple(gathered.newest.time for gathered in gone)


def wait_before_turn(status: TriggerStatus, now: datetime) -> float | None:
    """Seconds until the next scheduled time; None if there is none."""
    if status.schedule is None or status.schedule.next is None:
        return None
    if not outbox_room(status):
        return RELEASE_RETRY_INTERVAL_SECONDS
    return max(0.0, (status.schedule.next - now).total_seconds())


def _occurrence(time: datetime) -> Occurrence:
    return Occurrence(StatusEvent(id=f"{_ID}{write_time(time)}", type=TYPE, time=time))


def _unrecorded(children: Iterable[Child], since: datetime, now: datetime) -> datetime | None:
    """The first time whose job exists but is not recorded, because the service was killed or got no
    answer."""
    times = (time_of(child.event_id) for child in children)
    return min((time for time in times if time is not None and since < time <= now), default=None)


def _is_expired(seen: Observed, gathered: StatusGathered | None, now: datetime) -> bool:
    if gathered is None or gathered.newest.type != TYPE:
        return False
    timetable, before = timetable_of(seen.trigger), seen.status.schedule
    is_followed = timetable is not None and seen.turn is not None
    is_changed = before is not None and timetable is not None and before.expression != timetable.expression
    return not is_followed or is_changed or _is_past_deadline(seen.trigger, gathered.newest.time, now)


def _is_made(seen: Observed, status: TriggerStatus) -> bool:
    made = {child.event_id for child in seen.children}
    return status.firing is not None and status.firing.newest.id in made


def _is_past_deadline(trigger: Trigger, time: datetime, now: datetime) -> bool:
    schedule = trigger.spec.when.schedule if trigger.spec.when else None
    deadline = schedule.starting_deadline_seconds if schedule else None
    return deadline is not None and now - time > timedelta(seconds=deadline)


def _since(trigger: Trigger, timetable: Timetable, now: datetime) -> datetime:
    """The time up to which all times are handled. Times before the schedule existed, or while it was
    suspended, count as handled."""
    before = trigger.status.schedule
    if before is not None and before.expression == timetable.expression:
        return before.since if before.since <= now + timedelta(seconds=FUTURE_TIME_GRACE_SECONDS) else now
    return now if trigger.status.observed_generation else trigger.created_at
