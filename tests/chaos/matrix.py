"""Sync, warmup, rmr and clear, each under each fault, judged by the checksum of every file."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from pathlib import Path

import typer
from tests.bench.progress import note
from tests.bench.rows import Row
from tests.integration.cache_runtime.fault_matrix.cases import Case, pairs
from tests.integration.cache_runtime.fault_matrix.play import Verdict, play

from paddlewheel.core.errors import PaddlewheelError
from paddlewheel.testkit.storage import ObjectStore, running_object_store

AT_ONCE = 3
"""Cases: most of the time of each is waiting."""
MIDWAY = 0.75
"""Share of the faults that must have come before the run had ended, or the matrix shows nothing."""
MIDWAY_OF_EACH = 0.25
"""Of those of one operation, which the others do not make up for; a clear takes a fraction of a second."""


async def run(seed: int, only: str = "", rounds: int = 1, logs: Path | None = None) -> list[Row]:
    """All rows of the matrix.

    Args:
        seed: of the first round; each further one has the next number.
        only: a part of the pairs, as in `sync/store`, `sync/` or `/store`.
        logs: a folder that keeps the logs of cases that fail.

    Raises:
        typer.BadParameter: `only` names no pair.
    """
    chosen = [pair for pair in pairs() if only in f"{pair[0]}/{pair[1]}"]
    if not chosen:
        raise typer.BadParameter(f"no pair {only!r}; write sync/store, sync/ or /store", param_hint="--pairs")
    cases = [Case(*pair, seed + number) for number in range(rounds) for pair in chosen]
    slots = asyncio.Semaphore(AT_ONCE)
    with running_object_store() as store:
        verdicts = await asyncio.gather(*(_played(case, store, slots, logs) for case in cases))
    return rows_of(verdicts)


async def _played(case: Case, store: ObjectStore, slots: asyncio.Semaphore, logs: Path | None) -> Verdict:
    """The others are played whatever becomes of one."""
    async with slots:
        try:
            verdict = await play(case, store)
        except (AssertionError, OSError, PaddlewheelError) as error:
            problems = (f"could not be played: {str(error)[:200]!r}",)
            logged = traceback.format_exc()
            verdict = Verdict(case, problems, midway=False, end="", seconds=0.0, logs=logged)
    _tell(verdict, logs)
    return verdict


def rows_of(verdicts: Sequence[Verdict]) -> list[Row]:
    """A row for each pair, and those for the moments of the faults."""
    broken: dict[str, int] = {}
    for verdict in verdicts:
        name = f"chaos.matrix.{verdict.case.operation}.{verdict.case.fault}.promises_broken"
        broken[name] = broken.get(name, 0) + len(verdict.problems)
    rows = [Row(name, count, 0) for name, count in broken.items()]
    for operation in dict.fromkeys(verdict.case.operation for verdict in verdicts):
        share = _met_midway([verdict for verdict in verdicts if verdict.case.operation is operation])
        name = f"chaos.matrix.{operation}.faults_met_midway"
        rows.append(Row(name, share, MIDWAY_OF_EACH, at_least=True))
    return [*rows, Row("chaos.matrix.faults_met_midway", _met_midway(verdicts), MIDWAY, at_least=True)]


def _met_midway(verdicts: Sequence[Verdict]) -> float:
    """Their share."""
    return sum(verdict.midway for verdict in verdicts) / max(1, len(verdicts))


def _tell(verdict: Verdict, logs: Path | None) -> None:
    case = verdict.case
    note(str(verdict))
    if verdict.problems:
        again = f"--pairs {case.operation}/{case.fault} --seed {case.seed}"
        note(f'    again: make chaos ONLY=matrix ARGS="{again}"')
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)
            (logs / f"{case.operation}-{case.fault}-{case.seed}.log").write_text(verdict.logs)
