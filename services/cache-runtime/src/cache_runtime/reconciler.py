"""The runs of the data set that this agent leads or works on: at most two tasks for each run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import structlog

from cache_runtime.agent import Agent
from cache_runtime.context import RunContext
from cache_runtime.domain.model import RunRecords
from cache_runtime.domain.runs import Candidate, Claim, decide, has_ended, is_closing, is_over
from cache_runtime.master import Master
from cache_runtime.role import RoleLostError
from cache_runtime.timing import (
    BUS_CHECK_GRACE_SECONDS,
    RUN_RESYNC_INTERVAL_SECONDS,
    TASK_RESTART_INTERVAL_SECONDS,
)
from cache_runtime.tracker import RunTracker
from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.contracts.generated.cache_v1 import RunSpec
from paddlewheel.contracts.run_keys import RunRecord, parse_run_record
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.core.tasks import end, finish

log = structlog.get_logger(__name__)


@dataclass
class _Run:
    """One run, and the tasks of this agent for it."""

    tracker: RunTracker
    master: asyncio.Task[None] | None = None
    agent: asyncio.Task[None] | None = None
    ending: asyncio.Task[None] | None = None
    """Ends the others."""
    changes_files: bool = False
    """Its agent removes or replaces some: other than a warmup, it must not be at work beside the next run."""
    has_lost_role: bool = False


class RunReconciler:
    """Starts and stops this agent's tasks as the records require.

    Args:
        ended: called when a run that this agent worked on has ended: its node has changed.
    """

    def __init__(self, bucket: KeyValue, context: RunContext, ended: Callable[[], None]) -> None:
        self._bucket, self._context, self._ended = bucket, context, ended
        self._runs: dict[str, _Run] = {}
        self._wake = asyncio.Event()
        self._unread = set(context.store.patterns)
        """Patterns of which not all stored records are known yet."""

    async def run(self) -> None:
        """Run until cancelled; then all tasks are ended."""
        watch = asyncio.create_task(self._watch_all())
        try:
            while True:
                if watch.done():
                    watch.result()
                for run_id in () if self._unread else list(self._runs):
                    await self._reconcile(run_id)
                await self._wait()
        finally:
            watch.cancel()
            tasks = [task for run in self._runs.values() for task in (run.master, run.agent, run.ending)]
            await finish(end(watch, *tasks))

    async def _watch_all(self) -> None:
        async with asyncio.TaskGroup() as watches:
            for pattern in self._context.store.patterns:
                watches.create_task(self._watch(pattern))

    async def _watch(self, pattern: str) -> None:
        async with aclosing(self._bucket.watch(pattern)) as entries:
            async for entry in entries:
                if entry is None:
                    self._unread.discard(pattern)
                elif record := parse_run_record(entry.key):
                    self._apply(record, entry)
                self._wake.set()

    def _apply(self, record: RunRecord, entry: Entry) -> None:
        run_id = record.run.run_id
        if run_id not in self._runs:
            self._runs[run_id] = _Run(RunTracker(run_id, self._context.clock))
        self._runs[run_id].tracker.apply(record, entry)

    async def _reconcile(self, run_id: str) -> None:
        """Observe, decide, act."""
        run = self._runs[run_id]
        records = run.tracker.records
        await self._check_silence(run)
        duties = decide(records, self._candidate(run), run.tracker.silent_for)
        if duties.claim is not Claim.NONE and records.spec:
            run.master = self._start(f"master {run_id}", self._lead(records.spec, run, duties.claim))
        if duties.over or not duties.work:
            self._stop(run, is_over=duties.over)
        elif records.spec and not _is_running(run.agent) and not await self._is_held(run):
            run.changes_files = records.spec.warmup is None
            run.agent = self._start_agent(records.spec, run.tracker)
        is_gone = records.spec is None and records.state is None
        if duties.over and is_gone and not _is_running(run.ending):
            del self._runs[run_id]

    async def _is_held(self, run: _Run) -> bool:
        """By a chunk that is being broken off, or is to be, of the run itself or of one that changes files:
        it would take what the next run has just copied."""
        others = [other for other in self._runs.values() if other.changes_files and other is not run]
        if any(_is_running(other.ending) for other in (run, *others)):
            return True
        at_work = [other.tracker.records for other in others if _is_running(other.agent)]
        return any([await self._has_ended(records) for records in at_work])

    async def _has_ended(self, run: RunRecords) -> bool:
        """By its record: the spec of the next run may be heard before the end of this one. Also while nobody
        knows."""
        try:
            state, _ = await self._context.store.state(run.run_id)
        except NotFound:  # or nobody leads it yet
            return run.state is not None
        except (Retry, Permanent) as error:
            log.info("a run waits for the record of another", other=run.run_id, problem=str(error))
            return True
        return has_ended(state)

    def _candidate(self, run: _Run) -> Candidate:
        return Candidate(
            self._context.identity.pod,
            is_master=_is_running(run.master),
            has_lost_it=run.has_lost_role,
            is_mounted=self._context.mount.is_mounted,
        )

    async def _check_silence(self, run: _Run) -> None:
        """A master that is silent because the bus is away is no silent master.

        While nothing is heard, the record itself is read: when that fails, or finds what the watch has not
        brought yet, the silence is counted anew.
        """
        records, tracker = run.tracker.records, run.tracker
        is_led = records.state is not None and (not is_over(records) or is_closing(records))
        if not is_led or _is_running(run.master):
            return
        if tracker.silent_for < BUS_CHECK_GRACE_SECONDS:
            return
        try:
            _, revision = await self._context.store.state(records.run_id)
        except (Retry, NotFound, Permanent) as error:
            log.info("master not heard, nor its record found", run=records.run_id, problem=str(error))
            tracker.heard()
        else:
            if revision != records.state_revision:
                tracker.heard()

    async def _lead(self, spec: RunSpec, run: _Run, claim: Claim) -> None:
        if claim is Claim.CREATE and not await self._is_asked_for(spec.run_id):
            return
        try:
            await Master(spec, run.tracker, self._context).lead(claim)
        except RoleLostError:
            log.info("master role lost", run=spec.run_id)
            run.has_lost_role = True

    async def _is_asked_for(self, run_id: str) -> bool:
        """Specs and states are watched one by one. Of an ended run that is removed, the deletion of the state
        may be heard first: then it looks like a new run. Raises Retry."""
        if await self._context.store.has_spec(run_id):
            return True
        log.info("run not claimed: it is removed", run=run_id)
        await self._context.clock.sleep(RUN_RESYNC_INTERVAL_SECONDS)  # until the watch brings it
        return False

    def _start_agent(self, spec: RunSpec, tracker: RunTracker) -> asyncio.Task[None] | None:
        """None for an unknown operation: the master fails such a run."""
        try:
            agent = Agent(spec, tracker, self._context)
        except Permanent:
            return None
        return self._start(f"agent {spec.run_id}", agent.run())

    def _stop(self, run: _Run, *, is_over: bool) -> None:
        """Other runs are led, and warmups followed by the next, before its tasks have ended: a chunk that is
        broken off while a file system hangs takes long. A master that announces the end may finish, unless
        the run itself was deleted."""
        master = run.master if is_over and run.tracker.records.spec is None else None
        if not _is_running(run.ending) and (run.agent or _is_running(master)):
            run.ending = asyncio.create_task(self._end(run, master, is_over=is_over))

    async def _end(self, run: _Run, master: asyncio.Task[None] | None, *, is_over: bool) -> None:
        agent = run.agent
        await end(agent, master)
        run.agent = None
        if agent and is_over:
            self._ended()
        self._wake.set()

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.create_task(self._guarded(name, work), name=name)

    async def _guarded(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """A task that fails is started again by the next pass; other runs are not affected."""
        try:
            await work
        except Retry as error:
            log.warning("task failed and will be restarted", task=name, problem=str(error))
            await self._context.clock.sleep(error.after or RUN_RESYNC_INTERVAL_SECONDS)
        except Permanent as error:
            log.error("task failed permanently", task=name, problem=str(error))
            await self._context.clock.sleep(TASK_RESTART_INTERVAL_SECONDS)
        except Exception:
            log.exception("task failed", task=name)
            await self._context.clock.sleep(TASK_RESTART_INTERVAL_SECONDS)
        self._wake.set()

    async def _wait(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(RUN_RESYNC_INTERVAL_SECONDS):
                await self._wake.wait()
        self._wake.clear()


def _is_running(task: asyncio.Task[None] | None) -> bool:
    return task is not None and not task.done()
