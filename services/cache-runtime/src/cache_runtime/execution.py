"""Executing one chunk: rejected files are reported, the others executed and verified up to three times."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from cache_runtime.domain.model import Outcome
from cache_runtime.operations.base import TRIES, ChunkTask, RunOperation
from paddlewheel.contracts.generated.cache_v1 import Chunk, FileEntry, RunSpec
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent

log = structlog.get_logger(__name__)

PAUSE = 1.0
"""Seconds before the second execution is three times this; each further pause is three times as long."""


async def execute_chunk(
    operation: RunOperation,
    spec: RunSpec,
    chunk: Chunk,
    clock: Clock,
    warmed: int = 0,
    *,
    is_first: bool = True,
) -> Outcome:
    """Execute a chunk.

    Args:
        warmed: bytes of its partition that are recorded as cached.
        is_first: nothing of it can have been executed before.

    Raises:
        Permanent: the chunk can never be done.
        Retry: nothing can be done now.
    """
    if not chunk.files:
        return Outcome(recount=await operation.recount(spec, chunk.partition, warmed))
    task = await operation.prepare(spec, chunk.files, chunk.partition)
    accepted = [entry for entry in chunk.files if entry.path not in task.rejected]
    left, tries = await _execute(task, spec, accepted, clock)
    # Not before: another agent may be at the same chunk, and would lose what it is writing. Now it loses that
    # at most once, and finds the file complete when it tries again.
    if tries > 1 or not is_first:
        await _tidy(operation, spec, accepted)
    return _outcome(chunk, {**task.rejected, **left}, task.notes, fills_cache=operation.fills_cache)


async def _tidy(operation: RunOperation, spec: RunSpec, files: list[FileEntry]) -> None:
    """The files are done, however: copies go past the mount, which may be read-only."""
    try:
        await operation.tidy(spec, files)
    except Permanent as error:
        log.warning("unfinished copies stay", run=spec.run_id, problem=error.message)


async def _execute(
    task: ChunkTask, spec: RunSpec, files: list[FileEntry], clock: Clock
) -> tuple[Mapping[str, str], int]:
    """What is still not done after all tries, with the reason, and how many there were."""
    failures: Mapping[str, str] = {}
    tries = 0
    for attempt in range(TRIES):
        if not files:
            break
        if attempt:
            problem = next(iter(failures.values()))
            log.warning("chunk incomplete", run=spec.run_id, missing=len(files), problem=problem)
            await clock.sleep(PAUSE * 3**attempt)
        tries += 1
        await task.execute(files)
        failures = await task.verify(files)
        files = [entry for entry in files if entry.path in failures]
    return failures, tries


def _outcome(
    chunk: Chunk, failures: Mapping[str, str], notes: Mapping[str, str], *, fills_cache: bool
) -> Outcome:
    done = [entry for entry in chunk.files if entry.path not in failures]
    size = sum(entry.size for entry in done)
    failed = (f"{e.path}: {failures[e.path]}" for e in chunk.files if e.path in failures)
    noted = (f"{e.path}: {notes[e.path]}" for e in done if e.path in notes)
    return Outcome(len(done), size, size if fills_cache else 0, failed=tuple(failed), notes=tuple(noted))
