"""One stream in memory: what JetStream stores, with deduplication, and a bell for waiting tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from paddlewheel.bus.streams import BUS_FULL, StreamSpec, matches
from paddlewheel.contracts.wire import MESSAGE_ID
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry


class Bell:
    """Wakes all waiting tasks, once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()


@dataclass(frozen=True)
class Stored:
    """One stored message."""

    stream: str
    sequence: int
    subject: str
    data: bytes
    headers: Mapping[str, str]
    at: datetime


@dataclass
class MemoryStream:
    """Messages by sequence."""

    spec: StreamSpec
    clock: Clock
    bell: Bell
    messages: dict[int, Stored] = field(default_factory=dict)
    last: int = 0
    created: datetime = field(init=False)
    size: int = 0
    _ids: dict[str, tuple[float, Stored]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.created = self.clock.now()

    def lose(self) -> None:
        """Start again, empty, as after a server lost its data."""
        self.messages.clear()
        self._ids.clear()
        self.last, self.size, self.created = 0, 0, self.clock.now()

    def store(self, subject: str, data: bytes, headers: Mapping[str, str]) -> Stored:
        """Append, or find what was stored under the message id within the duplicate window, on whatever
        subject. Raises Retry or Permanent.
        """
        size = size_of(data, headers)
        if 0 < self.spec.max_msg_size < size:
            raise Permanent("TooLarge", f"{subject}: {size} bytes, the bus takes {self.spec.max_msg_size}")
        message_id = headers.get(MESSAGE_ID, "")
        if known := self._known(message_id):
            return known
        if self.spec.discard == "new" and self.size + size > self.spec.max_bytes:
            raise Retry(BUS_FULL, f"{subject}: maximum bytes exceeded")
        if self.spec.discard_new_per_subject and self._held_by(subject) >= self.spec.max_msgs_per_subject:
            raise Retry(BUS_FULL, f"{subject}: maximum messages per subject exceeded")
        self.last += 1
        self.size += size
        stored = Stored(self.spec.name, self.last, subject, data, dict(headers), self.clock.now())
        self.messages[self.last] = stored
        if message_id:
            self._ids[message_id] = (self.clock.monotonic(), stored)
        self.bell.ring()
        return stored

    def after(self, sequence: int, filters: tuple[str, ...]) -> Iterator[Stored]:
        """Messages behind `sequence` that match a filter, in order."""
        for number, stored in list(self.messages.items()):
            if number > sequence and any(matches(f, stored.subject) for f in filters):
                yield stored

    def drop(self, sequence: int) -> None:
        """Remove one message; idempotent."""
        dropped = self.messages.pop(sequence, None)
        self.size -= size_of(dropped.data, dropped.headers) if dropped else 0

    def _held_by(self, subject: str) -> int:
        return sum(stored.subject == subject for stored in self.messages.values())

    def _known(self, message_id: str) -> Stored | None:
        forgotten = self.clock.monotonic() - self.spec.duplicate_window
        while self._ids and next(iter(self._ids.values()))[0] <= forgotten:
            del self._ids[next(iter(self._ids))]
        return self._ids[message_id][1] if message_id in self._ids else None


def size_of(data: bytes, headers: Mapping[str, str]) -> int:
    """Bytes of a message, as a limit counts them."""
    return len(data) + sum(len(k) + len(v) + 4 for k, v in headers.items())
