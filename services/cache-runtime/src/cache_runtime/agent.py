"""The agent of one partition of one run: pull a chunk, execute it, record it, acknowledge it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace

import structlog

from cache_runtime.context import RunContext
from cache_runtime.domain.model import Outcome
from cache_runtime.domain.runs import all_failed, is_recorded, with_chunk
from cache_runtime.execution import execute_chunk
from cache_runtime.publication import unpack
from cache_runtime.records import Recorded
from cache_runtime.retrying import persistently
from paddlewheel.bus.ports import WorkItem
from paddlewheel.contracts.crds.operations import member_of
from paddlewheel.contracts.generated.cache_v1 import Chunk, PartitionState, RunSpec
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.core.errors import AlreadyExists, Conflict, Permanent, Retry
from paddlewheel.core.tasks import end

log = structlog.get_logger(__name__)

MAX_ATTEMPTS = 10
"""Deliveries after which a chunk counts as failed: it might kill every agent."""


class Agent:
    """Works on one partition of one run until cancelled."""

    def __init__(self, spec: RunSpec, context: RunContext) -> None:
        self._spec, self._context = spec, context
        self._operation = context.operation(spec)
        self._partition = context.identity.partition
        self._recorded = Recorded(PartitionState(partition=self._partition), 0)

    async def run(self) -> None:
        """Pull and execute chunks until cancelled."""
        await persistently(self._load, self._context.clock)
        subject = work_subject(self._spec.set_uid, self._spec.run_id, self._partition)
        wait = self._context.ack_wait
        pulled = self._context.work.pull(subject, ack_wait=wait, max_in_flight=1)
        async with aclosing(pulled) as items:
            async for item in items:
                await self._handle(item)

    async def _handle(self, item: WorkItem) -> None:
        """Execute, record, acknowledge, in this order; what is recorded already is only acknowledged."""
        try:
            chunk = unpack(item.data)
        except Permanent as error:
            log.error("malformed chunk dropped", run=self._spec.run_id, problem=error.message)
            await _acknowledge(item)
            return
        if not is_recorded(self._recorded.part, chunk):
            async with _in_progress(item, self._context.ack_wait / 3):
                outcome = await self._execute(chunk, item.attempt)
                await persistently(lambda: self._record(chunk, outcome), self._context.clock)
            self._count(outcome)
        await _acknowledge(item)

    async def _execute(self, chunk: Chunk, attempt: int) -> Outcome:
        if attempt > MAX_ATTEMPTS:
            return all_failed(chunk, f"failed after {attempt - 1} attempts")
        await self._context.mount.wait_mounted()
        clock = self._context.clock
        try:
            return await persistently(lambda: execute_chunk(self._operation, self._spec, chunk, clock), clock)
        except Permanent as error:
            return all_failed(chunk, error.message)

    async def _load(self) -> None:
        self._recorded = await self._context.store.part(self._spec.run_id, self._partition)

    async def _record(self, chunk: Chunk, outcome: Outcome) -> None:
        """Record the chunk exactly once. Raises Retry when the record changed meanwhile."""
        part = with_chunk(self._recorded.part, chunk, outcome)
        identity = self._context.identity
        signed = part.model_copy(
            update={"agent": identity.pod, "node": identity.node, "updated_at": self._context.clock.now()}
        )
        wanted = replace(self._recorded, part=signed)
        try:
            revision = await self._context.store.write_part(self._spec.run_id, wanted)
        except (AlreadyExists, Conflict) as error:
            # Written meanwhile: by another process of this pod, or by this one with the response lost.
            await self._load()
            if not is_recorded(self._recorded.part, chunk):
                raise Retry("PartitionMoved", "the partition's record changed", after=0.0) from error
            return
        self._recorded = Recorded(signed, revision)

    def _count(self, outcome: Outcome) -> None:
        operation = member_of(self._spec)
        self._context.metrics.chunk_done(operation, outcome.files, outcome.bytes, len(outcome.failed))


@asynccontextmanager
async def _in_progress(item: WorkItem, every: float) -> AsyncIterator[None]:
    """Extend the acknowledgement deadline while the chunk is being executed."""
    task = asyncio.create_task(_report_progress(item, every))
    try:
        yield
    finally:
        await end(task)


async def _report_progress(item: WorkItem, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        with suppress(Retry):
            await item.in_progress()


async def _acknowledge(item: WorkItem) -> None:
    """After a lost acknowledgement the chunk is delivered again, and found recorded."""
    try:
        await item.ack()
    except Retry as error:
        log.info("acknowledgement lost", problem=str(error))
