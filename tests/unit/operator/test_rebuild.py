"""A rebuild covers all objects of a replica. It runs after the loss of a stream, and on command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.unit.operator.conftest import OutboxHarness, make_source

from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.announcements import Announcements
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.operator.outbox import Outbox, Republished
from paddlewheel.operator.rebuild import Owned, Rebuilder, Rebuilt
from paddlewheel.testkit.wait import eventually


class Objects:
    """The objects of a replica."""

    def __init__(self, outbox: Outbox, facts: dict[Key, Announcements]) -> None:
        self.outbox = outbox
        self.facts = facts
        self.seen: list[Key] = []

    async def republish(self, key: Key, everything: bool) -> Republished:
        self.seen.append(key)
        source = make_source(key.name)
        return await self.outbox.republish(source, self.facts[key], everything=everything)

    def rebuilder(self, harness: OutboxHarness) -> Rebuilder:
        return Rebuilder(self.outbox, [Owned(lambda: self.facts, self.republish)], harness.clock)


async def make_objects(harness: OutboxHarness, count: int = 3) -> Objects:
    outbox = harness.outbox()
    names = [f"u{number}" for number in range(count)]
    return Objects(outbox, {Key("ns", n): await harness.life(outbox, n) for n in names})


async def finish(harness: OutboxHarness, work: asyncio.Task[Rebuilt]) -> Rebuilt:
    """Advance the clock until the call is done."""
    while not work.done():
        await asyncio.sleep(0)
        await harness.clock.advance(0.1)
    return work.result()


async def test_a_rebuild_counts_and_may_be_repeated(harness: OutboxHarness) -> None:
    objects = await make_objects(harness)
    rebuilder = objects.rebuilder(harness)
    harness.bus.lose_facts(JOBS.name)
    first = await finish(harness, asyncio.create_task(rebuilder.rebuild(everything=True)))
    again = await finish(harness, asyncio.create_task(rebuilder.rebuild(everything=True)))
    assert (first, again) == (Rebuilt(3, Republished(6, 6)), Rebuilt(3, Republished(6, 0)))
    assert harness.stored() == [f"u{n}/{fact}/0" for n in range(3) for fact in ("JobAccepted", "JobStarting")]


async def test_a_lost_stream_is_noticed_and_filled_again_without_being_asked(harness: OutboxHarness) -> None:
    objects = await make_objects(harness)
    running = asyncio.create_task(objects.rebuilder(harness).run())
    try:
        await turn(harness, lambda: len(objects.seen) == 3)
        harness.bus.lose_facts(JOBS.name)
        await turn(harness, lambda: len(harness.stored()) == 6)
    finally:
        await end(running)
    assert len(set(harness.stored())) == 6


async def test_a_rebuild_that_the_bus_cut_off_is_finished_later(harness: OutboxHarness) -> None:
    objects = await make_objects(harness)
    harness.bus.lose_facts(JOBS.name)
    real, left = harness.bus.publish, [2]

    async def fail_soon(event: Event) -> None:
        if left[0] == 0:
            raise Retry("Down")
        left[0] -= 1
        await real(event)

    harness.bus.publish = fail_soon  # type: ignore[method-assign]
    running = asyncio.create_task(objects.rebuilder(harness).run())
    try:
        await turn(harness, lambda: len(harness.stored()) == 2)
        left[0] = 100
        await turn(harness, lambda: len(harness.stored()) == 6)
    finally:
        await end(running)


async def test_an_object_that_cannot_be_read_keeps_no_other_from_its_facts(harness: OutboxHarness) -> None:
    objects = await make_objects(harness)
    harness.bus.lose_facts(JOBS.name)
    del objects.facts[Key("ns", "u1")]
    keys = [Key("ns", f"u{number}") for number in range(3)]
    rebuilder = Rebuilder(objects.outbox, [Owned(lambda: keys, objects.republish)], harness.clock)
    done = await finish(harness, asyncio.create_task(rebuilder.rebuild(everything=True)))
    assert done == Rebuilt(3, Republished(4, 4))
    assert {id_.split("/")[0] for id_ in harness.stored()} == {"u0", "u2"}


async def test_newcomers_of_a_changed_share_are_looked_after(harness: OutboxHarness) -> None:
    objects = await make_objects(harness)
    rebuilder = objects.rebuilder(harness)
    harness.bus.lose_facts(JOBS.name)
    others = {Key("ns", "u2"): objects.facts.pop(Key("ns", "u2"))}
    running = asyncio.create_task(rebuilder.run())
    try:
        await turn(harness, lambda: len(harness.stored()) == 4)
        objects.facts |= others
        rebuilder.wake()
        await turn(harness, lambda: len(harness.stored()) == 6)
    finally:
        await end(running)


async def turn(harness: OutboxHarness, until: Callable[[], bool]) -> None:
    """Advance the clock until the condition holds."""

    async def holds() -> bool:
        await harness.clock.advance(1.0)
        return until()

    await eventually(holds, every=0.001)
