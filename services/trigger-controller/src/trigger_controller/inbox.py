"""Passes events from messages to reconciles.

A message is acknowledged when its event is recorded or deferred.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from trigger_controller.domain.model import Occurrence
from trigger_controller.timing import MESSAGE_RETRY_TIMEOUT_SECONDS

Items = dict["asyncio.Future[None]", Occurrence]

OF_TRIGGER = 4
OF_NAMESPACE = 8
OF_ALL = 16
"""Messages that may wait because of failures: for one trigger, for all triggers of a namespace, and for all
triggers. A consumer handles 32 messages at a time (`watch.SUBSCRIPTIONS`), which all triggers share."""


class Inbox:
    """The events that each trigger's next reconcile must handle.

    Args:
        wake: called to reconcile a trigger soon.
        clock: measures how long messages wait.
    """

    def __init__(self, wake: Callable[[Key], None], clock: Clock) -> None:
        self._wake = wake
        self._clock = clock
        self._items: dict[Key, Items] = {}
        self._held: dict[asyncio.Future[None], tuple[Key, float]] = {}

    async def offer(self, key: Key, occurrence: Occurrence) -> None:
        """Offer an event to a trigger. Return when the trigger has handled or deferred it.

        This waits for an unreachable API server or bus, without using up attempts of the message.
        """
        done = asyncio.get_running_loop().create_future()
        self._items.setdefault(key, {})[done] = occurrence
        self._wake(key)
        try:
            await done
        finally:
            self._held.pop(done, None)
            del self._items[key][done]
            if not self._items[key]:
                del self._items[key]

    def pending(self, key: Key) -> Items:
        """The events that were offered and not handled yet."""
        return dict(self._items.get(key, {}))

    def spent(self, key: Key) -> frozenset[str]:
        """The ids of events that may not wait if they cannot be handled now."""
        items, now = self.pending(key), self._clock.monotonic()
        others = [k for k, _ in self._held.values() if k != key]
        neighbours = sum(k.namespace == key.namespace for k in others)
        room = max(0, min(OF_TRIGGER, OF_NAMESPACE - neighbours, OF_ALL - len(others)))
        # Events that wait already keep their places.
        first = sorted(items, key=lambda done: self._since(done, now))[:room]
        ids = frozenset(occurrence.id for occurrence in items.values())
        return (ids - {items[done].id for done in first}) | self.overdue(key)

    def overdue(self, key: Key) -> frozenset[str]:
        """The ids of events that have waited for the maximum time."""
        now = self._clock.monotonic()
        held = (
            o.id
            for done, o in self.pending(key).items()
            if now - self._since(done, now) >= MESSAGE_RETRY_TIMEOUT_SECONDS
        )
        return frozenset(held)

    def hold(self, key: Key, items: Items, held: Container[str]) -> None:
        """Mark the events with these ids as waiting, because they could not be handled."""
        now = self._clock.monotonic()
        for done, occurrence in items.items():
            if occurrence.id in held and not done.done():
                self._held.setdefault(done, (key, now))

    def _since(self, done: asyncio.Future[None], now: float) -> float:
        return self._held.get(done, (None, now))[1]


def settle(items: Items, held: Container[str] = ()) -> None:
    """Mark events as handled, except those with the ids in `held`."""
    for done, occurrence in items.items():
        if not done.done() and occurrence.id not in held:
            done.set_result(None)
