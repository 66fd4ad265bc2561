"""Executing one chunk: rejected files are reported, the others executed and verified up to three times."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from cache_runtime.domain.model import Outcome
from cache_runtime.operations.base import TRIES, ChunkTask, RunOperation
from cache_runtime.timing import (
    CLOCK_STEP_GRACE_SECONDS,
    EXECUTION_RETRY_INTERVAL_SECONDS,
    TIDY_TIMEOUT_SECONDS,
)
from paddlewheel.contracts.generated.cache_v1 import Chunk, FileEntry, RunSpec
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Before:
    """What may have been executed of a chunk before.

    Args:
        begun_at: when that began at the earliest, by the clocks of those who did it; None = not known.
    """

    begun_at: datetime | None = None
    is_nothing: bool = False


FIRST = Before(is_nothing=True)


async def execute_chunk(
    operation: RunOperation,
    spec: RunSpec,
    chunk: Chunk,
    clock: Clock,
    warmed: int = 0,
    *,
    before: Before = FIRST,
    may_wait: bool = True,
) -> Outcome:
    """Execute a chunk.

    Args:
        warmed: bytes of its partition that are recorded as cached.
        may_wait: for servers that are away. An object that is at fault itself may look like that.

    Raises:
        Permanent: the chunk can never be done.
        Retry: nothing can be done now, or what was left over waits for a server that is away.
    """
    if not chunk.files:
        return Outcome(recount=await operation.recount(spec, chunk.partition, warmed))
    doing = spec if before.is_nothing else operation.again(spec)
    task = await operation.prepare(doing, chunk.files, chunk.partition)
    accepted = [entry for entry in chunk.files if entry.path not in task.rejected]
    left, tries = await _execute(task, spec, accepted, clock, may_wait=may_wait)
    if may_wait and _is_away(task, left):
        raise Retry("CopyFailed", next(iter(left.values())))
    # Not before: another agent may be at the same chunk, and would lose what it is writing. Now it loses that
    # at most once, and finds the file complete when it tries again.
    if tries > 1 or not before.is_nothing:
        await tidy(operation, spec, accepted)
    outcome = _outcome(chunk, {**task.rejected, **left}, task, fills_cache=operation.fills_cache)
    return outcome if before.is_nothing else _redone(outcome, task, before, notes_hold=operation.notes_hold)


def _redone(outcome: Outcome, task: ChunkTask, before: Before, *, notes_hold: bool) -> Outcome:
    """What a later try finds, an earlier one may have caused: that a path did not exist, which it removed, or
    that a file is complete, which it copied. That nobody has compared it is so all the same."""
    kept = (
        task.kept_since(before.begun_at - timedelta(seconds=CLOCK_STEP_GRACE_SECONDS))
        if before.begun_at
        else 0
    )
    return replace(outcome, notes=outcome.notes if notes_hold else (), kept=min(kept, outcome.files))


async def tidy(operation: RunOperation, spec: RunSpec, files: Sequence[FileEntry]) -> None:
    """As far as it can be done soon, and whatever comes of it: what is done is recorded all the same, and a
    run ends. Copies go past the mount, which may be read-only, or hang."""
    try:
        async with asyncio.timeout(TIDY_TIMEOUT_SECONDS):
            await operation.tidy(spec, files)
    except Exception as error:
        log.warning("unfinished copies stay", run=spec.run_id, problem=str(error) or "it takes long")


async def _execute(
    task: ChunkTask, spec: RunSpec, files: list[FileEntry], clock: Clock, *, may_wait: bool
) -> tuple[Mapping[str, str], int]:
    """What is still not done after all tries, with the reason, and how many there were. One that does nothing
    because a server is away, which may take long, is the last one if there is time to wait."""
    failures: Mapping[str, str] = {}
    tries = 0
    for attempt in range(TRIES):
        if not files:
            break
        if attempt:
            problem = next(iter(failures.values()))
            log.warning("chunk incomplete", run=spec.run_id, missing=len(files), problem=problem)
            await clock.sleep(EXECUTION_RETRY_INTERVAL_SECONDS * 3**attempt)
        tries += 1
        await task.execute(files)
        failures = await task.verify(files)
        is_in_vain = may_wait and len(failures) == len(files) and _is_away(task, failures)
        files = [entry for entry in files if entry.path in failures]
        if is_in_vain:
            break
    return failures, tries


def _is_away(task: ChunkTask, left: Mapping[str, str]) -> bool:
    """A server that is away is all that keeps these from being done."""
    return bool(left) and all(path in task.away for path in left)


def _outcome(chunk: Chunk, failures: Mapping[str, str], task: ChunkTask, *, fills_cache: bool) -> Outcome:
    done = [entry for entry in chunk.files if entry.path not in failures]
    size = sum(entry.size for entry in done)
    failed = (f"{e.path}: {failures[e.path]}" for e in chunk.files if e.path in failures)
    noted = tuple(f"{e.path}: {task.notes[e.path]}" for e in done if e.path in task.notes)
    cached = size if fills_cache else 0
    kept, uncompared = (min(count, len(done)) for count in (task.kept, task.uncompared))
    return Outcome(
        len(done), size, cached, failed=tuple(failed), notes=noted, kept=kept, uncompared=uncompared
    )
