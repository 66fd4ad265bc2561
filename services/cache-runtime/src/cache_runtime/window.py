"""How much of a run is published ahead: the stream of the work is that of all data sets."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable

from cache_runtime.domain.model import ListedChunk
from cache_runtime.domain.runs import is_recorded, next_chunk
from cache_runtime.timing import WINDOW_CHECK_INTERVAL_SECONDS, WINDOW_STALL_TIMEOUT_SECONDS
from paddlewheel.contracts.generated.cache_v1 import PartitionState
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry

SIZE = 64 << 20
"""Bytes of published chunks that are not done, an eighth of the stream: lists of some million files."""


class Window:
    """The chunks of one run that are published and not done.

    Args:
        part: the record of a partition.
        is_stored: whether the bus has the chunk of a partition with this id.
    """

    def __init__(
        self,
        clock: Clock,
        part: Callable[[int], PartitionState],
        is_stored: Callable[[int, int], Awaitable[bool]],
    ) -> None:
        self._clock, self._part, self._is_stored = clock, part, is_stored
        self._ahead: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)
        """By partition, which does them in this order: ids, and their bytes."""
        self._bytes = 0

    def clear(self) -> None:
        """Everything is going to be published again."""
        self._ahead.clear()
        self._bytes = 0

    def add(self, chunk: ListedChunk, size: int) -> None:
        """Count a chunk that was published, which takes so many bytes in the stream."""
        self._ahead[chunk.partition].append((chunk.id, size))
        self._bytes += size

    async def wait_for_room(self) -> None:
        """Once it is full, until half of it is done.

        Raises:
            Retry: nothing is done for long, and what is next is not there: agents do not tell what they miss
                before all is listed. Chunks that take long are waited for.
        """
        if self._bytes < SIZE:
            return
        since = self._clock.monotonic()
        while not self._has_room():
            await self._clock.sleep(WINDOW_CHECK_INTERVAL_SECONDS)
            if self._forget_done():
                since = self._clock.monotonic()
            elif self._clock.monotonic() - since > WINDOW_STALL_TIMEOUT_SECONDS:
                await self._check_stored()
                since = self._clock.monotonic()

    async def _check_stored(self) -> None:
        """Of each partition the chunk that its record lacks: one before those of the window, when the bus was
        restored from older data. Raises Retry when one is not there."""
        for partition in [partition for partition, ahead in self._ahead.items() if ahead]:
            number = next_chunk(self._part(partition))
            if not await self._is_stored(partition, number):
                text = f"chunk {number} of partition {partition} is lost"
                raise Retry("WorkStalled", f"{text}; what is not done is published again")

    def _has_room(self) -> bool:
        return self._bytes <= SIZE // 2

    def _forget_done(self) -> bool:
        """Whether there were any."""
        before = self._bytes
        for partition, ahead in self._ahead.items():
            while ahead and is_recorded(self._part(partition), ahead[0][0]):
                self._bytes -= ahead.popleft()[1]
        return self._bytes < before
