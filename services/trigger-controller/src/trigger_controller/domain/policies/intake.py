"""Decides for each new event whether it is skipped, fires at once, or is gathered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.crds.trigger import StatusEvent, StatusGathered
from paddlewheel.contracts.reasons import Reason
from trigger_controller.domain import names
from trigger_controller.domain.model import Observed, Occurrence, Trigger

RECENT = 256
"""Digests of events that a trigger keeps in its status. These are more than the unacknowledged messages of a
consumer, so no event counts twice after a crash. If the bus loses its data, these events are known exactly,
and others by their time (`known.py`)."""
MAX_CHAIN = 8
"""Triggers in a chain that leads to a job, at most."""


@dataclass(frozen=True)
class Intake:
    """The result of accepting new events.

    Args:
        status: the status, in which the events are counted.
        direct: events that fire at once.
        loop: why events were skipped because triggers led to them; "" if none were skipped.
    """

    status: TriggerStatus
    direct: tuple[Occurrence, ...] = ()
    loop: str = ""


def take_in(seen: Observed, now: datetime, *, gathers: bool) -> Intake:
    """Accept new events: count each one once, and decide what happens with it."""
    trigger, status = seen.trigger, seen.status
    new = _not_counted(trigger, seen.fresh)
    loops = [why for why in (_loop(trigger, o.event) for o in new.values()) if why]
    good = [] if trigger.spec.suspend else [o for o in new.values() if not _loop(trigger, o.event)]
    counted = status.model_copy(
        update={
            "events": status.events + len(new),
            "skipped": status.skipped + len(new) - len(good),
            "recent": (*status.recent, *new)[-RECENT:],
            "last_event_time": _newest_time(status, new.values()),
            "waiting": gather(status.waiting, good, now) if gathers else status.waiting,
        }
    )
    return Intake(counted, () if gathers else tuple(good), loops[0] if loops else "")


def gather(
    before: StatusGathered | None, occurrences: Iterable[Occurrence], now: datetime
) -> StatusGathered | None:
    """Add events to the gathered ones."""
    for occurrence in occurrences:
        one = alone(occurrence, now)
        before = join(before, one) if before else one
    return before


def alone(occurrence: Occurrence, now: datetime) -> StatusGathered:
    """A gathering of one event."""
    return StatusGathered(events=1, since=now, until=now, newest=occurrence.event)


def join(one: StatusGathered, other: StatusGathered) -> StatusGathered:
    """Join two gatherings. The values of the newest event fill the template."""
    older, newest = sorted((one.newest, other.newest), key=lambda event: event.time)
    # A trigger that led to any of the events has led to the object that is created for all of them.
    chain = (*(uid for uid in older.chain if uid not in newest.chain), *newest.chain)
    return StatusGathered(
        events=one.events + other.events,
        since=min(one.since, other.since),
        until=max(one.until, other.until),
        newest=newest.model_copy(update={"chain": chain}),
    )


def _not_counted(trigger: Trigger, fresh: Iterable[Occurrence]) -> dict[str, Occurrence]:
    known = set(trigger.status.recent)
    digests = ((names.digest(trigger.uid, o.id), o) for o in fresh)
    return {digest: occurrence for digest, occurrence in digests if digest not in known}


def _newest_time(status: TriggerStatus, new: Iterable[Occurrence]) -> datetime | None:
    times = (*(occurrence.event.time for occurrence in new), status.last_event_time)
    return max((time for time in times if time is not None), default=None)


def _loop(trigger: Trigger, event: StatusEvent) -> str:
    """Why the event is skipped: a job of this trigger led to it, or too many triggers did.

    "" if it is not.
    """
    about = f"{event.type} of {event.object_name}"
    if trigger.uid in event.chain:
        return (
            f"{Reason.OWN_WORK}: {about} is the result of a job that this trigger created; limit"
            " spec.when.fact.object (name or createdBy) to other objects"
        )
    if len(event.chain) >= MAX_CHAIN:
        return (
            f"{Reason.CHAIN_TOO_LONG}: {about} is the result of a chain of {len(event.chain)} triggers, at"
            f" most {MAX_CHAIN} are allowed; limit spec.when.fact.object"
        )
    return ""
