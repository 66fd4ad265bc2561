"""Listing a run and publishing its chunks while the listing still goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import structlog
import zstandard

from cache_runtime.domain.chunking import Limits, Splitter
from cache_runtime.domain.model import Cut, Kind, Totals, kind_of
from cache_runtime.domain.runs import clear_cuts, is_dry
from cache_runtime.ports import Lister
from cache_runtime.retrying import persistently
from paddlewheel.bus.ports import WorkQueue
from paddlewheel.contracts.generated.cache_v1 import Chunk, FileEntry, RunSpec
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry

log = structlog.get_logger(__name__)

TRIES = 3
MAX_CHUNK = 64 << 20
"""Bytes of a chunk's JSON that an agent is willing to unpack."""


class Publication:
    """The chunks of one run. Repeating it is harmless: chunks and message ids come out the same."""

    def __init__(
        self, spec: RunSpec, listers: Mapping[Kind, Lister], work: WorkQueue, limits: Limits, clock: Clock
    ) -> None:
        self._spec, self._listers, self._work, self._limits, self._clock = spec, listers, work, limits, clock
        self._splitter = Splitter(max(1, spec.partitions), limits)
        self._final: list[Totals] | None = None

    @property
    def listed(self) -> bool:
        """Are the totals final?"""
        return self._final is not None

    @property
    def totals(self) -> list[Totals]:
        """By partition, so far."""
        return self._final if self._final is not None else self._splitter.totals

    async def publish(self) -> None:
        """List and publish everything.

        Raises:
            Permanent: the run can never be listed, or the source failed again and again.
        """
        for attempt in range(1, TRIES + 1):
            try:
                await self._publish_all()
            except Retry as error:
                log.warning("listing failed", run=self._spec.run_id, problem=error.message, attempt=attempt)
                if attempt == TRIES:
                    raise Permanent(error.reason, error.message) from error
                await self._clock.sleep(2.0 ** (attempt - 1))
            else:
                return

    async def _publish_all(self) -> None:
        kind = kind_of(self._spec)
        if self._spec.partitions < 1:
            raise Permanent("InvalidSpec", f"partitions: {self._spec.partitions} is below 1")
        if kind is None:
            raise Permanent("UnknownOperation", "the run asks for no operation that this runtime knows")
        if kind is Kind.CLEAR:
            await self._publish_clear()
            return
        self._splitter = Splitter(max(1, self._spec.partitions), self._limits)
        async for batch in self._listers[kind].files(self._spec):
            await self._enqueue_all([cut for file in batch for cut in self._splitter.add(file)])
        await self._enqueue_all(list(self._splitter.flush()))
        self._final = self._splitter.totals
        if is_dry(self._spec):
            self._final = [Totals(total.files, total.bytes, 0) for total in self._final]

    async def _publish_clear(self) -> None:
        cuts = clear_cuts(self._spec)
        await self._enqueue_all(cuts)
        chosen = {cut.partition for cut in cuts}
        every = range(self._spec.partitions)
        self._final = [Totals(1, 0, 1) if p in chosen else Totals() for p in every]

    async def _enqueue_all(self, cuts: Iterable[Cut]) -> None:
        if is_dry(self._spec):
            return
        for cut in cuts:
            await persistently(partial(self._enqueue, cut), self._clock)

    async def _enqueue(self, cut: Cut) -> None:
        subject = work_subject(self._spec.set_uid, self._spec.run_id, cut.partition)
        message_id = f"{self._spec.run_id}/{cut.partition}/{cut.id}"
        await self._work.enqueue(subject, pack(self._spec.run_id, cut), message_id=message_id)


def pack(run_id: str, cut: Cut) -> bytes:
    """A chunk on the wire: zstd over proto3 JSON."""
    files = [FileEntry.model_construct(path=file.path, size=file.size) for file in cut.files]
    chunk = Chunk(run_id=run_id, id=cut.id, partition=cut.partition, files=files)
    return zstandard.ZstdCompressor(level=3).compress(to_json(chunk))


def unpack(data: bytes) -> Chunk:
    """The inverse of `pack`. Raises Permanent when it is no chunk."""
    try:
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_CHUNK)
    except zstandard.ZstdError as error:
        raise Permanent("MalformedChunk", f"not zstd: {error}") from error
    return from_json(Chunk, raw)
