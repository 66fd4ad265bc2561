"""One lane per object keeps its messages in order, lanes run side by side, bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from paddlewheel.bus.consume.settle import Identity, Message

Settle = Callable[[Message], Awaitable[None]]


class Room:
    """How many more messages of one source may be held."""

    def __init__(self, bound: int) -> None:
        self._left = bound
        self._freed = asyncio.Event()

    async def left(self) -> int:
        """Wait until another message may come; returns how many."""
        while self._left <= 0:
            self._freed.clear()
            await self._freed.wait()
        return self._left

    def take(self) -> None:
        self._left -= 1

    def give_back(self) -> None:
        self._left += 1
        self._freed.set()


class Lanes:
    """Messages taken and not yet ended, by object."""

    def __init__(self, settle: Settle) -> None:
        self._settle = settle
        self._lanes: dict[str, deque[Message]] = {}
        self._held: dict[Identity, tuple[Message, Room]] = {}

    def accept(self, message: Message, room: Room, tasks: asyncio.TaskGroup) -> None:
        """Queue behind earlier messages of the same object; one that is held already is dropped."""
        if message.identity in self._held:
            return
        room.take()
        self._held[message.identity] = message, room
        key = lane_of(message.subject)
        if key in self._lanes:
            self._lanes[key].append(message)
            return
        self._lanes[key] = deque((message,))
        tasks.create_task(self._run(key), name=f"lane {key}")

    def held(self) -> tuple[Message, ...]:
        """Everything taken and not ended."""
        return tuple(message for message, _ in self._held.values())

    async def _run(self, key: str) -> None:
        lane = self._lanes[key]
        while lane:
            await self._settle(lane[0])
            _, room = self._held.pop(lane.popleft().identity)
            room.give_back()
        del self._lanes[key]


def lane_of(subject: str) -> str:
    """Events of one object share the last token, its uid."""
    return subject.rpartition(".")[2]
