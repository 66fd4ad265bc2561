"""Events on their way into reconciles: a message is acknowledged once its event is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container

from paddlewheel.contracts.keys import Key
from trigger_controller.domain.model import Occurrence

Items = dict["asyncio.Future[None]", Occurrence]


class Inbox:
    """What each trigger's next reconcile has to deal with.

    Args:
        wake: reconcile this trigger soon.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._items: dict[Key, Items] = {}

    async def offer(self, key: Key, occurrence: Occurrence) -> None:
        """Return when the trigger has dealt with the event; raises what its reconcile ended with.

        An unreachable API server or bus is waited for: the message stays ours, and no attempt is used up.
        """
        done = asyncio.get_running_loop().create_future()
        self._items.setdefault(key, {})[done] = occurrence
        self._wake(key)
        try:
            await done
        finally:
            del self._items[key][done]
            if not self._items[key]:
                del self._items[key]

    def pending(self, key: Key) -> Items:
        """Everything offered and not dealt with."""
        return dict(self._items.get(key, {}))


def settle(items: Items, held: Container[str] = (), error: Exception | None = None) -> None:
    """All but those with these ids were dealt with, or never will be because of the error."""
    for done, occurrence in items.items():
        if done.done() or occurrence.id in held:
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
