"""What becomes of each new event: skipped, fired at once, or gathered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from trigger_controller.domain import names
from trigger_controller.domain.model import Gathered, Observed, Occurrence, Status, Trigger

RECENT = 256
"""Events a trigger remembers in its own status. More than a durable consumer may have unacknowledged, so that
a crash after the status was written counts no event twice; and all there is should the bus lose its data."""
MAX_CHAIN = 8
"""Triggers that may lead to each other's work."""


@dataclass(frozen=True)
class Intake:
    """New events, sorted. `status` has them counted; `loop` says why some were held off."""

    status: Status
    direct: tuple[Occurrence, ...] = ()
    loop: str = ""


def take_in(seen: Observed, now: datetime, *, gathers: bool) -> Intake:
    """Count every event once, and sort it."""
    trigger = seen.trigger
    new = _not_counted(trigger, seen.fresh)
    loops = [why for why in (_loop(trigger, event) for event in new.values()) if why]
    good = [] if trigger.spec.suspend else [e for e in new.values() if not _loop(trigger, e)]
    status = trigger.status
    status = replace(
        status,
        events=status.events + len(new),
        skipped=status.skipped + len(new) - len(good),
        recent=(*status.recent, *new)[-RECENT:],
        waiting=gather(status.waiting, good, now) if gathers else status.waiting,
    )
    return Intake(status, () if gathers else tuple(good), loops[0] if loops else "")


def gather(before: Gathered | None, events: Iterable[Occurrence], now: datetime) -> Gathered | None:
    """Add events to those that wait."""
    for event in events:
        one = Gathered(1, now, now, event)
        before = join(before, one) if before else one
    return before


def join(one: Gathered, other: Gathered) -> Gathered:
    """Two gatherings as one; the newest event of both fills the template."""
    older, newest = sorted((one.newest, other.newest), key=lambda event: event.at)
    # Whoever led to any of the events has led to what is created for them all.
    chain = (*(uid for uid in older.chain if uid not in newest.chain), *newest.chain)
    since, until = min(one.since, other.since), max(one.until, other.until)
    return Gathered(one.events + other.events, since, until, replace(newest, chain=chain))


def _not_counted(trigger: Trigger, fresh: Iterable[Occurrence]) -> dict[str, Occurrence]:
    known = set(trigger.status.recent)
    digests = ((names.digest(trigger.uid, event.id), event) for event in fresh)
    return {digest: event for digest, event in digests if digest not in known}


def _loop(trigger: Trigger, event: Occurrence) -> str:
    """Why the event must not fire: this trigger's own work led to it, or too many triggers did."""
    about = f"{event.type} of {event.name}"
    if trigger.uid in event.chain:
        return (
            f"{names.OWN_WORK}: {about} comes from what this trigger created; narrow spec.when.fact.object"
            " (name or createdBy) to objects of others"
        )
    if len(event.chain) >= MAX_CHAIN:
        return (
            f"{names.CHAIN_TOO_LONG}: {about} is the work of {len(event.chain)} triggers in a row, at most"
            f" {MAX_CHAIN} may follow each other; narrow spec.when.fact.object"
        )
    return ""
