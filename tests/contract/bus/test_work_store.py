"""Work: each chunk is one message, read by its subject, until it is done."""

from __future__ import annotations

import pytest
from tests.contract.bus.suite import Probe, make_gated

from paddlewheel.bus.streams import WORK
from paddlewheel.contracts.subjects import work_filter, work_subject
from paddlewheel.core.errors import Permanent

CHUNK, NEXT = (work_subject("set-1", "run-1", 0, number) for number in (0, 1))


async def test_a_chunk_is_read_by_its_subject_as_often_as_one_likes(probe: Probe) -> None:
    work = probe.bus.work
    await work.put(CHUNK, b"first")
    await work.put(NEXT, b"next")
    assert [await work.get(each) for each in (CHUNK, NEXT, CHUNK)] == [b"first", b"next", b"first"]


async def test_there_may_be_no_chunk_yet(probe: Probe) -> None:
    assert await probe.bus.work.get(CHUNK) is None


async def test_a_chunk_that_is_published_again_takes_the_place_of_the_first(probe: Probe) -> None:
    work = probe.bus.work
    for data in (b"first", b"again"):
        await work.put(CHUNK, data)
    assert await work.get(CHUNK) == b"again"
    assert len(await probe.stored(WORK.name)) == 1


async def test_a_chunk_that_is_done_goes_and_no_other(probe: Probe) -> None:
    work = probe.bus.work
    for each in (CHUNK, NEXT):
        await work.put(each, b"x")
    for _ in range(2):
        await work.drop(CHUNK)
    assert (await work.get(CHUNK), await work.get(NEXT)) == (None, b"x")


async def test_purge_drops_one_run_and_spares_others(probe: Probe) -> None:
    work = probe.bus.work
    for run in ("run-1", "run-2"):
        for partition in range(2):
            await work.put(work_subject("set-1", run, partition, 0), b"x")
    await work.purge(work_filter("set-1", "run-1"))
    await work.purge(work_filter("set-1", "run-1"))
    left = await probe.stored(WORK.name)
    assert [m.subject for m in left] == [work_subject("set-1", "run-2", p, 0) for p in range(2)]


async def test_a_subject_outside_the_work_stream_is_refused(probe: Probe) -> None:
    with pytest.raises(Permanent, match="NoStream"):
        await probe.bus.work.put(make_gated(1).subject, b"x")


async def test_a_live_bus_is_healthy(probe: Probe) -> None:
    assert await probe.bus.healthy()
