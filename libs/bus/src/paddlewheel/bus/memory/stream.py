"""One stream in memory: what JetStream stores, with duplicate removal, and a bell for those who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from paddlewheel.bus.streams import StreamSpec, matches
from paddlewheel.contracts.wire import MESSAGE_ID
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent


class Bell:
    """Wakes everybody who waits, once."""

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
    _ids: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.created = self.clock.now()

    def lose(self) -> None:
        """Made anew, empty, as after a server lost its data."""
        self.messages.clear()
        self._ids.clear()
        self.last, self.created = 0, self.clock.now()

    def store(self, subject: str, data: bytes, headers: Mapping[str, str]) -> None:
        """Append, unless the message id was stored within the duplicate window. Raises Permanent."""
        size = len(data) + sum(len(k) + len(v) + 4 for k, v in headers.items())
        if 0 < self.spec.max_msg_size < size:
            raise Permanent("TooLarge", f"{subject}: {size} bytes, the bus takes {self.spec.max_msg_size}")
        if self._is_repeated(headers.get(MESSAGE_ID, "")):
            return
        self.last += 1
        stored = Stored(self.spec.name, self.last, subject, data, dict(headers), self.clock.now())
        self.messages[self.last] = stored
        self.bell.ring()

    def after(self, sequence: int, filters: tuple[str, ...]) -> Iterator[Stored]:
        """Messages behind `sequence` that match a filter, in order."""
        for number, stored in list(self.messages.items()):
            if number > sequence and any(matches(f, stored.subject) for f in filters):
                yield stored

    def drop(self, sequence: int) -> None:
        """Remove one message; idempotent."""
        self.messages.pop(sequence, None)

    def _is_repeated(self, message_id: str) -> bool:
        if not message_id:
            return False
        now = self.clock.monotonic()
        if now - self._ids.get(message_id, float("-inf")) < self.spec.duplicate_window:
            return True
        self._ids[message_id] = now
        return False
