"""The work queue in memory: items are redelivered when they are not acknowledged in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from paddlewheel.bus.memory.stream import Bell, MemoryStream, Stored
from paddlewheel.bus.ports import WorkItem
from paddlewheel.bus.streams import stream_of
from paddlewheel.contracts.wire import MESSAGE_ID
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent


@dataclass
class _Lease:
    """When an item is redelivered, by the monotonic clock, and how often it was delivered."""

    until: float = 0.0
    attempt: int = 0
    held: bool = False


@dataclass
class MemoryWorkItem:
    """One pulled item."""

    stored: Stored
    lease: _Lease
    attempt: int
    ack_wait: float
    clock: Clock
    stream: MemoryStream
    check_up: Callable[[], None]

    @property
    def data(self) -> bytes:
        return self.stored.data

    async def ack(self) -> None:
        self.check_up()
        self.stream.drop(self.stored.sequence)
        self._end(0.0)

    async def nak(self, delay: float) -> None:
        self._end(delay)

    async def in_progress(self) -> None:
        self.lease.until = self.clock.monotonic() + self.ack_wait

    def _end(self, delay: float) -> None:
        self.lease.held = False
        self.lease.until = self.clock.monotonic() + delay
        self.stream.bell.ring()


@dataclass
class MemoryWorkQueue:
    """WorkQueue over one memory stream."""

    stream: MemoryStream
    clock: Clock
    check_up: Callable[[], None]
    _leases: dict[int, _Lease] = field(default_factory=dict)

    async def enqueue(self, subject: str, data: bytes, *, message_id: str) -> None:
        self.check_up()
        if stream_of(subject).name != self.stream.spec.name:
            raise Permanent("NoStream", f"{subject} is not a work subject")
        self.stream.store(subject, data, {MESSAGE_ID: message_id})

    async def pull(
        self,
        subject: str,
        *,
        ack_wait: float = 60.0,
        inactive_after: float = 300.0,
        max_in_flight: int = 2,
    ) -> AsyncGenerator[WorkItem, None]:
        while True:
            stored = self._next(subject, max_in_flight)
            if stored is None:
                await self._change(subject)
                continue
            lease = self._leases.setdefault(stored.sequence, _Lease())
            lease.attempt, lease.held = lease.attempt + 1, True
            lease.until = self.clock.monotonic() + ack_wait
            yield MemoryWorkItem(
                stored, lease, lease.attempt, ack_wait, self.clock, self.stream, self.check_up
            )

    async def purge(self, subject: str) -> None:
        self.check_up()
        for stored in self.stream.after(0, (subject,)):
            self.stream.drop(stored.sequence)
        self.stream.bell.ring()

    def _next(self, subject: str, max_in_flight: int) -> Stored | None:
        now = self.clock.monotonic()
        for gone in self._leases.keys() - self.stream.messages.keys():
            del self._leases[gone]
        waiting = list(self.stream.after(0, (subject,)))
        leases = [self._leases.get(stored.sequence, _Lease()) for stored in waiting]
        if sum(lease.held and lease.until > now for lease in leases) >= max_in_flight:
            return None
        return next((s for s, lease in zip(waiting, leases, strict=True) if lease.until <= now), None)

    async def _change(self, subject: str) -> None:
        """Wait until the stream changes, or the next lease ends."""
        due = [
            self._leases[s.sequence].until
            for s in self.stream.after(0, (subject,))
            if s.sequence in self._leases
        ]
        now = self.clock.monotonic()
        await wait_for_bell(
            self.stream.bell, self.clock, min((d - now for d in due if d > now), default=None)
        )


async def wait_for_bell(bell: Bell, clock: Clock, at_most: float | None) -> None:
    """Return when the bell rings or after `at_most` seconds of the clock."""
    if at_most is None:
        await bell.wait()
        return
    waits = {asyncio.ensure_future(bell.wait()), asyncio.ensure_future(clock.sleep(at_most))}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
