"""Which runs of the set this agent leads and works for: one watch, one decision a run, two tasks at most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import structlog

from cache_runtime.agent import AgentTools, agent_for
from cache_runtime.domain.runs import Claim, Me, decide
from cache_runtime.master import Master, MasterTools
from cache_runtime.records import RunStore, run_of
from cache_runtime.tracker import RunTracker
from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end

log = structlog.get_logger(__name__)

LOOK = 1.0
"""Seconds between two looks when nothing changes: silence of a master has to be noticed."""


@dataclass
class _Run:
    """One run and what this agent does for it."""

    tracker: RunTracker
    master: asyncio.Task[None] | None = None
    agent: asyncio.Task[None] | None = None


class RunReconciler:
    """Brings this agent's tasks to what the records ask for.

    Args:
        ended: called when a run that this agent worked on is over: its node has changed.
    """

    def __init__(
        self,
        bucket: KeyValue,
        store: RunStore,
        master: MasterTools,
        agent: AgentTools,
        ended: Callable[[], None],
    ) -> None:
        self._bucket, self._store, self._ended = bucket, store, ended
        self._master, self._agent = master, agent
        self._runs: dict[str, _Run] = {}
        self._wake = asyncio.Event()
        self._synced = False

    async def run(self) -> None:
        """Until cancelled; then all tasks are ended."""
        watch = asyncio.create_task(self._watch())
        try:
            while True:
                if watch.done():
                    watch.result()
                for run_id in list(self._runs) if self._synced else ():
                    await self._reconcile(run_id)
                await self._wait()
        finally:
            watch.cancel()
            await end(watch, *(task for run in self._runs.values() for task in (run.master, run.agent)))

    async def _watch(self) -> None:
        async with aclosing(self._bucket.watch(self._store.pattern)) as entries:
            async for entry in entries:
                if entry is None:
                    self._synced = True
                elif run_id := run_of(entry):
                    self._apply(run_id, entry)
                self._wake.set()

    def _apply(self, run_id: str, entry: Entry) -> None:
        if run_id not in self._runs:
            self._runs[run_id] = _Run(RunTracker(run_id, self._master.clock))
        self._runs[run_id].tracker.apply(entry)

    async def _reconcile(self, run_id: str) -> None:
        """Observe, decide, act."""
        run = self._runs[run_id]
        records = run.tracker.records
        me = Me(self._agent.place.pod, self._agent.place.partition, leads=_runs(run.master))
        duties = decide(records, me, run.tracker.silent_for)
        if duties.over:
            await self._stop(run_id, run, forget=records.spec is None and records.state is None)
            return
        if duties.claim is not Claim.NONE and records.spec:
            master = Master(records.spec, run.tracker, self._master)
            run.master = self._start(f"master {run_id}", master.lead(duties.claim))
        if duties.work and not _runs(run.agent) and records.spec:
            agent = agent_for(records.spec, self._agent)
            run.agent = self._start(f"agent {run_id}", agent.run()) if agent else None
        if not duties.work and run.agent:
            await end(run.agent)
            run.agent = None

    async def _stop(self, run_id: str, run: _Run, *, forget: bool) -> None:
        """A master that is writing the end is left to finish unless the run itself is gone."""
        if run.agent:
            await end(run.agent)
            run.agent = None
            self._ended()
        if run.tracker.records.spec is None:
            await end(run.master)
        if forget:
            del self._runs[run_id]

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.create_task(_guarded(name, work, self._wake), name=name)

    async def _wait(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await self._wake.wait()
        self._wake.clear()


def _runs(task: asyncio.Task[None] | None) -> bool:
    return task is not None and not task.done()


async def _guarded(name: str, work: Coroutine[Any, Any, None], wake: asyncio.Event) -> None:
    """A task that fails is started again by the next look; one failing run harms no other."""
    try:
        await work
    except Retry as error:
        log.warning("task will be started again", task=name, problem=str(error))
    except Permanent as error:
        log.error("task cannot go on", task=name, problem=str(error))
    except Exception:
        log.exception("task failed", task=name)
        await asyncio.sleep(5)
    wake.set()
