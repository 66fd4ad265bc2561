"""Which events stop waiting on the bus because they cannot be handled for now, and when they are tried again.

A message that has not ended takes one of the few places that a consumer has, so a trigger may hold up some
of them for a while only (`inbox.py`). Then its events are deferred: kept in the bucket, counted in the
status, and their messages are acknowledged. They are tried again from there, each for an object of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.crds.trigger import DEFERRED_IDS, StatusDeferred, StatusEvent, StatusGathered
from paddlewheel.operator.domain.plan import Applied, Trouble
from trigger_controller.domain import names
from trigger_controller.domain.model import Deferred, Observed, Occurrence
from trigger_controller.domain.policies.intake import RECENT, gather, join

MOST = 512
"""Events of one trigger that are kept one by one: they fit into an entry of the bucket, whatever they hold.
One object is created for those beyond, as for a batch, once the others have theirs."""
PROBES = 4
"""Deferred events that are tried while no creation succeeds."""
AT_ONCE = 64
"""Deferred events that are tried in one pass otherwise."""
ROTATE_EVERY = 300.0
"""Seconds after which others are tried."""


@dataclass(frozen=True)
class Change:
    """What a pass makes of the deferred events.

    Args:
        add: events to defer.
        ended: ids of those that were handled.
        rest_taken: those beyond `MOST`, as the status has taken them over.
    """

    at: datetime
    add: tuple[Occurrence, ...] = ()
    ended: frozenset[str] = frozenset()
    rest_taken: StatusGathered | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing has to be written."""
        return not (self.add or self.ended or self.rest_taken)


def changed(deferred: Deferred, change: Change) -> Deferred:
    """Idempotent: an event that comes again after it was added is still one."""
    left = {o.id: o for o in deferred.events if o.id not in change.ended}
    events = (*left.values(), *(o for o in change.add if not deferred.has(o.id)))
    beyond = events[MOST:]
    # Another replica may have added to them since.
    rest = None if deferred.rest == change.rest_taken else deferred.rest
    folded = (*deferred.folded, *(o.id for o in beyond))[-RECENT:]
    return Deferred(events[:MOST], gather(rest, beyond, change.at), folded)


def to_try(deferred: Deferred, status: TriggerStatus, now: datetime) -> tuple[Occurrence, ...]:
    """The same ones for a while, since each backs off by itself; then others, which may not fail."""
    size = PROBES if is_stuck(status) else AT_ONCE
    if len(deferred.events) <= size:
        return deferred.events
    start = int(now.timestamp() / ROTATE_EVERY) * size % len(deferred.events)
    return (deferred.events[start:] + deferred.events[:start])[:size]


def is_stuck(status: TriggerStatus) -> bool:
    """No creation succeeds, so new events are deferred without a try."""
    return status.deferred is not None and status.deferred.stuck


def change_after(seen: Observed, undone: frozenset[str], now: datetime) -> Change:
    """After a pass that left these events undone."""
    if seen.deferred is None:
        return Change(now)
    failed = (*(o for o in seen.fresh if o.id in undone), *seen.unclear)
    spent = (o for o in failed if o.id in seen.spent and not seen.deferred.has(o.id))
    change = Change(now, (*seen.postponed, *spent), seen.again - undone)
    after = changed(seen.deferred, change)
    return replace(change, rest_taken=None if after.events else after.rest)


def with_deferred(seen: Observed, status: TriggerStatus, change: Change, applied: Applied) -> TriggerStatus:
    """The status after the change; why the last try failed is told until another one has been made."""
    if seen.deferred is None:
        return status
    if change.rest_taken:
        status = _with_rest(status, seen.trigger.uid, change.rest_taken)
    after, told = changed(seen.deferred, change), status.deferred or StatusDeferred()
    if not after.count:
        return status.model_copy(update={"deferred": None})
    if trouble := _failure(seen, applied):
        told = StatusDeferred(reason=trouble.shown_reason, message=trouble.shown_message, stuck=True)
    times = [event.time for event in (*(o.event for o in after.events), *_newest(after.rest))]
    figures = {
        "events": after.count,
        "oldest": min(times),
        "newest": max(times),
        "ids": tuple(o.id for o in after.events[:DEFERRED_IDS]),
        "stuck": told.stuck and not applied.children,
    }
    return status.model_copy(update={"deferred": told.model_copy(update=figures)})


def _with_rest(status: TriggerStatus, uid: str, rest: StatusGathered) -> TriggerStatus:
    """Idempotent: killed before the bucket is changed, the service finds the rest there once more."""
    mark = names.digest(uid, f"rest/{rest.newest.id}")
    if mark in status.recent:
        return status
    waiting = join(rest, status.waiting) if status.waiting else rest
    recent = (*status.recent, mark)[-RECENT:]
    return status.model_copy(
        update={"waiting": waiting, "recent": recent, "events": status.events + rest.events}
    )


def _failure(seen: Observed, applied: Applied) -> Trouble | None:
    creations = tuple(t for t in applied.troubles if t.verb == "create" and not t.is_refusal)
    return Applied(troubles=creations or seen.troubles).first


def _newest(rest: StatusGathered | None) -> tuple[StatusEvent, ...]:
    return (rest.newest,) if rest else ()
