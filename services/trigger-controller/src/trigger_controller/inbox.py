"""Events on their way into reconciles: a message is acknowledged once its event is recorded."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paddlewheel.contracts.keys import Key
from trigger_controller.domain.model import Occurrence


@dataclass(frozen=True, eq=False)
class Item:
    """One event for one trigger, and who waits for it."""

    occurrence: Occurrence
    done: asyncio.Future[None]


class Inbox:
    """What each trigger's next reconcile has to deal with.

    Args:
        wake: reconcile this trigger soon.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._items: dict[Key, list[Item]] = defaultdict(list)

    async def offer(self, key: Key, occurrence: Occurrence) -> None:
        """Return when the trigger has dealt with the event; raises what its reconcile ended with.

        An unreachable API server or bus is waited for: the message stays ours, and no attempt is used up.
        """
        item = Item(occurrence, asyncio.get_running_loop().create_future())
        self._items[key].append(item)
        self._wake(key)
        try:
            await item.done
        finally:
            self._items[key].remove(item)
            if not self._items[key]:
                del self._items[key]

    def pending(self, key: Key) -> tuple[Item, ...]:
        """Everything offered and not dealt with."""
        return tuple(self._items.get(key, ()))

    def settle(self, items: Iterable[Item], error: Exception | None = None) -> None:
        """These were dealt with, or never will be."""
        for item in items:
            if item.done.done():
                continue
            if error is None:
                item.done.set_result(None)
            else:
                item.done.set_exception(error)
