"""Chunks that were published, and that their agents do not find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cache_runtime.domain.runs import next_chunk
from paddlewheel.contracts.generated.cache_v1 import PartitionState
from paddlewheel.core.errors import Permanent

PUBLICATIONS = 3
"""Times that a lost chunk is published again before the run fails."""


class LostChunks:
    """What agents miss by their records, and how often it was published again since."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], int] = {}
        self._again: Counter[tuple[int, int]] = Counter()

    def found(self, parts: Mapping[int, PartitionState]) -> bool:
        """Whether some agent misses a chunk that was not published again since.

        Raises:
            Permanent: one was published again and again, and cannot be read.
        """
        lost = [place for place, count in _missed(parts).items() if count > self._seen.get(place, 0)]
        for partition, chunk in lost:
            if self._again[partition, chunk] >= PUBLICATIONS:
                text = f"chunk {chunk} of partition {partition} was published {PUBLICATIONS + 1} times"
                raise Permanent("WorkLost", f"{text}, and its agent cannot read it from the bus")
        self._again.update(lost)
        return bool(lost)

    def published(self, parts: Mapping[int, PartitionState]) -> None:
        """Everything was published again: what was missed until now does not count any more."""
        self._seen = _missed(parts)


def _missed(parts: Mapping[int, PartitionState]) -> dict[tuple[int, int], int]:
    """How often each chunk was missed, by partition and id."""
    return {(index, next_chunk(part)): part.lacking for index, part in parts.items() if part.lacking}
