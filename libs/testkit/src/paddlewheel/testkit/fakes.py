"""Fakes of a consumer's parts: messages, sources and dead letters that record what is done to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from paddlewheel.bus.consume.consumer import Consumer, run_consumer
from paddlewheel.bus.consume.dead_letter_limit import DeadLetterLimitError
from paddlewheel.bus.consume.handlers import Handlers
from paddlewheel.bus.consume.settle import ATTEMPT_MAX_INTERVAL_SECONDS, Identity, Message, Settler
from paddlewheel.bus.instruments import Instruments
from paddlewheel.bus.ports import Delivery, Handler, Subscription
from paddlewheel.contracts import wire
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.clock import ManualClock

AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class FakeMessage:
    """A message that records what is done to it."""

    sequence: int = 1
    uid: str = "uid-1"
    attempt: int = 1
    stream: str = "PW_JOBS"
    published_at: datetime = AT
    ends: list[str] = field(default_factory=list)
    unreachable: int = 0

    def __post_init__(self) -> None:
        job = ObjectRef(uid=self.uid)
        event = make_event(
            JobGated(job=job), id=str(self.sequence), source="t", namespace="ns", uid=self.uid, time=AT
        )
        self.subject = event.subject
        self.data, self.headers = wire.encode(event)

    @property
    def identity(self) -> Identity:
        return self.stream, self.sequence, self.published_at

    async def ack(self) -> None:
        self._end("ack")

    async def term(self) -> None:
        self._end("term")

    async def release(self, *, confirm: bool = False) -> None:
        self.ends.append("release")

    async def in_progress(self) -> None:
        self.ends.append("in_progress")

    def _end(self, how: str) -> None:
        if self.unreachable:
            self.unreachable -= 1
            raise Retry("BusUnreachable")
        self.ends.append(how)


@dataclass
class FakeDeadLetters:
    """Dead letters that may be unreachable, full, or without room because of earlier ones (`taken`)."""

    parked: list[tuple[int, str, int]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    unreachable: int = 0
    full: bool = False
    taken: bool = False
    asked: list[int] = field(default_factory=list)

    async def park(self, message: Message, error: Permanent, attempts: int) -> None:
        self._reach()
        if self.full:
            raise DeadLetterLimitError("no bytes left")
        self.parked.append((message.sequence, error.reason, attempts))
        self.messages.append(error.message)

    async def has_room(self, most: int) -> bool:
        self._reach()
        self.asked.append(most)
        return not self.full and not self.taken

    def _reach(self) -> None:
        if self.unreachable:
            self.unreachable -= 1
            raise Retry("BusUnreachable")


@dataclass
class ScriptedHandler:
    """A handler that raises each of `troubles` once, and then succeeds."""

    troubles: list[Exception]
    attempts: list[int] = field(default_factory=list)

    async def __call__(self, delivery: Delivery) -> None:
        self.attempts.append(delivery.attempt)
        if self.troubles:
            raise self.troubles.pop(0)


@dataclass
class ConsumerFakes:
    """Everything that a consumer needs, except its sources."""

    dead: FakeDeadLetters = field(default_factory=FakeDeadLetters)
    clock: ManualClock = field(default_factory=ManualClock)
    instruments: Instruments = field(default_factory=Instruments)
    stopped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.handlers = Handlers(self.clock)

    def settler(self, handle: Handler, max_attempts: int = 3) -> Settler:
        wanted = Subscription("d", "PW_JOBS", (">",), max_attempts=max_attempts)
        return Settler(wanted, handle, self.dead, self.clock, self.instruments, self.handlers)

    async def settle(self, settler: Settler, message: FakeMessage) -> None:
        """Return when the message has ended; the clock is moved as far as that takes."""
        task = asyncio.create_task(settler.settle(message))
        while not task.done():
            await self.clock.advance(ATTEMPT_MAX_INTERVAL_SECONDS)
        await task


@dataclass
class FakeSource:
    """Gives out prepared messages, then waits forever; closing it takes `closes_in` seconds."""

    messages: list[FakeMessage]
    rooms: list[int] = field(default_factory=list)
    closed: int = 0
    closes_in: float = 0.0

    async def fetch(self, room: int) -> list[Message]:
        self.rooms.append(room)
        if not self.messages:
            await asyncio.Event().wait()
        taken, self.messages = self.messages[:room], self.messages[room:]
        return list(taken)

    async def close(self, into: list[Message]) -> None:
        await asyncio.sleep(self.closes_in)
        self.closed += 1
        return


@asynccontextmanager
async def running(
    fakes: ConsumerFakes,
    source: FakeSource,
    handle: Handler,
    wanted: Subscription,
    again: FakeSource | None = None,
) -> AsyncIterator[None]:
    consumer = Consumer(
        wanted,
        handle,
        source,
        again or FakeSource([]),
        fakes.dead,
        fakes.clock,
        fakes.instruments,
        fakes.handlers,
        fakes.stopped,
    )
    task = asyncio.create_task(run_consumer(consumer))
    try:
        yield
    finally:
        await end(task)
