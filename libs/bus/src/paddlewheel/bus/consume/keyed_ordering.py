"""Messages of one key are handled in order, those of different keys concurrently, within a limit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from paddlewheel.bus.consume.settle import Identity, Message

Settle = Callable[[Message], Awaitable[None]]


class Room:
    """The number of further messages of one source that may be held."""

    def __init__(self, bound: int) -> None:
        self._left = bound
        self._freed = asyncio.Event()

    async def left(self) -> int:
        """Wait until there is room for a message; returns the number of messages."""
        while self._left <= 0:
            self._freed.clear()
            await self._freed.wait()
        return self._left

    def take(self) -> None:
        self._left -= 1

    def give_back(self) -> None:
        self._left += 1
        self._freed.set()


class KeyedOrdering:
    """Messages that were taken and have not ended, in one queue per key."""

    def __init__(self, settle: Settle) -> None:
        self._settle = settle
        self._queues: dict[str, deque[Message]] = {}
        self._held: dict[Identity, tuple[Message, Room]] = {}

    def accept(self, message: Message, room: Room, tasks: asyncio.TaskGroup) -> None:
        """Queue a message behind earlier ones of its key. A message that is held already is ignored."""
        if message.identity in self._held:
            return
        room.take()
        self._held[message.identity] = message, room
        key = ordering_key(message.subject)
        if key in self._queues:
            self._queues[key].append(message)
            return
        self._queues[key] = deque((message,))
        tasks.create_task(self._run(key), name=f"messages of {key}")

    def held(self) -> tuple[Message, ...]:
        """All messages that were taken and have not ended."""
        return tuple(message for message, _ in self._held.values())

    async def _run(self, key: str) -> None:
        queue = self._queues[key]
        while queue:
            await self._settle(queue[0])
            _, room = self._held.pop(queue.popleft().identity)
            room.give_back()
        del self._queues[key]


def ordering_key(subject: str) -> str:
    """Events of one object share the last token of their subject, its uid."""
    return subject.rpartition(".")[2]
