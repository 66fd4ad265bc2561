"""The history of streams in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.streams import stream_named, stream_of
from paddlewheel.testkit.memory_bus.stream import MemoryStream


class MemoryHistory:
    """FactHistory over memory streams. `epoch` counts the losses that a test has caused."""

    def __init__(self, streams: Mapping[str, MemoryStream], check_up: Callable[[], None]) -> None:
        self._streams = streams
        self._check_up = check_up
        self.epoch = 0

    async def last(self, subject: str) -> RawMessage | None:
        stream = self._streams[stream_of(subject).name]
        self._check_up()
        found = [m for m in stream.messages.values() if m.subject == subject]
        return RawMessage(subject, found[-1].data, found[-1].headers) if found else None

    async def whole_since(self, stream: str) -> datetime | None:
        spec = stream_named(stream)
        self._check_up()
        held = self._streams[spec.name]
        return held.created if len(held.messages) == held.last else None
