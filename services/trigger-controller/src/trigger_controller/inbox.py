"""Events on their way into reconciles: a message is acknowledged once its event is recorded or deferred."""

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
"""Messages that may wait so for one trigger, for all of a namespace, and for all there are. A consumer takes
32 at a time (`watch.SUBSCRIPTIONS`), for everybody."""


class Inbox:
    """What each trigger's next reconcile has to deal with.

    Args:
        wake: reconcile this trigger soon.
    """

    def __init__(self, wake: Callable[[Key], None], clock: Clock) -> None:
        self._wake = wake
        self._clock = clock
        self._items: dict[Key, Items] = {}
        self._held: dict[asyncio.Future[None], tuple[Key, float]] = {}

    async def offer(self, key: Key, occurrence: Occurrence) -> None:
        """Return when the trigger has dealt with the event, or has deferred it.

        An unreachable API server or bus is waited for: the message stays ours, and no attempt is used up.
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
        """Everything offered and not dealt with."""
        return dict(self._items.get(key, {}))

    def spent(self, key: Key) -> frozenset[str]:
        """Ids of the events that may not wait (any longer) if they cannot be handled now."""
        items, now = self.pending(key), self._clock.monotonic()
        others = [k for k, _ in self._held.values() if k != key]
        neighbours = sum(k.namespace == key.namespace for k in others)
        room = max(0, min(OF_TRIGGER, OF_NAMESPACE - neighbours, OF_ALL - len(others)))
        # Those that wait already go first.
        first = sorted(items, key=lambda done: self._since(done, now))[:room]
        ids = frozenset(occurrence.id for occurrence in items.values())
        return (ids - {items[done].id for done in first}) | self.overdue(key)

    def overdue(self, key: Key) -> frozenset[str]:
        """Ids of the events that have waited for as long as they may."""
        now = self._clock.monotonic()
        held = (
            o.id
            for done, o in self.pending(key).items()
            if now - self._since(done, now) >= MESSAGE_RETRY_TIMEOUT_SECONDS
        )
        return frozenset(held)

    def hold(self, key: Key, items: Items, held: Container[str]) -> None:
        """Those with these ids could not be handled yet."""
        now = self._clock.monotonic()
        for done, occurrence in items.items():
            if occurrence.id in held and not done.done():
                self._held.setdefault(done, (key, now))

    def _since(self, done: asyncio.Future[None], now: float) -> float:
        return self._held.get(done, (None, now))[1]


def settle(items: Items, held: Container[str] = ()) -> None:
    """All but those with these ids were dealt with."""
    for done, occurrence in items.items():
        if not done.done() and occurrence.id not in held:
            done.set_result(None)
