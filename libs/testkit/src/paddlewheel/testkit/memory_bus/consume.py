"""Durable consumers in memory: the source of messages for `consumer`, and the messages themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from paddlewheel.bus.consume.settle import Identity, Message
from paddlewheel.testkit.memory_bus.stream import MemoryStream, Stored


@dataclass
class MemoryDurable:
    """A durable consumer as a server stores it."""

    filters: tuple[str, ...]
    position: int
    attempts: dict[int, int] = field(default_factory=dict)
    returned: dict[int, Stored] = field(default_factory=dict)
    pulls: int = 0


@dataclass
class _MemoryMessage:
    stored: Stored
    durable: MemoryDurable
    source: MemoryStream
    attempt: int

    @property
    def subject(self) -> str:
        return self.stored.subject

    @property
    def data(self) -> bytes:
        return self.stored.data

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.stored.headers)

    @property
    def stream(self) -> str:
        return self.stored.stream

    @property
    def sequence(self) -> int:
        return self.stored.sequence

    @property
    def published_at(self) -> datetime:
        return self.stored.at

    @property
    def identity(self) -> Identity:
        return self.stream, self.sequence, self.published_at

    async def ack(self) -> None:
        self.durable.attempts.pop(self.sequence, None)
        if self.source.spec.retention == "workqueue":
            self.source.drop(self.sequence)

    async def term(self) -> None:
        await self.ack()

    async def release(self, *, confirm: bool = False) -> None:
        self.durable.returned[self.sequence] = self.stored
        self.source.bell.ring()

    async def in_progress(self) -> None:
        return None


class MemorySource:
    def __init__(self, stream: MemoryStream, durable: MemoryDurable) -> None:
        self._stream = stream
        self._durable = durable

    async def fetch(self, room: int) -> list[Message]:
        self._durable.pulls += 1
        try:
            while not (found := self._take(room)):
                await self._stream.bell.wait()
        finally:
            self._durable.pulls -= 1
        return found

    async def close(self, into: list[Message]) -> None:
        return None

    def _take(self, room: int) -> list[Message]:
        durable = self._durable
        fresh = list(self._stream.after(durable.position, durable.filters))
        taken = [*sorted(durable.returned.values(), key=lambda s: s.sequence), *fresh][:room]
        return [self._deliver(stored) for stored in taken]

    def _deliver(self, stored: Stored) -> Message:
        durable = self._durable
        durable.returned.pop(stored.sequence, None)
        durable.position = max(durable.position, stored.sequence)
        attempt = durable.attempts.get(stored.sequence, 0) + 1
        durable.attempts[stored.sequence] = attempt
        return _MemoryMessage(stored, durable, self._stream, attempt)
