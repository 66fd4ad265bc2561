"""The state of the memory bus."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paddlewheel.bus.admin.inspect import BusStatus, DurableStatus, StreamStatus
from paddlewheel.core.clock import Clock
from paddlewheel.testkit.memory_bus.consume import MemoryDurable
from paddlewheel.testkit.memory_bus.stream import MemoryStream


class MemoryInspector:
    """Inspector over the memory bus; it keeps nothing on disk and cannot drift."""

    def __init__(
        self,
        streams: Mapping[str, MemoryStream],
        durables: Mapping[tuple[str, str], MemoryDurable],
        clock: Clock,
        check_up: Callable[[], None],
    ) -> None:
        self._streams = streams
        self._durables = durables
        self._created = clock.now()
        self._check_up = check_up

    async def status(self) -> BusStatus:
        self._check_up()
        return BusStatus(
            streams=tuple(self._stream(stream) for stream in self._streams.values()),
            missing=(),
            durables=tuple(self._durable(*place) for place in self._durables),
            warnings=(),
        )

    def _stream(self, stream: MemoryStream) -> StreamStatus:
        return StreamStatus(
            name=stream.spec.name,
            messages=len(stream.messages),
            bytes=stream.size,
            max_bytes=stream.spec.max_bytes,
            consumers=sum(name == stream.spec.name for name, _ in self._durables),
            replicas=1,
            created=self._created,
            drift={},
        )

    def _durable(self, stream: str, name: str) -> DurableStatus:
        place = self._durables[stream, name]
        fresh = sum(1 for _ in self._streams[stream].after(place.position, place.filters))
        returned = len(place.returned)
        return DurableStatus(
            stream=stream,
            name=name,
            pending=fresh + returned,
            ack_pending=len(place.attempts) - returned,
            redelivered=sum(count > 1 for count in place.attempts.values()),
            pulls=place.pulls,
        )
