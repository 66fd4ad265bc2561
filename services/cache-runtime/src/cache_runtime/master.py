"""The master role of one run: claim it, let it be listed, add up, heartbeat, end it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog

from cache_runtime.domain.chunking import Limits
from cache_runtime.domain.model import Kind, kind_of
from cache_runtime.domain.runs import (
    HEARTBEAT,
    Claim,
    Ending,
    Progress,
    claimed,
    ended,
    is_done,
    is_dry,
    judge,
    progress,
    with_progress,
)
from cache_runtime.facts import Facts
from cache_runtime.metrics import Metrics
from cache_runtime.ports import Finisher, Lister
from cache_runtime.publication import Publication
from cache_runtime.records import RunStore
from cache_runtime.retrying import persistently
from cache_runtime.tracker import RunTracker
from paddlewheel.bus.ports import WorkQueue
from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunSpec, RunState
from paddlewheel.contracts.subjects import work_filter
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Permanent, Retry
from paddlewheel.core.tasks import end

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class MasterTools:
    """What every master needs, whatever the run. `tick` = seconds between two looks and two writes."""

    me: str
    store: RunStore
    work: WorkQueue
    facts: Facts
    clock: Clock
    metrics: Metrics
    limits: Limits
    listers: Mapping[Kind, Lister]
    finisher: Finisher
    tick: float = 1.0


class RoleLostError(Exception):
    """Another agent holds the master role now."""


class Master:
    """Leads one run for as long as it holds the role."""

    def __init__(self, spec: RunSpec, run: RunTracker, tools: MasterTools) -> None:
        self._spec, self._run, self._tools = spec, run, tools
        self._chunks = Publication(spec, tools.listers, tools.work, tools.limits, tools.clock)
        self._state = RunState(run_id=spec.run_id)
        self._revision = 0
        self._written_at = 0.0
        self._ticks = 0

    async def lead(self, claim: Claim) -> None:
        """Claim the role and lead until the run has ended or the role is lost.

        Raises:
            Retry: the bus is away.
        """
        if not await self._claim(claim):
            return
        log.info("leading run", run=self._spec.run_id, operation=self._operation, term=self._state.term)
        try:
            await persistently(
                lambda: self._tools.facts.run_started(self._spec, self._state), self._tools.clock
            )
            await self._end(await self._lead())
        except RoleLostError:
            log.info("master role lost", run=self._spec.run_id)

    @property
    def _operation(self) -> str:
        kind = kind_of(self._spec)
        return kind.value if kind else ""

    @property
    def _sums(self) -> Progress:
        return progress(list(self._run.records.parts.values()))

    async def _claim(self, claim: Claim) -> bool:
        seen = self._run.records.state
        self._state = claimed(seen, self._spec.run_id, self._tools.me, self._tools.clock.now())
        try:
            if claim is Claim.CREATE:
                self._revision = await self._tools.store.create_state(self._state)
            else:
                revision = self._run.records.state_revision
                self._revision = await self._tools.store.update_state(self._state, revision)
        except (AlreadyExists, Conflict):
            return False
        self._written_at = self._tools.clock.monotonic()
        return True

    async def _lead(self) -> Ending:
        """Look at the run every tick while its course goes on beside."""
        course = asyncio.create_task(self._course())
        try:
            while not course.done():
                if self._run.records.cancelled:
                    return Ending(RunPhase.CANCELLED)
                await self._look()
                await asyncio.wait({course}, timeout=self._tools.tick)
            return course.result()
        finally:
            await end(course)

    async def _course(self) -> Ending:
        """What has to happen from the listing to the end."""
        try:
            await self._chunks.publish()
            while not is_done(self._chunks.listed, self._chunks.totals, self._run.records.parts):
                await self._run.wait_changed(self._tools.tick)
            if is_dry(self._spec):
                return Ending(RunPhase.SUCCEEDED)
            ending = judge(self._chunks.totals, self._sums)
            if ending.phase is RunPhase.SUCCEEDED:
                await persistently(partial(self._tools.finisher.finish, self._spec), self._tools.clock)
        except Permanent as error:
            return Ending(RunPhase.FAILED, error.reason, error.message)
        return ending

    async def _look(self) -> None:
        """Write the state if it changed or the heartbeat is due; tell the bus when something moved."""
        sums = self._sums
        state = self._with_sums(sums)
        moved = state != self._state
        due = self._tools.clock.monotonic() - self._written_at >= HEARTBEAT
        if not moved and not due:
            return
        self._state = state.model_copy(update={"heartbeat": self._tools.clock.now()})
        with suppress(Retry):
            await self._write()
        if moved:
            self._ticks += 1
            await self._tools.facts.run_progressed(self._spec, self._state, sums, self._ticks)

    def _with_sums(self, sums: Progress) -> RunState:
        warmup = kind_of(self._spec) is Kind.WARMUP
        return with_progress(self._state, self._chunks.listed, self._chunks.totals, sums, warmup=warmup)

    async def _end(self, ending: Ending) -> None:
        """The fact goes first: a master that dies between the two is followed by one that repeats it."""
        self._state = ended(self._with_sums(self._sums), ending, self._tools.clock.now())
        clock = self._tools.clock
        await persistently(lambda: self._tools.facts.run_ended(self._spec, self._state), clock)
        await persistently(self._write, clock)
        everything = work_filter(self._spec.set_uid, self._spec.run_id)
        await persistently(lambda: self._tools.work.purge(everything), clock)
        self._tools.metrics.run_ended(self._operation, self._state.phase.name.lower())
        log.info("run ended", run=self._spec.run_id, phase=self._state.phase.name, reason=self._state.reason)

    async def _write(self) -> None:
        """Compare-and-set. Raises Retry, or RoleLostError when another agent has written."""
        try:
            self._revision = await self._tools.store.update_state(self._state, self._revision)
        except Conflict:
            await self._adopt_own_write()
            self._revision = await self._update_again()
        self._written_at = self._tools.clock.monotonic()

    async def _adopt_own_write(self) -> None:
        """A write whose answer got lost on the way is still ours."""
        try:
            found, revision = await self._tools.store.state(self._spec.run_id)
        except NotFound as error:
            raise RoleLostError from error
        if (found.master, found.term) != (self._state.master, self._state.term):
            raise RoleLostError
        self._revision = revision

    async def _update_again(self) -> int:
        try:
            return await self._tools.store.update_state(self._state, self._revision)
        except Conflict as error:
            raise RoleLostError from error
