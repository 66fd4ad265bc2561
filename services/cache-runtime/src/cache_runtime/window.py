"""How much of a run is published ahead: the stream of the work is that of all data sets."""

from __future__ import annotations

from collections.abc import Callable

from paddlewheel.contracts.generated.cache_v1 import Chunk
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry

SIZE = 64 << 20
"""Bytes of published chunks that are not done, an eighth of the stream: lists of some million files."""
STALLED = 600.0
"""Seconds without a finished chunk after which those of a full window may be lost."""
LOOK = 0.5
"""Seconds between two looks at what is done."""


class Window:
    """The chunks of one run that are published and not done.

    Args:
        is_done: whether a chunk is recorded as finished.
    """

    def __init__(self, clock: Clock, is_done: Callable[[Chunk], bool]) -> None:
        self._clock, self._is_done = clock, is_done
        self._ahead: list[tuple[Chunk, int]] = []
        self._bytes = 0

    def clear(self) -> None:
        """Everything is going to be published again."""
        self._ahead, self._bytes = [], 0

    def add(self, chunk: Chunk, size: int) -> None:
        """Count a chunk of so many bytes that was published."""
        self._ahead.append((Chunk(partition=chunk.partition, id=chunk.id), size))
        self._bytes += size

    async def wait_for_room(self) -> None:
        """Once it is full, until half of it is done.

        Raises:
            Retry: nothing is done for long; agents do not tell what they miss before all is listed.
        """
        if self._bytes < SIZE:
            return
        since = self._clock.monotonic()
        while not self._has_room():
            await self._clock.sleep(LOOK)
            if self._forget_done():
                since = self._clock.monotonic()
            elif self._clock.monotonic() - since > STALLED:
                text = f"no chunk was finished for {STALLED:.0f} s; what is not done is published again"
                raise Retry("WorkStalled", text)

    def _has_room(self) -> bool:
        return self._bytes <= SIZE // 2

    def _forget_done(self) -> bool:
        """Whether there were any."""
        left = [(chunk, size) for chunk, size in self._ahead if not self._is_done(chunk)]
        was_any = len(left) < len(self._ahead)
        self._ahead, self._bytes = left, sum(size for _, size in left)
        return was_any
