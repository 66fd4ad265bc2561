"""Facts that may be lost push out none that must not be, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cache_runtime.domain.model import Identity
from cache_runtime.domain.runs import Progress
from cache_runtime.facts import Facts
from cache_runtime.timing import PROGRESS_INTERVAL_SECONDS
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.streams import CACHE, CACHE_PROGRESS, PROGRESS
from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunSpec, RunState, WarmupOperation
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import patiently

SETS = 20
SECONDS = 30
SMALL = 64 * 1024
"""Bytes: room for what all sets tell of their ends, and not for their progress."""


class Runs:
    """The agent of one data set, whose run has ended and whose next one reports every second."""

    def __init__(self, bus: NatsBus, number: int) -> None:
        self.uid = f"uid-{number}"
        self.clock = ManualClock()
        self.facts = Facts(bus, Identity("team-a", "digits", self.uid, "digits-0", 0, "node-0"), self.clock)

    async def end(self) -> None:
        await self.facts.run_ended(self._spec("first"), RunState(phase=RunPhase.SUCCEEDED))

    async def report(self, tick: int) -> None:
        await self.facts.run_progressed(
            self._spec("second"), RunState(), Progress(tick, 0, 0, 0, 0, ()), tick
        )
        await self.clock.advance(PROGRESS_INTERVAL_SECONDS)

    def _spec(self, run_id: str) -> RunSpec:
        return RunSpec(
            run_id=run_id,
            set_namespace="team-a",
            set_name="digits",
            set_uid=self.uid,
            warmup=WarmupOperation(),
        )


async def shrink(bus: NatsBus, streams: Sequence[str]) -> None:
    js = await bus._connection.jetstream()
    for name in streams:
        config = (await js.stream_info(name)).config
        await js.update_stream(config.evolve(max_bytes=SMALL))


async def stored(bus: NatsBus, stream: str, subject: str) -> dict[str, int]:
    """How many messages there are by subject."""
    js = await bus._connection.jetstream()
    return (await js.stream_info(stream, subjects_filter=subject)).state.subjects or {}


async def test_streams_in_memory_are_there_again_after_a_restart(nats_server: NatsServer) -> None:
    bus = NatsBus(nats_server.url)
    try:
        await bus.install()
        await asyncio.to_thread(nats_server.restart)
        await patiently(bus.install)
        runs = Runs(bus, 1)
        await patiently(lambda: runs.report(1))
        found = {each.name: each.drift for each in (await bus.inspect.status()).streams}
        assert found.keys() >= {PROGRESS.name, CACHE_PROGRESS.name}
        assert not any(found.values())
    finally:
        await bus.close()


async def test_progress_of_many_sets_pushes_out_no_end_of_a_run(bus: NatsBus) -> None:
    await shrink(bus, [CACHE.name, CACHE_PROGRESS.name])
    sets = [Runs(bus, number) for number in range(SETS)]
    for each in sets:
        await each.end()
    for tick in range(SECONDS):
        for each in sets:
            await each.report(tick)

    ends = await stored(bus, CACHE.name, event_filter("cache", "run", "ended"))
    assert ends == {f"pw.evt.cache.run.ended.v1.team-a.{each.uid}": 1 for each in sets}
    progress = await stored(bus, CACHE_PROGRESS.name, ">")
    assert progress == {f"pw.evt.cacheprogress.run.progressed.v1.team-a.{each.uid}": 1 for each in sets}
