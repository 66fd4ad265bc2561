"""Chunks of work in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paddlewheel.bus.streams import stream_of
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.memory_bus.stream import MemoryStream


@dataclass
class MemoryWorkStore:
    """WorkStore over one memory stream."""

    stream: MemoryStream
    check_up: Callable[[], None]

    async def put(self, subject: str, data: bytes) -> None:
        self.check_up()
        if stream_of(subject).name != self.stream.spec.name:
            raise Permanent("NoStream", f"{subject} is not a work subject")
        self._remove(subject)
        self.stream.store(subject, data, {})

    async def get(self, subject: str) -> bytes | None:
        self.check_up()
        return next((stored.data for stored in self.stream.after(0, (subject,))), None)

    async def drop(self, subject: str) -> None:
        self.check_up()
        self._remove(subject)

    async def purge(self, subject: str) -> None:
        self.check_up()
        self._remove(subject)

    def _remove(self, pattern: str) -> None:
        for stored in self.stream.after(0, (pattern,)):
            self.stream.drop(stored.sequence)
