"""Decides which events are deferred because they cannot be handled, and when deferred events are tried again.

A message that is not acknowledged takes one of a consumer's few places. So a trigger may keep a few messages
waiting, and only for a short time (`inbox.py`). Then its events are deferred: they are stored in the bucket
and counted in the status, and their messages are acknowledged. From the bucket they are tried again, each for
an object of its own.
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
"""Deferred events that one pass tries while no creation succeeds."""
AT_ONCE = 64
"""Deferred events that one pass tries otherwise."""


@dataclass(frozen=True)
class Change:
    """A change of a trigger's deferred events.

    Args:
        add: events to defer.
        ended: ids of deferred events that were handled.
    """

    add: tuple[Occurrence, ...] = ()
    ended: frozenset[str] = frozenset()


def changed(deferred: Deferred, change: Change) -> Deferred:
    """The deferred events after a change. Idempotent: an event that was added before is not added again."""
    left = {o.id: o for o in deferred.events if o.id not in change.ended}
    events = (*left.values(), *(o for o in change.add if not deferred.has(o.id)))
    return replace(deferred, events=events)


def to_try(deferred: Deferred, status: TriggerStatus, now: datetime) -> tuple[Occurrence, ...]:
    """The deferred events to try in this pass.

    They stay the same for a while, because each one backs off by itself. Then others are tried, which may
    succeed.
    """
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
    """The newest deferred event at the beginning of the present interval; later ones are for the next
    interval."""
    since = now - timedelta(seconds=now.timestamp() % NEWEST_DEFERRED_INTERVAL_SECONDS)
    known = (o for o in deferred.events if o.event.time < since)
    return max(known, key=lambda o: o.event.time, default=None)


def is_stuck(status: TriggerStatus) -> bool:
    """Whether no creation succeeds at present, so that new events are deferred without an attempt."""
    return status.deferred is not None and status.deferred.stuck


def to_defer(seen: Observed, undone: frozenset[str]) -> tuple[Occurrence, ...]:
    """The events to defer after a pass. `undone` has the ids of the events whose creation failed."""
    if seen.deferred is None:
        return ()
    failed = (*(o for o in seen.fresh if o.id in undone), *seen.unclear)
    spent = (o for o in failed if o.id in seen.spent and not seen.deferred.has(o.id))
    return (*seen.postponed, *spent)


def find_lost(seen: Observed) -> int:
    """The number of deferred events that the bus has lost.

    Events are stored in the bucket before the status contains them (`reconciler.py`). The status also
    identifies their entry. If that entry is gone, at least one event is lost, even if more events were
    deferred since.
    """
    shown, deferred = seen.status.deferred, seen.deferred
    if shown is None or deferred is None or shown.store == deferred.store:
        return 0
    return max(1, shown.events - (deferred.count - len(seen.kept)))


def with_deferred(
    seen: Observed, status: TriggerStatus, undone: frozenset[str], applied: Applied
) -> TriggerStatus:
    """The status with the deferred events after the pass.

    It shows why the last attempt failed until there is another attempt.
    """
    if seen.deferred is None:
        return status
    status = status.model_copy(update={"lost": status.lost + find_lost(seen)})
    after, shown = (
        changed(seen.deferred, Change(ended=seen.again - undone)),
        status.deferred or StatusDeferred(),
    )
    if not after.count:
        return status.model_copy(update={"deferred": None})
    creations = tuple(t for t in applied.troubles if t.verb == "create" and not t.is_refusal)
    if trouble := Applied(troubles=creations or seen.troubles).first:
        # A failed read does not show whether creations succeed.
        stuck = bool(creations) or shown.stuck
        shown = StatusDeferred(reason=trouble.shown_reason, message=trouble.shown_message, stuck=stuck)
    figures = {
        "store": after.store,
        "events": after.count,
        "oldest": min(after.times),
        "newest": max(after.times),
        "ids": tuple(o.id for o in after.events[:DEFERRED_IDS]),
        "stuck": shown.stuck and not applied.children,
    }
    return status.model_copy(update={"deferred": shown.model_copy(update=figures)})
