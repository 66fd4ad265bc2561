"""Listing a run, and publishing its chunks while the listing is still going on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial

import orjson
import structlog
import zstandard

from cache_runtime.domain.chunking import Limits, Splitter
from cache_runtime.domain.model import ListedChunk
from cache_runtime.domain.runs import Problem, is_recorded, repeated
from cache_runtime.operations.base import RunOperation
from cache_runtime.retrying import as_failure, persistently
from cache_runtime.timing import (
    LISTING_RETRY_INTERVAL_SECONDS,
    LISTING_RETRY_TIMEOUT_SECONDS,
    LONGEST_LISTING_RETRY_INTERVAL_SECONDS,
)
from cache_runtime.window import Window
from paddlewheel.bus.ports import WorkStore
from paddlewheel.contracts.generated.cache_v1 import Chunk, PartitionState, PartitionTotals, RunSpec
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.contracts.wire import from_json
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry

log = structlog.get_logger(__name__)

MAX_CHUNK = 64 << 20
"""Bytes of JSON that an agent unpacks at most."""


class Publication:
    """The chunks of one run. Publishing again is idempotent: chunks and their subjects are the same.

    Args:
        part: the record of a partition: chunks that it has are counted, and not published.
    """

    def __init__(
        self,
        spec: RunSpec,
        operation: RunOperation,
        work: WorkStore,
        limits: Limits,
        clock: Clock,
        part: Callable[[int], PartitionState],
    ) -> None:
        self._spec, self.operation, self._work, self._limits = spec, operation, work, limits
        self._clock, self._part = clock, part
        self._published: dict[int, int] = {}
        self._window = Window(clock, part, self._is_stored)
        self._recounts = False
        self._splitter = self._new_splitter()
        self._final: list[PartitionTotals] | None = None
        self.digest = 0
        """The digest of all files in the last complete listing."""
        self.remark = ""
        """The remarks of that listing on its files."""
        self._furthest, self._paused = 0, 0.0
        self.problem: Problem | None = None
        """Why nothing is listed at the moment."""
        self.is_listing = False

    @property
    def listed(self) -> bool:
        """Whether the totals are final."""
        return self._final is not None

    @property
    def totals(self) -> list[PartitionTotals]:
        """By partition, so far."""
        return self._final if self._final is not None else self._splitter.totals

    async def publish(self) -> None:
        """List, and publish everything that is not done.

        Raises:
            Permanent: the run can never be listed, or what it lists has been away for too long.
        """
        self._forget_published()
        self._furthest, self._paused = 0, 0.0
        self.is_listing = True
        try:
            await self._publish_repeatedly()
        finally:
            self.is_listing = False

    async def _publish_repeatedly(self) -> None:
        pause = LISTING_RETRY_INTERVAL_SECONDS
        while True:
            try:
                await self._publish_all()
            except (Retry, OSError) as failure:
                error = as_failure(failure)
                if isinstance(error, Permanent) or self._paused > LISTING_RETRY_TIMEOUT_SECONDS:
                    raise Permanent(error.reason, error.message) from error
                self.problem = Problem("ListingRetried", f"{error.message}; the listing is tried again")
                log.warning("listing failed", run=self._spec.run_id, problem=error.message, again_in=pause)
                await self._clock.sleep(pause)
                self._paused += pause
                pause = min(LONGEST_LISTING_RETRY_INTERVAL_SECONDS, 2 * pause)
            else:
                self.problem = None
                return

    def _forget_published(self) -> None:
        self._published.clear()
        self._window.clear()

    async def publish_recounts(self) -> None:
        """After all files are done: have each partition look up what its cache still holds of them.

        Each chunk was looked up right after it was warmed; the ones after it may have displaced it.
        """
        if self._final is None or not self.operation.fills_cache or self.operation.is_dry(self._spec):
            return
        self._recounts = True
        self._final = await self._put_recounts(self._final)

    async def _put_recounts(self, totals: Sequence[PartitionTotals]) -> list[PartitionTotals]:
        """The totals with them."""
        given = [index for index, total in enumerate(totals) if total.files]
        await self._put_all(ListedChunk(self._spec.run_id, index, totals[index].chunks) for index in given)
        return [
            total.model_copy(update={"chunks": total.chunks + 1}) if index in given else total
            for index, total in enumerate(totals)
        ]

    async def _publish_all(self) -> None:
        if self._spec.partitions < 1:
            raise Permanent("InvalidSpec", f"partitions: {self._spec.partitions} is below 1")
        self._splitter = self._new_splitter()
        count, remarks = 0, list[str]()
        async with aclosing(self.operation.list(self._spec)) as listing:
            async for batch in listing:
                remarks += [batch.remark] if batch.remark else []
                await self._put_all(self._splitter.add(batch.files, batch.partition))
                count += len(batch.files)
                self._note_advance(count)
        await self._put_all(self._splitter.flush())
        final = self._splitter.totals
        if self.operation.is_dry(self._spec):
            final = [total.model_copy(update={"chunks": 0}) for total in final]
        self._final = await self._put_recounts(final) if self._recounts else final
        self.digest, self.remark = self._splitter.digest, "; ".join(remarks)

    def _note_advance(self, count: int) -> None:
        """A listing that gets further than all before it is not failing, however often it stops."""
        if count > self._furthest:
            self._furthest, self._paused, self.problem = count, 0.0, None

    def _new_splitter(self) -> Splitter:
        return Splitter(self._spec.run_id, max(1, self._spec.partitions), self._limits)

    async def _put_all(self, chunks: Iterable[ListedChunk]) -> None:
        for chunk in chunks:
            if not self.operation.is_dry(self._spec) and not self._is_there(chunk):
                await self._wait_for_room()
                size = await persistently(partial(self._put, chunk), self._clock, self._tell)
                self._published[chunk.partition] = chunk.id + 1
                self._window.add(chunk, size)

    async def _wait_for_room(self) -> None:
        """Raises Retry, and has everything published again, when what is published may be lost."""
        try:
            await self._window.wait_for_room()
        except Retry:
            self._forget_published()
            raise

    async def _tell(self, error: Retry | None) -> None:
        self.problem = repeated(Reason.PUBLISHING_RETRIED, str(error)) if error else None

    def _is_there(self, chunk: ListedChunk) -> bool:
        """Most chunks of a listing that is repeated after an interruption are there."""
        is_published = chunk.id < self._published.get(chunk.partition, 0)
        return is_published or is_recorded(self._part(chunk.partition), chunk.id)

    async def _put(self, chunk: ListedChunk) -> int:
        """Bytes that it takes in the stream, its subject among them."""
        subject, data = self._subject(chunk.partition, chunk.id), pack(chunk)
        await self._work.put(subject, data)
        return len(subject) + len(data)

    async def _is_stored(self, partition: int, chunk: int) -> bool:
        """Whether the chunk is there, and agents can read it."""
        data = await persistently(lambda: self._work.get(self._subject(partition, chunk)), self._clock)
        return readable(data, self._spec.run_id, partition, chunk) is not None

    def _subject(self, partition: int, chunk: int) -> str:
        return work_subject(self._spec.set_uid, self._spec.run_id, partition, chunk)


def pack(chunk: ListedChunk) -> bytes:
    """A chunk on the wire: zstd over the proto3 JSON of `Chunk`."""
    files = [{"path": path, "size": str(size)} for path, size in chunk.files]
    message = {"runId": chunk.run_id, "id": str(chunk.id), "partition": chunk.partition, "files": files}
    return zstandard.ZstdCompressor(level=3).compress(orjson.dumps(message))


def readable(data: bytes | None, run_id: str, partition: int, number: int) -> Chunk | None:
    """The chunk of a partition with this id; None for what is not there or cannot be read: it counts as lost,
    and is published again."""
    if data is None:
        return None
    try:
        chunk = unpack(data)
    except Permanent as error:
        log.error("malformed chunk", run=run_id, problem=error.message)
        return None
    return chunk if (chunk.partition, chunk.id) == (partition, number) else None


def unpack(data: bytes) -> Chunk:
    """The inverse of `pack`. Raises Permanent when the data is not a chunk."""
    try:
        if zstandard.frame_content_size(data) > MAX_CHUNK:
            raise Permanent("MalformedChunk", f"more than {MAX_CHUNK} bytes")
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_CHUNK)
    except zstandard.ZstdError as error:
        raise Permanent("MalformedChunk", f"not zstd: {error}") from error
    return from_json(Chunk, raw)
