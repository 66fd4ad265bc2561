"""The agent of one partition of one run: pull a chunk, do it, record it, acknowledge it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace

import structlog

from cache_runtime.domain.model import Kind, Outcome, kind_of
from cache_runtime.domain.runs import all_failed, with_chunk
from cache_runtime.facts import Place
from cache_runtime.metrics import Metrics
from cache_runtime.ports import ChunkWorker
from cache_runtime.publication import unpack
from cache_runtime.records import Recorded, RunStore
from cache_runtime.retrying import persistently
from paddlewheel.bus.ports import WorkItem, WorkQueue
from paddlewheel.contracts.generated.cache_v1 import Chunk, PartitionState, RunSpec
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, Conflict, Permanent, Retry
from paddlewheel.core.tasks import end

log = structlog.get_logger(__name__)

MAX_ATTEMPTS = 10
"""Deliveries after which a chunk is given up: it would kill every agent."""


@dataclass(frozen=True)
class AgentTools:
    """What every agent needs, whatever the run."""

    place: Place
    store: RunStore
    work: WorkQueue
    clock: Clock
    metrics: Metrics
    workers: Mapping[Kind, ChunkWorker]
    ack_wait: float = 20.0
    """Seconds after which the chunk of an agent that died is handed out again."""


class Agent:
    """Works on one partition of one run until cancelled."""

    def __init__(self, spec: RunSpec, kind: Kind, tools: AgentTools) -> None:
        self._spec, self._kind, self._tools = spec, kind, tools
        self._partition = tools.place.partition
        self._recorded = Recorded(PartitionState(partition=self._partition), 0)

    async def run(self) -> None:
        """Pull and do chunks until cancelled."""
        await persistently(self._load, self._tools.clock)
        subject = work_subject(self._spec.set_uid, self._spec.run_id, self._partition)
        consumer = f"cache-{self._spec.run_id}-{self._partition}"
        wait = self._tools.ack_wait
        pulled = self._tools.work.pull(subject, consumer=consumer, ack_wait=wait, max_in_flight=1)
        async with aclosing(pulled) as items:
            async for item in items:
                await self._handle(item)

    async def _handle(self, item: WorkItem) -> None:
        """Effect, record, acknowledgement, in this order; what is recorded already is only acknowledged."""
        try:
            chunk = unpack(item.data)
        except Permanent as error:
            log.error("unreadable chunk dropped", run=self._spec.run_id, problem=error.message)
            await _acknowledge(item)
            return
        if chunk.id not in self._recorded.part.chunks:
            async with _kept(item, self._tools.ack_wait / 3):
                outcome = await self._do(chunk, item.attempt)
                await persistently(lambda: self._record(chunk, outcome), self._tools.clock)
            self._count(outcome)
        await _acknowledge(item)

    async def _do(self, chunk: Chunk, attempt: int) -> Outcome:
        if attempt > MAX_ATTEMPTS:
            return all_failed(chunk, f"given up after {attempt - 1} attempts")
        worker = self._tools.workers[self._kind]
        try:
            return await persistently(lambda: worker.work(self._spec, chunk), self._tools.clock)
        except Permanent as error:
            return all_failed(chunk, error.message)

    async def _load(self) -> None:
        self._recorded = await self._tools.store.part(self._spec.run_id, self._partition)

    async def _record(self, chunk: Chunk, outcome: Outcome) -> None:
        """Write the record once, whoever else writes it. Raises Retry."""
        part = with_chunk(self._recorded.part, chunk, outcome)
        place = self._tools.place
        signed = part.model_copy(
            update={"agent": place.pod, "node": place.node, "updated_at": self._tools.clock.now()}
        )
        wanted = replace(self._recorded, part=signed)
        try:
            revision = await self._tools.store.write_part(self._spec.run_id, wanted)
        except (AlreadyExists, Conflict) as error:
            # Written meanwhile: by a twin, or by us with the answer lost. What is recorded counts once.
            await self._load()
            if chunk.id not in self._recorded.part.chunks:
                raise Retry("PartitionMoved", "the partition's record changed", after=0.0) from error
            return
        self._recorded = Recorded(signed, revision)

    def _count(self, outcome: Outcome) -> None:
        self._tools.metrics.chunk_done(self._kind.value, outcome.files, outcome.bytes, len(outcome.failed))


def agent_for(spec: RunSpec, tools: AgentTools) -> Agent | None:
    """None when the run asks for nothing that this runtime knows."""
    kind = kind_of(spec)
    return Agent(spec, kind, tools) if kind else None


@asynccontextmanager
async def _kept(item: WorkItem, every: float) -> AsyncIterator[None]:
    """Tell the bus now and then that the chunk is still being worked on."""
    task = asyncio.create_task(_keep(item, every))
    try:
        yield
    finally:
        await end(task)


async def _keep(item: WorkItem, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        with suppress(Retry):
            await item.in_progress()


async def _acknowledge(item: WorkItem) -> None:
    """An acknowledgement that is lost brings the chunk back, which is then found recorded."""
    try:
        await item.ack()
    except Retry as error:
        log.info("acknowledgement lost", problem=str(error))
