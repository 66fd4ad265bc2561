"""Key-value buckets: compare-and-set, listing and watching."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from tests.contract.bus.suite import Probe

from paddlewheel.bus.streams import RUNS_BUCKET
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Permanent

KEY = "set-1.run.state"


async def test_a_key_is_created_once_updated_by_revision_and_deleted(probe: Probe) -> None:
    kv = probe.bus.key_value(RUNS_BUCKET)
    with pytest.raises(NotFound):
        await kv.get(KEY)
    first = await kv.create(KEY, b"1")
    with pytest.raises(AlreadyExists):
        await kv.create(KEY, b"other")
    second = await kv.update(KEY, b"2", first)
    assert second > first
    with pytest.raises(Conflict):
        await kv.update(KEY, b"late", first)
    entry = await kv.get(KEY)
    assert (entry.key, entry.value, entry.revision) == (KEY, b"2", second)
    await kv.delete(KEY)
    await kv.delete(KEY)
    with pytest.raises(NotFound):
        await kv.get(KEY)
    with pytest.raises(Conflict):
        await kv.update(KEY, b"ghost", second)
    assert await kv.create(KEY, b"") > second
    assert (await kv.get(KEY)).value == b""


async def test_one_of_many_wins_a_create_and_an_update(probe: Probe) -> None:
    kv = probe.bus.key_value(RUNS_BUCKET)
    made = await asyncio.gather(*(kv.create(KEY, b"%d" % n) for n in range(8)), return_exceptions=True)
    [revision] = [r for r in made if isinstance(r, int)]
    assert sum(isinstance(r, AlreadyExists) for r in made) == 7
    written = await asyncio.gather(
        *(kv.update(KEY, b"%d" % n, revision) for n in range(8)), return_exceptions=True
    )
    assert sum(isinstance(r, Conflict) for r in written) == 7


async def test_entries_are_found_by_pattern(probe: Probe) -> None:
    kv = probe.bus.key_value(RUNS_BUCKET)
    assert await kv.entries(">") == []
    for key in ("s.r1.state", "s.r2.state", "s.r2.part-0", "t.r1.state"):
        await kv.put(key, key.encode())
    await kv.delete("s.r1.state")
    assert [e.key for e in await kv.entries("s.*.state")] == ["s.r2.state"]
    assert {e.key for e in await kv.entries("s.>")} == {"s.r2.state", "s.r2.part-0"}
    assert all(e.is_stored for e in await kv.entries("s.>"))
    assert {e.value for e in await kv.entries("*.*.state")} == {b"s.r2.state", b"t.r1.state"}


async def test_a_watch_lists_then_marks_the_end_then_follows(probe: Probe) -> None:
    kv = probe.bus.key_value(RUNS_BUCKET)
    await kv.put("set-1.r1.state", b"1")
    await kv.put("set-1.r2.state", b"1")
    await kv.put("set-1.r2.state", b"2")
    await kv.put("set-1.gone.state", b"1")
    await kv.delete("set-1.gone.state")
    await kv.put("set-1.r1.part-0", b"1")
    async with aclosing(kv.watch("set-1.*.state")) as watch:
        listed = [await anext(watch), await anext(watch)]
        assert all(entry is not None and entry.is_stored for entry in listed)
        assert {(e.key, e.value) for e in listed if e} == {("set-1.r1.state", b"1"), ("set-1.r2.state", b"2")}
        assert await anext(watch) is None
        revision = await kv.put("set-1.r3.state", b"1")
        entry = await anext(watch)
        assert entry is not None
        assert (entry.key, entry.value, entry.revision) == ("set-1.r3.state", b"1", revision)
        assert not entry.is_stored
        await kv.delete("set-1.r3.state")
        entry = await anext(watch)
        assert entry is not None
        assert (entry.key, entry.value) == ("set-1.r3.state", None)


async def test_a_watch_of_nothing_marks_the_end_at_once(probe: Probe) -> None:
    async with aclosing(probe.bus.key_value(RUNS_BUCKET).watch("set-1.>")) as watch:
        assert await anext(watch) is None


@pytest.mark.parametrize("key", ["", "a..b", "a b", "a.*", ">", "a/b"])
async def test_nonsense_keys_are_refused(probe: Probe, key: str) -> None:
    kv = probe.bus.key_value(RUNS_BUCKET)
    for write in (kv.put(key, b""), kv.create(key, b""), kv.update(key, b"", 1), kv.delete(key), kv.get(key)):
        with pytest.raises(Permanent, match="MalformedKey"):
            await write


async def test_an_undeclared_bucket_is_refused(probe: Probe) -> None:
    with pytest.raises(Permanent, match="UnknownBucket"):
        probe.bus.key_value("elsewhere")
