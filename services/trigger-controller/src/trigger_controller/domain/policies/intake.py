"""What becomes of each new event: skipped, fired at once, or gathered."""

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
"""Events a trigger remembers in its own status. More than a durable consumer may have unacknowledged, so that
a crash after the status was written counts no event twice. If the bus loses its data, these are known exactly
and others by their time (`known.py`)."""
MAX_CHAIN = 8
"""Triggers that may lead to each other's work."""


@dataclass(frozen=True)
class Intake:
    """New events, sorted. `status` has them counted; `loop` says why some were skipped as a loop."""

    status: TriggerStatus
    direct: tuple[Occurrence, ...] = ()
    loop: str = ""


def take_in(seen: Observed, now: datetime, *, gathers: bool) -> Intake:
    """Count every event once, and sort it."""
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
    """Add events to those that wait."""
    for occurrence in occurrences:
        one = alone(occurrence, now)
        before = join(before, one) if before else one
    return before


def alone(occurrence: Occurrence, now: datetime) -> StatusGathered:
    """One event by itself."""
    return StatusGathered(events=1, since=now, until=now, newest=occurrence.event)


def join(one: StatusGathered, other: StatusGathered) -> StatusGathered:
    """Two gatherings as one; the newest event of both fills the template."""
    older, newest = sorted((one.newest, other.newest), key=lambda event: event.time)
    # Whoever led to any of the events has led to what is created for them all.
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
    """Why the event must not fire: this trigger's own work led to it, or too many triggers did."""
    about = f"{event.type} of {event.object_name}"
    if trigger.uid in event.chain:
        return (
            f"{Reason.OWN_WORK}: {about} comes from what this trigger created; narrow spec.when.fact.object"
            " (name or createdBy) to objects of others"
        )
    if len(event.chain) >= MAX_CHAIN:
        return (
            f"{Reason.CHAIN_TOO_LONG}: {about} is the work of {len(event.chain)} triggers in a row, at most"
            f" {MAX_CHAIN} may follow each other; narrow spec.when.fact.object"
        )
    return ""
