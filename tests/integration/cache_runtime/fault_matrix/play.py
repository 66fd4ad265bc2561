"""Playing one case: prepare, request, break, repair, wait for the end, judge."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

from tests.integration.cache_runtime.cache_harness import FINAL
from tests.integration.cache_runtime.fault_matrix.cases import Blow, Case
from tests.integration.cache_runtime.fault_matrix.faults import broken
from tests.integration.cache_runtime.fault_matrix.judging import Digests, Found, judge, judge_report
from tests.integration.cache_runtime.fault_matrix.stand import PARTITIONS, Stand, standing

from paddlewheel.contracts.generated.cache_v1 import RunState
from paddlewheel.testkit.storage import ObjectStore
from paddlewheel.testkit.wait import eventually

ENDS_WITHIN = 150.0
SETTLES_WITHIN = 90.0


@dataclass(frozen=True)
class Verdict:
    """The result of a case.

    Args:
        problems: promises that were not kept.
        midway: the fault came before the run had ended.
        seconds: that it took, with all servers.
        logs: of both agents, when there are problems.
    """

    case: Case
    problems: tuple[str, ...]
    midway: bool
    end: str
    seconds: float
    logs: str = ""

    def __str__(self) -> str:
        words = [str(self.case), self.end, "met midway" if self.midway else "fault after the end"]
        return f"{', '.join(words)}, {self.seconds:.0f} s" + "".join(f"\n    {p}" for p in self.problems)


async def play(case: Case, store: ObjectStore) -> Verdict:
    """Play a case on servers of its own; only the object store is shared."""
    began = time.monotonic()
    async with standing(case, store) as stand:
        await stand.prepare()
        before = await stand.outside()
        midway, outage = await _run_and_break(stand)
        state, problems = await _ended(stand)
        problems += await _judged(stand, before, state, midway=midway, outage=outage)
        logs = "\n".join(stand.harness.runtimes.log(p)[-20000:] for p in PARTITIONS) if problems else ""
    end = f"{state.phase.name} {state.reason}".strip()
    return Verdict(case, tuple(problems), midway, end, time.monotonic() - began, logs)


async def _run_and_break(stand: Stand) -> tuple[bool, float]:
    """Whether the fault came before the run had ended, and its seconds, with those of the repair."""
    harness, blow = stand.harness, stand.scenario.blow
    await harness.request("run", stand.scenario.request, len(PARTITIONS))
    await eventually(
        lambda: _has_come(stand, blow), within=ENDS_WITHIN, every=0.01, what="the moment of the fault"
    )
    await asyncio.sleep(blow.delay)
    midway = (await harness.state("run")).phase not in FINAL
    began = time.monotonic()
    async with broken(stand):
        await asyncio.sleep(blow.outage)
    return midway, time.monotonic() - began


async def _has_come(stand: Stand, blow: Blow) -> bool:
    """Whether it is time for the fault: enough chunks are recorded, or the master judges the run."""
    state = await stand.harness.state("run")
    if blow.ending:
        return state.judgement is not None or state.phase in FINAL
    done = [(await stand.harness.part("run", partition)).watermark for partition in PARTITIONS]
    return bool(state.master) and (sum(done) >= blow.chunks or state.phase in FINAL)


async def _ended(stand: Stand) -> tuple[RunState, list[str]]:
    try:
        return await stand.harness.ended("run", ENDS_WITHIN), []
    except AssertionError:
        state = await stand.harness.state("run")
        return state, [f"no end after {ENDS_WITHIN:.0f} s: {state.reason} {state.message}"]


async def _judged(
    stand: Stand, before: dict[str, Digests], state: RunState, *, midway: bool, outage: float
) -> list[str]:
    """All problems, once the nodes have reported their present state."""

    async def is_settled() -> bool:
        if not all([await asyncio.to_thread(stand.can_read, partition) for partition in PARTITIONS]):
            return False  # killed a moment ago, and what its node has reported is from before
        return not any([judge_report(await stand.report(partition)) for partition in PARTITIONS])

    with suppress(AssertionError):  # the judgement reports the difference
        await eventually(is_settled, within=SETTLES_WITHIN, every=0.5)
    nodes, outside = await stand.nodes(), await stand.outside()
    touched = {place: (before[place], outside[place]) for place in before}
    found = Found(state, nodes, await stand.source(), touched, midway, outage)
    return judge(stand.scenario, stand.links, found)
