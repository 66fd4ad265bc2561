"""The master role of one run: claim it, list the run, sum up progress, send heartbeats, end the run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any

import structlog

from cache_runtime.context import RunContext
from cache_runtime.domain.chunking import Limits
from cache_runtime.domain.losses import LostChunks
from cache_runtime.domain.model import TreeSize
from cache_runtime.domain.runs import (
    MAX_CRASHES,
    Claim,
    Ending,
    Problem,
    Progress,
    crashed,
    dry_ending,
    ended,
    given_up,
    has_ended,
    is_done,
    is_news,
    judge,
    judged,
    judgement_of,
    pace,
    progress,
    repeated,
    waiting,
    with_progress,
)
from cache_runtime.domain.shares import gone, problems_of, refusals_of, stand_ins, unfinished
from cache_runtime.guard import BrokenOffError, unless
from cache_runtime.operations.base import RunOperation
from cache_runtime.presence import Presence
from cache_runtime.publication import Publication
from cache_runtime.retrying import Tell, persistently
from cache_runtime.role import Role, RoleLostError
from cache_runtime.timing import (
    HEARTBEAT_INTERVAL_SECONDS,
    RUN_CLOSE_TIMEOUT_SECONDS,
    RUN_END_TIMEOUT_SECONDS,
    STATE_WRITE_TIMEOUT_SECONDS,
    UNMOUNTED_AGENT_TIMEOUT_SECONDS,
)
from cache_runtime.tracker import RunTracker
from paddlewheel.contracts.crds.operations import member_of
from paddlewheel.contracts.generated.cache_v1 import PartitionState, RunPhase, RunSpec, RunState, StandIn
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.subjects import work_filter
from paddlewheel.core.errors import PaddlewheelError, Permanent, Retry
from paddlewheel.core.tasks import end, finish

log = structlog.get_logger(__name__)


class _RefusedError(Exception):
    """The bus is there and has refused a call for long."""


class Master:
    """Leads one run as long as it holds the role."""

    def __init__(self, spec: RunSpec, run: RunTracker, context: RunContext) -> None:
        self._spec, self._run, self._context = spec, run, context
        self._member = member_of(spec)
        self._publication: Publication | None = None
        limits = context.limits.record
        self._role = Role(spec.run_id, context.identity.pod, context.store, context.clock, limits)
        self._ticks = 0
        self._presence = Presence(context.nodes, spec.set_uid, context.clock, context.away_after)
        self._parts_known, self._has_news = asyncio.Event(), asyncio.Event()
        self._stand_ins: dict[int, int] = {}
        self._lost = LostChunks()
        self._refusal: Problem | None = None
        """Why what the end requires is not done yet."""
        self._refused_since: float | None = None
        """When that, or announcing the end, has failed for the first time."""
        self._is_unable = False
        """It has failed for long, and is not being tried."""
        self._unmounted_since: float | None = None
        self._is_start_told = True
        """Of a run that has ended, whoever takes over announces the end alone."""
        self._silenced: Problem | None = None
        """Why the start is not announced yet."""

    async def lead(self, claim: Claim) -> None:
        """Claim the role and lead until the run has ended or the role is lost.

        Raises:
            Retry: the bus is away.
            RoleLostError: another process has taken the role.
        """
        if not await self._role.claim(claim, self._run.records):
            return
        if not has_ended(self._state):
            log.info("leading run", run=self._spec.run_id, operation=self._member, term=self._state.term)
            self._is_start_told = False
            await self._record_end(await self._lead_or_crash())
        await self._close()

    @property
    def _state(self) -> RunState:
        return self._role.state

    @property
    def _sums(self) -> Progress:
        return progress(list(self._run.records.parts.values()))

    async def _lead_or_crash(self) -> Ending:
        """A bug is met again by every master, so the run fails after some of them."""
        try:
            return await self._lead()
        except (PaddlewheelError, RoleLostError):
            raise
        except Exception as error:
            self._role.state = crashed(self._state, type(error).__name__)
            if self._state.crashes < MAX_CRASHES:
                await self._persistently(self._role.write)
                raise
            log.exception("run given up", run=self._spec.run_id)
            return Ending(RunPhase.FAILED, self._state.reason, self._state.message)

    async def _lead(self) -> Ending:
        """How the run ends is stored before anything is deleted for it: nobody can judge after that."""
        judgement = judgement_of(self._state)
        if judgement is None:
            judgement = await self._accompany(self._execute())
            if judgement.phase is not RunPhase.SUCCEEDED:
                return judgement
            self._role.state = judged(self._with_sums(self._sums), judgement, self._role.now)
            await self._persistently(self._role.write)
        return await self._accompany(self._finish(judgement))

    async def _accompany(self, work: Coroutine[Any, Any, Ending]) -> Ending:
        """Record progress every tick while the work is being done, which no fact holds up."""
        if self._run.records.cancelled:
            work.close()  # it would count anew, and the figures of the run would be lost
            return Ending(RunPhase.CANCELLED)
        execution = asyncio.create_task(work)
        beside = (self._watch_parts(), self._presence.watch(), self._announce_start())
        watches = [asyncio.create_task(watch) for watch in beside]
        try:
            while not execution.done():
                if self._run.records.cancelled:
                    return Ending(RunPhase.CANCELLED)
                for watch in watches:
                    if watch.done():
                        watch.result()
                await self._record_progress()
                await self._give_up_unable(execution)
                await self._wait_tick(execution)
            return execution.result()
        except Permanent as error:
            return Ending(RunPhase.FAILED, error.reason, error.message)
        finally:
            await finish(end(execution, *watches))

    async def _wait_tick(self, execution: asyncio.Task[Ending]) -> None:
        """Until the next one, the end of the work, or something that agents wait for."""
        told = asyncio.create_task(self._has_news.wait())
        try:
            at_most = self._context.tick
            await asyncio.wait({execution, told}, timeout=at_most, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
        self._has_news.clear()

    async def _give_up_unable(self, execution: asyncio.Task[Ending]) -> None:
        """Whoever cannot list, or do what the end requires, leaves that to another that may be able to, and
        leads on while there is none. The other begins at once, so nothing is left running.

        Raises:
            RoleLostError: it was given up.
        """
        troubles, own = self._presence.troubles(), self._context.identity.partition
        others = [index for index, trouble in troubles.items() if not trouble and index != own]
        if not self._is_without_mount() and not self._is_unable:
            return
        if others and not self._presence.is_blind and not execution.done():
            log.warning("role given up", run=self._spec.run_id, unable_to_end=self._is_unable)
            await end(execution)
            self._role.state = given_up(self._state)
            await self._persistently(self._role.write)
            raise RoleLostError

    def _is_without_mount(self) -> bool:
        """For long, and it has to list."""
        now = self._context.clock.monotonic()
        if not self._waits_for_mount:
            self._unmounted_since = None
            return False
        self._unmounted_since = since = now if self._unmounted_since is None else self._unmounted_since
        return now - since > UNMOUNTED_AGENT_TIMEOUT_SECONDS

    @property
    def _waits_for_mount(self) -> bool:
        chunks = self._publication
        is_needed = chunks is not None and chunks.is_listing and chunks.operation.lists_mount
        return is_needed and not self._context.mount.is_mounted

    async def _watch_parts(self) -> None:
        async with aclosing(self._context.store.watch_parts(self._spec.run_id)) as changes:
            async for change in changes:
                if change is None:
                    self._parts_known.set()
                else:
                    self._run.apply(*change)

    async def _execute(self) -> Ending:
        """From the listing to the judgement. Raises Permanent."""
        context, operation = self._context, self._context.operation(self._spec)
        await self._parts_known.wait()
        limits = Limits.planned(self._state, context.limits)
        chunks = Publication(self._spec, operation, context.work, limits, context.clock, self._part)
        self._publication = chunks
        await chunks.publish()
        self._has_news.set()
        await self._wait_done(chunks)
        await chunks.publish_recounts()
        self._has_news.set()  # agents that have done all files ask for no more chunks until they hear of some
        await self._wait_done(chunks)
        if operation.is_dry(self._spec):
            return dry_ending(chunks.totals)
        sums = self._sums
        remark = "; ".join(filter(None, (chunks.remark, operation.remark(self._spec, sums.uncompared))))
        return judge(chunks.totals, chunks.digest, sums, fills_cache=operation.fills_cache, remark=remark)

    async def _finish(self, judgement: Ending) -> Ending:
        """What another master has begun is done again.

        Raises:
            Permanent: it can never be done.
            RoleLostError: another may have taken the role.
        """
        operation = self._context.operation(self._spec)
        if operation.is_dry(self._spec):
            return judgement
        try:
            work = self._persistently(lambda: self._try_to_finish(operation), self._tell)
            await unless(self._until_mute(), work)
        except BrokenOffError as error:
            log.warning("role given up: the bus is away", run=self._spec.run_id)
            raise RoleLostError from error
        return judgement

    async def _until_mute(self) -> None:
        """On time, however long a write takes to fail."""
        while (age := self._role.unwritten_for) < STATE_WRITE_TIMEOUT_SECONDS:
            await self._context.clock.sleep(STATE_WRITE_TIMEOUT_SECONDS - age)

    async def _try_to_finish(self, operation: RunOperation) -> None:
        """A try that goes well may take hours, and the role is kept meanwhile."""
        self._is_unable = False
        await operation.finish(self._spec, TreeSize(self._state.files_total, self._state.bytes_total))

    async def _tell(self, error: Retry | None) -> None:
        """What the end of the run waits for. Told between two tries, so that none is broken off."""
        self._refusal = repeated(error.reason, error.message) if error else None
        self._is_unable = error is not None and self._refused_for() > RUN_END_TIMEOUT_SECONDS
        if self._is_unable:
            self._has_news.set()  # to be seen before the next try

    def _refused_for(self) -> float:
        """Seconds since the first refusal, which this may be."""
        now = self._context.clock.monotonic()
        self._refused_since = now if self._refused_since is None else self._refused_since
        return now - self._refused_since

    async def _wait_done(self, chunks: Publication) -> None:
        """Publishes again what is lost meanwhile. Raises Permanent for what can never be done."""
        while not is_done(chunks.listed, chunks.totals, self._run.records.parts):
            self._check_gone(chunks)
            if self._lost.found(self._run.records.parts):
                log.warning("chunks are lost and published again", run=self._spec.run_id)
                await chunks.publish()
                self._lost.published(self._run.records.parts)
            await self._run.wait_changed(self._context.tick)

    def _check_gone(self, chunks: Publication) -> None:
        """Raises Permanent when all that is left is on the nodes of partitions that are gone."""
        if not chunks.operation.bound_to_node or not self._presence.known.is_set() or self._presence.is_blind:
            return
        left = unfinished(self._spec.partitions, chunks.listed, chunks.totals, self._run.records.parts)
        if text := gone(self._presence.silences(left)):
            raise Permanent(Reason.PARTITION_GONE, text)

    async def _record_progress(self) -> None:
        """Write the state if it changed or the heartbeat is due; publish progress if it changed."""
        sums = self._sums
        state = self._with_problems(self._with_sums(sums))
        changed = state != self._state
        wait = pace(self._spec.partitions) if changed else HEARTBEAT_INTERVAL_SECONDS
        if self._role.unwritten_for < wait and not is_news(self._state, state):
            return
        self._role.state = state.model_copy(update={"heartbeat": self._role.now})
        with suppress(Retry):
            await self._role.write()
        if changed:
            self._ticks += 1
            await self._context.facts.run_progressed(self._spec, self._state, sums, self._ticks)

    def _part(self, partition: int) -> PartitionState:
        return self._run.records.parts.get(partition) or PartitionState(partition=partition)

    def _with_problems(self, state: RunState) -> RunState:
        """With what the run waits for."""
        if state.judgement is not None:
            return waiting(state, [problem for problem in (self._refusal, self._silenced) if problem])
        return self._with_shares(state)

    def _with_shares(self, state: RunState) -> RunState:
        """With who stands in for partitions that are away, and with what the run waits for."""
        problems = self._listing_problems()
        if self._presence.known.is_set() and not self._presence.is_blind and self._publication:
            troubles, operation = self._presence.troubles(), self._publication.operation
            partitions = 0 if operation.is_dry(self._spec) else self._spec.partitions
            totals = self._publication.totals
            left = unfinished(partitions, state.listed, totals, self._run.records.parts)
            present = {index for index, trouble in troubles.items() if not trouble}
            bound = operation.bound_to_node
            self._stand_ins = {} if bound else stand_ins(self._stand_ins, left, present)
            problems += problems_of(left, self._stand_ins, troubles, bound_to_node=bound)
            problems += refusals_of(left, self._run.records.parts)
        else:
            problems = problems or ([Problem(state.reason, state.message)] if state.reason else [])
        problems += [self._silenced] if self._silenced else []
        chosen = [StandIn(partition=index, by=by) for index, by in sorted(self._stand_ins.items())]
        return waiting(state.model_copy(update={"stand_ins": chosen}), problems)

    def _listing_problems(self) -> list[Problem]:
        if self._waits_for_mount:
            mount = f"not mounted: {self._context.mount.message}".rstrip(": ")
            own = self._context.identity.partition
            return [Problem(Reason.MOUNT_LOST, f"partition {own}, which lists the files, is {mount}")]
        found = self._publication.problem if self._publication else None
        return [found] if found else []

    def _with_sums(self, sums: Progress) -> RunState:
        """The figures of a run that is judged are final; those of one whose records are not read yet stay."""
        chunks = self._publication
        if self._state.judgement is not None or not self._parts_known.is_set():
            return self._state
        if chunks is None:
            return with_progress(self._state, False, (), sums, fills_cache=False)
        fills_cache = chunks.operation.fills_cache
        return with_progress(self._state, chunks.listed, chunks.totals, sums, fills_cache=fills_cache)

    async def _record_end(self, ending: Ending) -> None:
        self._role.state = ended(self._with_sums(self._sums), ending, self._role.now)
        await self._persistently(self._role.write)
        self._context.metrics.run_ended(self._member, self._state.phase.name.lower())
        log.info("run ended", run=self._spec.run_id, phase=self._state.phase.name, reason=self._state.reason)

    async def _close(self) -> None:
        """Announce the end, and remove what is left of the work; whoever takes over repeats both."""
        try:
            await self._insist(self._announce)
        except _RefusedError as error:
            log.error("end of a run not announced", run=self._spec.run_id, problem=str(error))
        try:
            await self._insist(self._purge)
        except (_RefusedError, Permanent) as error:
            log.error("chunks of a run stay on the bus", run=self._spec.run_id, problem=str(error))
        self._role.state = self._state.model_copy(update={"closing": False})
        await self._persistently(self._role.write)

    async def _announce_start(self) -> None:
        if not self._is_start_told:
            await self._persistently(self._tell_start, self._note_silence)

    async def _tell_start(self) -> None:
        await self._context.facts.run_started(self._spec, self._state)
        self._is_start_told = True

    async def _note_silence(self, error: Retry | None) -> None:
        text = f"the start is not announced: {error.message or error.reason}" if error else ""
        self._silenced = repeated(error.reason, text) if error else None

    async def _announce(self) -> None:
        """The end, after a start that could not be announced before."""
        if not self._is_start_told:
            await self._tell_start()
        await self._context.facts.run_ended(self._spec, self._state)

    async def _purge(self) -> None:
        """Nobody reads what is left; dataset-controller removes it with the records of the run."""
        await self._context.work.purge(work_filter(self._spec.set_uid, self._spec.run_id))

    async def _insist(self, call: Callable[[], Awaitable[None]]) -> None:
        """Repeat while the role is kept.

        Raises:
            RoleLostError: another has it.
            _RefusedError: it is refused for long, by a bus that is there.
        """
        self._refused_since = None
        await self._persistently(call, self._stay)

    async def _stay(self, error: Retry | None) -> None:
        """Keep the role while the end is being announced, or each agent in turn would take it and join in.

        Raises:
            RoleLostError: another has it.
            _RefusedError: as `_insist`.
        """
        if error is None:
            return
        self._role.state = self._state.model_copy(update={"heartbeat": self._role.now})
        try:
            await self._role.write()
        except Retry:
            self._refused_since = None
            return
        if self._refused_for() > RUN_CLOSE_TIMEOUT_SECONDS:
            raise _RefusedError(str(error))

    async def _persistently(self, call: Callable[[], Awaitable[None]], tell: Tell | None = None) -> None:
        await persistently(call, self._context.clock, tell)
