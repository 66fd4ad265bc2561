"""Which events stop waiting on the bus because they cannot be handled for now, and when they are tried again.

A message that has not ended takes one of the few places that a consumer has, so a trigger may hold up some
of them for a while only (`inbox.py`). Then its events are deferred: kept in the bucket, counted in the
status, and their messages are acknowledged. They are tried again from there, each for an object of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.crds.trigger import DEFERRED_IDS, StatusDeferred
from paddlewheel.operator.domain.plan import Applied
from trigger_controller.domain.model import Deferred, Observed, Occurrence
from trigger_controller.timing import DEFERRED_ROTATION_INTERVAL_SECONDS, NEWEST_DEFERRED_INTERVAL_SECONDS

PROBES = 4
"""Deferred events that are tried while no creation succeeds."""
AT_ONCE = 64
"""Deferred events that are tried in one pass otherwise."""


@dataclass(frozen=True)
class Change:
    """What a pass makes of the deferred events.

    Args:
        add: events to defer.
        ended: ids of those that were handled.
    """

    add: tuple[Occurrence, ...] = ()
    ended: frozenset[str] = frozenset()


def changed(deferred: Deferred, change: Change) -> Deferred:
    """Idempotent: an event that comes again after it was added is still one."""
    left = {o.id: o for o in deferred.events if o.id not in change.ended}
    events = (*left.values(), *(o for o in change.add if not deferred.has(o.id)))
    return replace(deferred, events=events)


def to_try(deferred: Deferred, status: TriggerStatus, now: datetime) -> tuple[Occurrence, ...]:
    """The same ones for a while, since each backs off by itself; then others, which may not fail."""
    if not is_stuck(status):
        return _turn(deferred, AT_ONCE, now)
    tried, newest = _turn(deferred, PROBES, now), _newest(deferred, now)
    return tried if newest is None or newest in tried else (*tried, newest)


def _turn(deferred: Deferred, size: int, now: datetime) -> tuple[Occurrence, ...]:
    if len(deferred.events) <= size:
        return deferred.events
    start = int(now.timestamp() / DEFERRED_ROTATION_INTERVAL_SECONDS) * size % len(deferred.events)
    return (deferred.events[start:] + deferred.events[:start])[:size]


def _newest(deferred: Deferred, now: datetime) -> Occurrence | None:
    """The same one until the time is over, however many come meanwhile."""
    since = now - timedelta(seconds=now.timestamp() % NEWEST_DEFERRED_INTERVAL_SECONDS)
    known = (o for o in deferred.events if o.event.time < since)
    return max(known, key=lambda o: o.event.time, default=None)


def is_stuck(status: TriggerStatus) -> bool:
    """No creation succeeds, so new events are deferred without a try."""
    return status.deferred is not None and status.deferred.stuck


def to_defer(seen: Observed, undone: frozenset[str]) -> tuple[Occurrence, ...]:
    """What stops waiting on the bus, after actions that left these events undone."""
    if seen.deferred is None:
        return ()
    failed = (*(o for o in seen.fresh if o.id in undone), *seen.unclear)
    spent = (o for o in failed if o.id in seen.spent and not seen.deferred.has(o.id))
    return (*seen.postponed, *spent)


def find_lost(seen: Observed) -> int:
    """How many deferred events the bus has lost.

    What the status tells of was in the bucket before (`reconciler.py`), in the entry that it tells. If that
    is gone, so is at least one event, although the status may not tell of all that were deferred since.
    """
    told, deferred = seen.status.deferred, seen.deferred
    if told is None or deferred is None or told.store == deferred.store:
        return 0
    return max(1, told.events - (deferred.count - len(seen.kept)))


def with_deferred(
    seen: Observed, status: TriggerStatus, undone: frozenset[str], applied: Applied
) -> TriggerStatus:
    """The status after the pass; why the last try failed is told until another one has been made."""
    if seen.deferred is None:
        return status
    status = status.model_copy(update={"lost": status.lost + find_lost(seen)})
    after, told = (
        changed(seen.deferred, Change(ended=seen.again - undone)),
        status.deferred or StatusDeferred(),
    )
    if not after.count:
        return status.model_copy(update={"deferred": None})
    creations = tuple(t for t in applied.troubles if t.verb == "create" and not t.is_refusal)
    if trouble := Applied(troubles=creations or seen.troubles).first:
        # A read that failed says nothing about creations.
        stuck = bool(creations) or told.stuck
        told = StatusDeferred(reason=trouble.shown_reason, message=trouble.shown_message, stuck=stuck)
    figures = {
        "store": after.store,
        "events": after.count,
        "oldest": min(after.times),
        "newest": max(after.times),
        "ids": tuple(o.id for o in after.events[:DEFERRED_IDS]),
        "stuck": told.stuck and not applied.children,
    }
    return status.model_copy(update={"deferred": told.model_copy(update=figures)})
