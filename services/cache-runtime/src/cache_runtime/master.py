"""The master role of one run: claim it, list the run, sum up progress, send heartbeats, end the run."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from functools import partial

import structlog

from cache_runtime.context import RunContext
from cache_runtime.domain.losses import LostChunks
from cache_runtime.domain.runs import (
    HEARTBEAT,
    Claim,
    Ending,
    Problem,
    Progress,
    claimed,
    ended,
    is_done,
    is_news,
    is_recorded,
    judge,
    pace,
    progress,
    waiting,
    with_progress,
)
from cache_runtime.domain.shares import problems_of, stand_ins, unfinished
from cache_runtime.operations.base import RunOperation
from cache_runtime.presence import Presence
from cache_runtime.publication import Publication
from cache_runtime.retrying import persistently
from cache_runtime.tracker import RunTracker
from paddlewheel.contracts.crds.operations import member_of
from paddlewheel.contracts.generated.cache_v1 import Chunk, RunPhase, RunSpec, RunState, StandIn
from paddlewheel.contracts.subjects import work_filter
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Permanent, Retry
from paddlewheel.core.tasks import end

log = structlog.get_logger(__name__)


class RoleLostError(Exception):
    """Another process holds the master role now, whatever its pod's name."""


class Master:
    """Leads one run as long as it holds the role."""

    def __init__(self, spec: RunSpec, run: RunTracker, context: RunContext) -> None:
        self._spec, self._run, self._context = spec, run, context
        self._member = member_of(spec)
        self._publication: Publication | None = None
        self._state = RunState(run_id=spec.run_id)
        self._revision = 0
        self._written_at = 0.0
        self._ticks = 0
        self._presence = Presence(context.nodes, spec.set_uid, context.clock, context.away_after)
        self._parts_known = asyncio.Event()
        self._stand_ins: dict[int, int] = {}
        self._lost = LostChunks()

    async def lead(self, claim: Claim) -> None:
        """Claim the role and lead until the run has ended or the role is lost.

        Raises:
            Retry: the bus is away.
            RoleLostError: another process has taken the role.
        """
        if not await self._claim(claim):
            return
        log.info("leading run", run=self._spec.run_id, operation=self._member, term=self._state.term)
        await persistently(
            lambda: self._context.facts.run_started(self._spec, self._state), self._context.clock
        )
        await self._end(await self._lead())

    @property
    def _sums(self) -> Progress:
        return progress(list(self._run.records.parts.values()))

    async def _claim(self, claim: Claim) -> bool:
        current = self._run.records.state
        self._state = claimed(
            current, self._spec.run_id, self._context.identity.pod, self._context.clock.now()
        )
        try:
            if claim is Claim.CREATE:
                self._revision = await self._context.store.create_state(self._state)
            else:
                revision = self._run.records.state_revision
                self._revision = await self._context.store.update_state(self._state, revision)
        except (AlreadyExists, Conflict):
            return False
        self._written_at = self._context.clock.monotonic()
        return True

    async def _lead(self) -> Ending:
        """Record progress every tick while the run is being executed."""
        execution = asyncio.create_task(self._execute())
        watches = [asyncio.create_task(watch) for watch in (self._watch_parts(), self._presence.watch())]
        try:
            while not execution.done():
                if self._run.records.cancelled:
                    return Ending(RunPhase.CANCELLED)
                for watch in watches:
                    if watch.done():
                        watch.result()
                await self._record_progress()
                await asyncio.wait({execution}, timeout=self._context.tick)
            return execution.result()
        finally:
            await end(execution, *watches)

    async def _watch_parts(self) -> None:
        async with aclosing(self._context.store.watch_parts(self._spec.run_id)) as changes:
            async for change in changes:
                if change is None:
                    self._parts_known.set()
                else:
                    self._run.apply(*change)

    async def _execute(self) -> Ending:
        """From the listing to the end."""
        try:
            return await self._list_and_wait(self._context.operation(self._spec))
        except Permanent as error:
            return Ending(RunPhase.FAILED, error.reason, error.message)

    async def _list_and_wait(self, operation: RunOperation) -> Ending:
        context = self._context
        await self._parts_known.wait()
        chunks = Publication(
            self._spec, operation, context.work, context.limits, context.clock, self._is_recorded
        )
        self._publication = chunks
        await chunks.publish()
        await self._wait_done(chunks)
        await chunks.publish_recounts()
        await self._wait_done(chunks)
        if operation.is_dry(self._spec):
            return Ending(RunPhase.SUCCEEDED)
        ending = judge(chunks.totals, chunks.digest, self._sums, fills_cache=operation.fills_cache)
        if ending.phase is RunPhase.SUCCEEDED:
            await persistently(partial(operation.finish, self._spec), context.clock)
        return ending

    async def _wait_done(self, chunks: Publication) -> None:
        """Publishes again what is lost meanwhile."""
        while not is_done(chunks.listed, chunks.totals, self._run.records.parts):
            if self._lost.found(self._run.records.parts):
                log.warning("chunks are lost and published again", run=self._spec.run_id)
                await chunks.publish()
                self._lost.published(self._run.records.parts)
            await self._run.wait_changed(self._context.tick)

    async def _record_progress(self) -> None:
        """Write the state if it changed or the heartbeat is due; publish progress if it changed."""
        sums = self._sums
        state = self._with_shares(self._with_sums(sums))
        changed = state != self._state
        wait = pace(self._spec.partitions) if changed else HEARTBEAT
        is_due = self._context.clock.monotonic() - self._written_at >= wait
        if not is_due and not is_news(self._state, state):
            return
        self._state = state.model_copy(update={"heartbeat": self._context.clock.now()})
        with suppress(Retry):
            await self._write()
        if changed:
            self._ticks += 1
            await self._context.facts.run_progressed(self._spec, self._state, sums, self._ticks)

    def _is_recorded(self, chunk: Chunk) -> bool:
        part = self._run.records.parts.get(chunk.partition)
        return part is not None and is_recorded(part, chunk)

    def _with_shares(self, state: RunState) -> RunState:
        """With who stands in for partitions that are away, and with what the run waits for."""
        listing = self._publication.problem if self._publication else None
        problems = [listing] if listing else []
        if self._presence.known.is_set() and not self._presence.is_blind and self._publication:
            troubles, operation = self._presence.troubles(), self._publication.operation
            partitions = 0 if operation.is_dry(self._spec) else self._spec.partitions
            left = unfinished(partitions, state.listed, state.totals, self._run.records.parts)
            present = {index for index, trouble in troubles.items() if not trouble}
            bound = operation.bound_to_node
            self._stand_ins = {} if bound else stand_ins(self._stand_ins, left, present)
            problems += problems_of(left, self._stand_ins, troubles, bound_to_node=bound)
        else:
            problems += [Problem(state.reason, state.message)] if state.reason and not listing else []
        chosen = [StandIn(partition=index, by=by) for index, by in sorted(self._stand_ins.items())]
        return waiting(state.model_copy(update={"stand_ins": chosen}), problems)

    def _with_sums(self, sums: Progress) -> RunState:
        chunks = self._publication
        if chunks is None:
            return with_progress(self._state, False, (), sums, fills_cache=False)
        fills_cache = chunks.operation.fills_cache
        return with_progress(self._state, chunks.listed, chunks.totals, sums, fills_cache=fills_cache)

    async def _end(self, ending: Ending) -> None:
        """The fact is published first: if the master dies in between, the next one publishes it again."""
        self._state = ended(self._with_sums(self._sums), ending, self._context.clock.now())
        clock = self._context.clock
        await persistently(lambda: self._context.facts.run_ended(self._spec, self._state), clock)
        await persistently(self._write, clock)
        everything = work_filter(self._spec.set_uid, self._spec.run_id)
        await persistently(lambda: self._context.work.purge(everything), clock)
        self._context.metrics.run_ended(self._member, self._state.phase.name.lower())
        log.info("run ended", run=self._spec.run_id, phase=self._state.phase.name, reason=self._state.reason)

    async def _write(self) -> None:
        """Compare-and-set. Raises Retry, or RoleLostError when another agent has written."""
        try:
            self._revision = await self._context.store.update_state(self._state, self._revision)
        except Conflict:
            await self._adopt_own_write()
            self._revision = await self._update_again()
        self._written_at = self._context.clock.monotonic()

    async def _adopt_own_write(self) -> None:
        """A write whose response was lost is still ours."""
        try:
            found, revision = await self._context.store.state(self._spec.run_id)
        except NotFound as error:
            raise RoleLostError from error
        if (found.master, found.term) != (self._state.master, self._state.term):
            raise RoleLostError
        self._revision = revision

    async def _update_again(self) -> int:
        try:
            return await self._context.store.update_state(self._state, self._revision)
        except Conflict as error:
            raise RoleLostError from error
