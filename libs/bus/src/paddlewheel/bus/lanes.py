"""Running handlers: one lane per object keeps its messages in order, lanes run side by side, bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from paddlewheel.bus.instruments import Instruments
from paddlewheel.bus.ports import Handler, Subscription
from paddlewheel.bus.settle import DeadLetters, Identity, Message, Settler, identity
from paddlewheel.core.clock import Clock

Settle = Callable[[Message], Awaitable[None]]

_MARKS_PER_ACK_WAIT = 3


class Source(Protocol):
    """Where a consumer's messages come from."""

    async def fetch(self, room: int) -> Sequence[Message]:
        """Wait for at least one message, return at most `room`; reconnects by itself."""
        ...


class Lanes:
    """Messages taken and not yet ended, by object."""

    def __init__(self, settle: Settle, bound: int) -> None:
        self._settle = settle
        self._bound = bound
        self._freed = asyncio.Event()
        self._lanes: dict[str, deque[Message]] = {}
        self._held: dict[Identity, Message] = {}

    def accept(self, message: Message, tasks: asyncio.TaskGroup) -> None:
        """Queue behind earlier messages of the same object; one that is held already is dropped."""
        if identity(message) in self._held:
            return
        self._held[identity(message)] = message
        key = lane_of(message.subject)
        if key in self._lanes:
            self._lanes[key].append(message)
            return
        self._lanes[key] = deque((message,))
        tasks.create_task(self._run(key), name=f"lane {key}")

    async def room(self) -> int:
        """Wait until another message may come; returns how many."""
        while len(self._held) >= self._bound:
            self._freed.clear()
            await self._freed.wait()
        return self._bound - len(self._held)

    def held(self) -> tuple[Message, ...]:
        """Everything taken and not ended."""
        return tuple(self._held.values())

    async def _run(self, key: str) -> None:
        lane = self._lanes[key]
        while lane:
            await self._settle(lane[0])
            del self._held[identity(lane.popleft())]
            self._freed.set()
        del self._lanes[key]


def lane_of(subject: str) -> str:
    """Events of one object share the last token, its uid."""
    return subject.rpartition(".")[2]


async def run_consumer(
    source: Source,
    subscription: Subscription,
    handle: Handler,
    dead: DeadLetters,
    clock: Clock,
    instruments: Instruments,
) -> None:
    """Fetch, handle and settle until cancelled; what is then unsettled goes back to the server."""
    settler = Settler(subscription, handle, dead, clock, instruments)
    lanes = Lanes(settler.settle, subscription.max_in_flight)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_keep_ours(lanes, subscription.ack_wait, clock), name="in-progress marks")
            while True:
                for message in await source.fetch(await lanes.room()):
                    lanes.accept(message, tasks)
    finally:
        for message in lanes.held():
            await message.release()


async def _keep_ours(lanes: Lanes, ack_wait: float, clock: Clock) -> None:
    while True:
        await clock.sleep(ack_wait / _MARKS_PER_ACK_WAIT)
        for message in lanes.held():
            await message.in_progress()
