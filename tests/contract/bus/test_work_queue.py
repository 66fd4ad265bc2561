"""The work queue: every item is delivered until it is acknowledged."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from tests.contract.bus.suite import CHUNKS, Probe, make_gated

from paddlewheel.bus.streams import WORK
from paddlewheel.contracts.subjects import work_filter, work_subject
from paddlewheel.core.errors import Permanent


async def test_each_chunk_is_delivered_until_acknowledged(probe: Probe) -> None:
    work = probe.bus.work
    for number in range(3):
        for _ in range(2):
            await work.enqueue(CHUNKS, b"%d" % number, message_id=f"run-1/{number}")
    await work.enqueue(work_subject("set-1", "run-1", 1), b"of another partition", message_id="p1")
    async with aclosing(work.pull(CHUNKS)) as items:
        for number in range(3):
            item = await anext(items)
            assert (item.data, item.attempt) == (b"%d" % number, 1)
            await item.ack()
    assert len(await probe.stored(WORK.name)) == 1


async def test_an_unacknowledged_chunk_is_redelivered(probe: Probe) -> None:
    work = probe.bus.work
    await work.enqueue(CHUNKS, b"1", message_id="1")
    async with aclosing(work.pull(CHUNKS, ack_wait=0.3)) as items:
        assert (await anext(items)).attempt == 1
        again = await anext(items)
        assert (again.data, again.attempt) == (b"1", 2)
        await again.ack()


async def test_a_rejected_chunk_is_redelivered(probe: Probe) -> None:
    work = probe.bus.work
    await work.enqueue(CHUNKS, b"1", message_id="1")
    async with aclosing(work.pull(CHUNKS)) as items:
        await (await anext(items)).nak(0.05)
        assert (await anext(items)).attempt == 2


async def test_no_more_than_max_in_flight_chunks_are_out(probe: Probe) -> None:
    work = probe.bus.work
    for number in range(4):
        await work.enqueue(CHUNKS, b"%d" % number, message_id=str(number))
    async with aclosing(work.pull(CHUNKS, max_in_flight=2)) as items:
        first, second = await anext(items), await anext(items)
        third = asyncio.ensure_future(anext(items))
        await second.ack()
        assert (await third).data == b"2"
        await first.ack()
        assert (await anext(items)).data == b"3"


async def test_purge_drops_one_run_and_spares_others(probe: Probe) -> None:
    work = probe.bus.work
    for run in ("run-1", "run-2"):
        for partition in range(2):
            await work.enqueue(work_subject("set-1", run, partition), b"x", message_id=f"{run}/{partition}")
    await work.purge(work_filter("set-1", "run-1"))
    await work.purge(work_filter("set-1", "run-1"))
    left = await probe.stored(WORK.name)
    assert [m.subject for m in left] == [work_subject("set-1", "run-2", p) for p in range(2)]


async def test_a_subject_outside_the_work_stream_is_refused(probe: Probe) -> None:
    with pytest.raises(Permanent, match="NoStream"):
        await probe.bus.work.enqueue(make_gated(1).subject, b"x", message_id="1")


async def test_a_live_bus_is_healthy(probe: Probe) -> None:
    assert await probe.bus.healthy()
