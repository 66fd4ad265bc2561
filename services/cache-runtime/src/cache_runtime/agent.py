"""The agent of one run: read the next chunk of a partition, execute it, record it, until nothing is left."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from math import inf
from typing import Any

import structlog

from cache_runtime.context import RunContext
from cache_runtime.domain.model import Outcome
from cache_runtime.domain.runs import (
    all_failed,
    begun,
    has_ended,
    is_first_try,
    is_recorded,
    lacking,
    next_chunk,
    refused,
    with_chunk,
)
from cache_runtime.domain.shares import partitions_of
from cache_runtime.engines.ports import NotBegun
from cache_runtime.execution import FIRST, Before, execute_chunk, tidy
from cache_runtime.guard import BrokenOffError, unless
from cache_runtime.publication import readable
from cache_runtime.records import Recorded
from cache_runtime.retrying import as_failure, at_most, persistently
from cache_runtime.timing import (
    BUS_CHECK_GRACE_SECONDS,
    CACHE_COUNT_TIMEOUT_SECONDS,
    CHUNK_REQUEST_INTERVAL_SECONDS,
    LONGEST_CHUNK_REQUEST_INTERVAL_SECONDS,
    LOST_CHUNK_GRACE_SECONDS,
    PARTITION_CHECK_INTERVAL_SECONDS,
    REFUSED_CHUNK_GRACE_SECONDS,
    RUN_CONTACT_TIMEOUT_SECONDS,
    RUN_READ_INTERVAL_SECONDS,
    STORE_AWAY_TIMEOUT_SECONDS,
)
from cache_runtime.tracker import RunTracker
from paddlewheel.contracts.crds.operations import member_of
from paddlewheel.contracts.generated.cache_v1 import Chunk, PartitionState, RunSpec, RunState
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Permanent, Retry
from paddlewheel.core.tasks import finish

log = structlog.get_logger(__name__)

MAX_ATTEMPTS = 10
"""Agents that may begin with a chunk before it counts as failed: it might kill every one."""
ASKED_PER_SECOND = 200
"""How often the agents of a run may ask, taken together: the fewer they are, the less each waits."""


class Agent:
    """Works on its partition of one run, and on those it stands in for, until cancelled."""

    def __init__(self, spec: RunSpec, run: RunTracker, context: RunContext) -> None:
        self._spec, self._run, self._context = spec, run, context
        self._operation = context.operation(spec)
        self._known: dict[int, Recorded] = {}
        self._begun: set[int] = set()
        """Partitions whose records say that this agent has begun, and that nobody else has written since."""
        self._absent: dict[int, tuple[tuple[int, bool], float]] = {}
        """By partition: the chunk that is not there, whether all are published, and since when."""
        self._read: dict[int, tuple[int, float]] = {}
        """By partition: the master's term when its record was read, and when that was."""
        self._began_at = self._told_at = 0.0
        """When the chunk was begun, and when it was last told that it is refused."""
        self._state_read_at = -inf
        self._is_tried = False
        """This agent has begun to execute the chunk."""

    async def run(self) -> None:
        """Do one chunk after the other, its own first."""
        pause = CHUNK_REQUEST_INTERVAL_SECONDS
        while True:
            if await self._did_one():
                pause = CHUNK_REQUEST_INTERVAL_SECONDS
                continue
            is_waited_for = any(not self._is_finished(partition) for partition in self._partitions)
            await self._run.wait_told(pause if is_waited_for else PARTITION_CHECK_INTERVAL_SECONDS)
            pause = min(self._longest_pause, 2 * pause)

    @property
    def _longest_pause(self) -> float:
        return min(
            LONGEST_CHUNK_REQUEST_INTERVAL_SECONDS,
            max(CHUNK_REQUEST_INTERVAL_SECONDS, self._spec.partitions / ASKED_PER_SECOND),
        )

    @property
    def _partitions(self) -> list[int]:
        return partitions_of(self._context.identity.partition, self._spec, self._run.records.state)

    async def _did_one(self) -> bool:
        self._forget_others()
        for partition in self._partitions:
            if self._is_to_be_read(partition):
                await self._load(partition)
            if not self._is_finished(partition) and await self._did_next(partition):
                return True
        return False

    def _forget_others(self) -> None:
        """Partitions that are another's now: when this agent stands in again, all may have changed."""
        for partition in self._known.keys() - set(self._partitions):
            del self._known[partition]
            self._absent.pop(partition, None)
            self._begun.discard(partition)

    def _is_to_be_read(self, partition: int) -> bool:
        """Whoever works on a partition hears of it when he writes; whoever is finished writes no more."""
        if partition not in self._known:
            return True
        term, at = self._read[partition]
        is_old = self._context.clock.monotonic() - at >= PARTITION_CHECK_INTERVAL_SECONDS
        return term != self._term or (is_old and self._is_finished(partition))

    @property
    def _term(self) -> int:
        state = self._run.records.state
        return state.term if state else 0

    def _is_finished(self, partition: int) -> bool:
        """As far as is known: the listing is complete, and the record has all of its chunks."""
        state, known = self._run.records.state, self._known.get(partition)
        if state is None or known is None or not state.listed or partition >= len(state.totals):
            return False
        return next_chunk(known.part) >= state.totals[partition].chunks

    async def _did_next(self, partition: int) -> bool:
        """Execute and record, in this order; False when there is no chunk now."""
        number = next_chunk(self._known[partition].part)
        subject = work_subject(self._spec.set_uid, self._spec.run_id, partition, number)
        clock = self._context.clock
        data = await persistently(lambda: self._context.work.get(subject), clock)
        chunk = readable(data, self._spec.run_id, partition, number)
        if chunk is None:
            await self._miss(partition, number)
            return False
        now = clock.now()  # the same for each try: it may have been written, and not been answered
        await persistently(lambda: self._begin(partition, now), clock)
        if not is_recorded(self._known[partition].part, chunk.id):
            outcome = await self._execute(chunk, self._known[partition].part.attempts)
            if outcome is None:
                return False
            await persistently(lambda: self._record(chunk, outcome), clock)
            self._count(outcome)
        # What is left of it goes with the run.
        with suppress(Retry):
            await self._context.work.drop(subject)
        return True

    async def _miss(self, partition: int, number: int) -> None:
        """Tell the master, now and then, while the record may be the only one that others have moved on."""
        now, state = self._context.clock.monotonic(), self._run.records.state
        missed = (number, state is not None and state.listed)
        before, since = self._absent.get(partition, (None, now))
        if before == missed and now - since < LOST_CHUNK_GRACE_SECONDS:
            return
        self._absent[partition] = (missed, now)
        if before != missed:
            return
        await self._load(partition)
        part = self._known[partition].part
        if state is not None and state.listed and next_chunk(part) == number:
            log.warning("chunk lost", run=self._spec.run_id, partition=partition, chunk=number)
            with suppress(Retry):
                await self._write(lacking(part))

    async def _begin(self, partition: int, now: datetime) -> None:
        """Before the first chunk of a partition it is written down: it may be what ended the agent before."""
        if partition in self._begun:
            return
        await self._write(begun(self._known[partition].part, now))
        self._begun.add(partition)

    async def _execute(self, chunk: Chunk, attempts: int) -> Outcome | None:
        """None when it is not to be executed any more."""
        self._began_at = self._told_at = self._context.clock.monotonic()
        self._is_tried = is_done = False
        try:
            if attempts > MAX_ATTEMPTS:
                return all_failed(chunk, f"failed after {attempts - 1} attempts")
            outcome = await persistently(
                lambda: self._try(chunk), self._context.clock, partial(self._tell, chunk.partition)
            )
            is_done = outcome is not None
            return outcome
        except Permanent as error:
            return all_failed(chunk, error.message)
        finally:
            if not is_done:
                await self._leave(chunk)

    async def _leave(self, chunk: Chunk) -> None:
        """It may be the end of the run, and nobody does the chunk again."""
        if self._is_tried or not is_first_try(self._known[chunk.partition].part):
            await finish(tidy(self._operation, self._spec, chunk.files))

    async def _tell(self, partition: int, error: Retry | None) -> None:
        """Why a chunk is tried again; what is done says so itself."""
        now, part = self._context.clock.monotonic(), self._known[partition].part
        if error is None or now - self._told_at < REFUSED_CHUNK_GRACE_SECONDS:
            return
        self._told_at, told = now, refused(part, error.reason, error.message)
        if told != part:
            with suppress(Retry):
                await self._write(told)

    async def _try(self, chunk: Chunk) -> Outcome | None:
        """Whoever was without a mount or a bus for long may not be the one to do it: what another has removed
        meanwhile, for example, may be there again. Raises Retry or Permanent."""
        await self._context.mount.wait_mounted()
        if not await self._is_wanted(chunk):
            return None
        part = self._known[chunk.partition].part
        was_tried, self._is_tried = self._is_tried, True
        is_first = not was_tried and is_first_try(part)
        # A recount that takes longer than that is not waited for; a chunk of files has limits of its own.
        limit = None if chunk.files else CACHE_COUNT_TIMEOUT_SECONDS
        try:
            async with at_most(limit, "RecountTimeout", "looking up what is cached"):
                clock, warmed = self._context.clock, part.cached_bytes
                may_wait = clock.monotonic() - self._began_at < STORE_AWAY_TIMEOUT_SECONDS
                before = FIRST if is_first else Before(part.begun_at)
                work = execute_chunk(
                    self._operation, self._spec, chunk, clock, warmed, before=before, may_wait=may_wait
                )
                return await self._while_connected(work)
        except NotBegun:
            self._is_tried = was_tried
            raise
        except (Retry, OSError) as error:
            if chunk.files or self._context.clock.monotonic() - self._began_at < CACHE_COUNT_TIMEOUT_SECONDS:
                raise
            return all_failed(chunk, as_failure(error).message)

    async def _while_connected(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Broken off with Retry once this agent is cut off."""
        try:
            return await unless(self._until_cut_off(), work)
        except BrokenOffError as error:
            text = f"lost contact with the run for {RUN_CONTACT_TIMEOUT_SECONDS:.0f} s; chunk aborted"
            raise Retry(Reason.BUS_UNAVAILABLE, text) from error

    async def _until_cut_off(self) -> None:
        """Returns once the state could neither be heard nor read for long."""
        with suppress(BrokenOffError):
            await unless(self._until_unheard(), self._keep_reading())

    async def _until_unheard(self) -> None:
        """On time, however long the reading of the state takes to fail."""
        clock = self._context.clock
        while (
            age := min(self._run.state_age, clock.monotonic() - self._state_read_at)
        ) < RUN_CONTACT_TIMEOUT_SECONDS:
            await clock.sleep(RUN_CONTACT_TIMEOUT_SECONDS - age)

    async def _keep_reading(self) -> None:
        while True:
            await self._context.clock.sleep(RUN_READ_INTERVAL_SECONDS)
            with suppress(Retry):
                await self._current_state()

    async def _is_wanted(self, chunk: Chunk) -> bool:
        """By the records themselves, wherever what was heard of them may be old. Raises Retry."""
        state = await self._current_state()
        if state is None or has_ended(state):
            return False
        self._note(chunk.partition, await self._context.store.part(self._spec.run_id, chunk.partition))
        return not is_recorded(self._known[chunk.partition].part, chunk.id)

    async def _current_state(self) -> RunState | None:
        """None when it is gone. As heard, while the master is heard: it is long where there are many
        partitions. Raises Retry."""
        if self._run.state_age < BUS_CHECK_GRACE_SECONDS:
            return self._run.records.state
        asked_at = self._context.clock.monotonic()  # it is as old, however late the answer is
        try:
            state, _ = await self._context.store.state(self._spec.run_id)
        except NotFound:
            state = None
        self._state_read_at = asked_at
        return state

    async def _load(self, partition: int) -> None:
        store = self._context.store
        self._read[partition] = (self._term, self._context.clock.monotonic())
        read = partial(store.part, self._spec.run_id, partition)
        self._note(partition, await persistently(read, self._context.clock))

    def _note(self, partition: int, found: Recorded) -> None:
        """Take what was read. Another that has written last may have ended in the middle of a chunk."""
        self._known[partition] = found
        if found.part.agent != self._context.identity.pod:
            self._begun.discard(partition)

    async def _record(self, chunk: Chunk, outcome: Outcome) -> None:
        """Record the chunk exactly once. Raises Retry when the record changed meanwhile."""
        known = self._known[chunk.partition]
        if not is_recorded(known.part, chunk.id):
            await self._write(with_chunk(known.part, chunk, outcome))

    async def _write(self, part: PartitionState) -> None:
        """Raises Retry, when another agent has written meanwhile with what it wrote read."""
        identity = self._context.identity
        update = {"agent": identity.pod, "node": identity.node, "updated_at": self._context.clock.now()}
        wanted = replace(self._known[part.partition], part=part.model_copy(update=update))
        try:
            revision = await self._context.store.write_part(self._spec.run_id, wanted)
        except (AlreadyExists, Conflict) as error:
            await self._load(part.partition)
            if _is_same(self._known[part.partition].part, wanted.part):
                return  # this agent's own, whose answer was lost
            raise Retry("PartitionMoved", "the partition's record changed", after=0.001) from error
        self._known[part.partition] = Recorded(wanted.part, revision)

    def _count(self, outcome: Outcome) -> None:
        operation = member_of(self._spec)
        self._context.metrics.chunk_done(operation, outcome.files, outcome.bytes, len(outcome.failed))


def _is_same(found: PartitionState, wanted: PartitionState) -> bool:
    """But for the time at which it was written."""
    return found.model_copy(update={"updated_at": wanted.updated_at}) == wanted
