"""What an agent reports about its node: it fits into the bucket, and comes whatever hangs or fails there."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock

import pytest
from opentelemetry.metrics import NoOpMeter
from tests.unit.cache_runtime.settings import make_settings

from cache_runtime import node, timing
from cache_runtime.app import App
from cache_runtime.domain.model import CacheUse, Identity, TreeSize
from cache_runtime.engines import juicefs
from cache_runtime.engines.base import BaseMount
from cache_runtime.engines.ports import Ailment, Engine
from cache_runtime.engines.view import View
from cache_runtime.metrics import Metrics
from cache_runtime.node import MESSAGE_MAX, CacheLimit, NodeReporter, left_behind
from cache_runtime.volume_record import VolumeRecord
from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.bus.streams import NODES, NODES_BUCKET
from paddlewheel.contracts.generated.cache_v1 import NodeStatus, StagedElsewhere
from paddlewheel.contracts.staged_writes import LAST_WORD_SECONDS
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.errors import Retry, Unavailable
from paddlewheel.core.tasks import end
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.wait import eventually


async def _nothing_staged() -> int:
    return 0


async def _hang() -> int:
    await asyncio.Event().wait()
    return 0


async def _never(*, is_silent: bool) -> None:
    await asyncio.Event().wait()


async def _fail() -> int:
    raise Retry("CacheUnreadable", "Input/output error")


def make_mount(ailment: Ailment | None = None) -> SimpleNamespace:
    """There is none, for the reason that is given."""
    message = ailment.message if ailment else ""
    return SimpleNamespace(
        is_mounted=False,
        message=message,
        ailment=ailment,
        changed_at=None,
        is_ending=False,
        is_silent=False,
        wait_silent=_never,
    )


INTERVAL = 10.0


def make_reporter(
    nodes: KeyValue,
    cache: SimpleNamespace,
    *,
    mount: SimpleNamespace | None = None,
    record: VolumeRecord | None = None,
    clock: ManualClock | None = None,
    is_writeback: bool = False,
) -> NodeReporter:
    """Of a node without a mount, unless there is one."""
    mount = mount or make_mount()
    engine = cast(Engine, SimpleNamespace(mount=mount, cache=cache))
    me = Identity(set_namespace="ns", set_name="digits", set_uid="uid", partition=0, pod="pod", node="node")
    return NodeReporter(
        nodes,
        me,
        engine,
        record or VolumeRecord(nodes, "uid"),
        [],
        CacheLimit(0),
        clock or ManualClock(),
        INTERVAL,
        is_writeback=is_writeback,
    )


async def test_what_others_report_is_read_once_whether_it_names_a_volume_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a thousand agents would read a thousand reports every ten seconds."""
    nodes, reads = MemoryBus().key_value(NODES_BUCKET), []
    entries = nodes.entries

    async def counted(pattern: str) -> list[Entry]:
        reads.append(pattern)
        return await entries(pattern)

    monkeypatch.setattr(nodes, "entries", counted)
    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged))
    for _ in range(5):
        await reporter.report()
    assert len(reads) == 1


async def test_no_second_measurement_begins_while_one_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each holds a thread, for as long as the disk hangs."""
    nodes, go = MemoryBus().key_value(NODES_BUCKET), asyncio.Event()
    looks = []

    async def staged() -> int:
        looks.append(1)
        await go.wait()
        return 7

    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=staged))
    with monkeypatch.context() as patch:
        patch.setattr(node, "FIGURES_TIMEOUT_SECONDS", 0.0)
        await reporter.report()
        while not looks:
            await asyncio.sleep(0)
        await reporter.report()
    go.set()
    await reporter.report()
    assert len(looks) == 1
    assert await _reported(nodes) == (7, False)


async def test_a_disk_that_fails_does_not_end_the_reports() -> None:
    nodes = MemoryBus().key_value(NODES_BUCKET)

    async def staged() -> int:
        raise OSError(errno.EIO, "Input/output error")

    await make_reporter(nodes, SimpleNamespace(staged_bytes=staged)).report()
    assert await nodes.get("uid.0") is not None


HERE = NodeStatus(node="node", staged_bytes=7)
PODS_WROTE = NodeStatus(node="node", staged_bytes=7, mounted=True, writeback=True)


@pytest.mark.parametrize(
    ("before", "is_writeback", "staged", "unknown"),
    [
        (None, False, 0, True),
        (HERE, False, 7, False),
        (NodeStatus(node="node", staged_bytes=7, staged_unknown=True), False, 7, True),
        (PODS_WROTE, False, 7, True),
        (NodeStatus(node="other", staged_bytes=7), False, 0, True),
        (HERE, True, 7, True),
        (NodeStatus(node="node"), True, 0, True),
    ],
    ids=[
        "new",
        "same node",
        "unknown before",
        "died while pods wrote",
        "other node",
        "writeback",
        "nothing before",
    ],
)
async def test_what_cannot_be_measured_is_as_before_or_unknown(
    before: NodeStatus | None, is_writeback: bool, staged: int, unknown: bool
) -> None:
    nodes = MemoryBus().key_value(NODES_BUCKET)
    if before is not None:
        await nodes.put("uid.0", to_json(before))
    is_well = False

    async def measure() -> int:
        if not is_well:
            raise Retry("CacheUnreadable", "Input/output error")
        return 3

    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=measure), is_writeback=is_writeback)
    for _ in range(2):
        await reporter.report()
        assert await _reported(nodes) == (staged, unknown)
    is_well = True
    await reporter.report()
    assert await _reported(nodes) == (3, False)


@pytest.mark.parametrize("measure", [_hang, _fail])
@pytest.mark.parametrize("is_writeback", [True, False])
async def test_a_figure_from_before_the_mount_was_lost_is_the_least_that_pods_have_left(
    measure: Callable[[], Awaitable[int]], is_writeback: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they write to the cache first, they may have written since."""
    nodes, clock, cache = MemoryBus().key_value(NODES_BUCKET), ManualClock(), SimpleNamespace()
    mount = make_mount()
    mount.changed_at, cache.staged_bytes = clock.now(), _nothing_staged
    reporter = make_reporter(nodes, cache, mount=mount, clock=clock, is_writeback=is_writeback)
    await reporter.report()
    assert await _reported(nodes) == (0, False)
    await clock.advance(1.0)
    mount.changed_at, cache.staged_bytes = clock.now(), measure
    with monkeypatch.context() as patch:
        patch.setattr(node, "FIGURES_TIMEOUT_SECONDS", 0.0)
        patch.setattr(node, "LAST_WORD_SECONDS", 0.0)
        await reporter.report()
        assert await _reported(nodes) == (0, is_writeback)
        await reporter.report_last()


async def test_a_mount_that_hangs_does_not_keep_staged_writes_from_being_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As while the database is away: the figures of the cache and the data set need it."""
    nodes, hangs = MemoryBus().key_value(NODES_BUCKET), asyncio.Event()

    async def hang(_: NodeReporter) -> None:
        hangs.set()
        await _hang()

    async def staged() -> int:
        await hangs.wait()
        return 7

    monkeypatch.setattr(NodeReporter, "_measure_tree", hang)
    monkeypatch.setattr(node, "FIGURES_TIMEOUT_SECONDS", 0.01)
    mount, cache = make_mount(), SimpleNamespace(staged_bytes=staged, use=_hang)
    mount.is_mounted = True
    reporter = make_reporter(nodes, cache, mount=mount, is_writeback=True)
    for measure, figure in ((staged, (7, False)), (_nothing_staged, (0, False))):
        cache.staged_bytes = measure
        for _ in range(500):
            await reporter.report()
            if await _reported(nodes) == figure:
                break
        assert await _reported(nodes) == figure
    await reporter.report_last()


@pytest.mark.parametrize(("takes", "measured_at"), [(0.0, [0, 10, 20, 30, 40]), (5.0, [0, 60, 120])])
async def test_the_size_is_asked_for_in_proportion_to_what_that_takes(
    monkeypatch: pytest.MonkeyPatch, takes: float, measured_at: list[float]
) -> None:
    """An engine may read a million files for it, while others change the file system without a pause. What it
    is once that has settled is measured in any case."""
    clock, began, changes = ManualClock(), list[float](), iter(range(100))
    start = clock.monotonic()

    def counters(path: str) -> tuple[int, int]:
        return (next(changes), 0) if clock.monotonic() - start < until else (-1, 0)

    async def size() -> TreeSize:
        began.append(clock.monotonic() - start)
        await clock.advance(takes)
        return TreeSize(1, 1)

    until = 5.0 if not takes else 70.0
    mount = make_mount()
    mount.is_mounted, mount.path = True, "/"
    monkeypatch.setattr(node, "_counters", counters)
    reporter = make_reporter(MemoryBus().key_value(NODES_BUCKET), SimpleNamespace(), mount=mount, clock=clock)
    reporter._engine.volume = SimpleNamespace(size=size)  # type: ignore[misc]
    while clock.monotonic() - start < 300:
        await reporter._measure_size()
        await clock.advance(10 - (clock.monotonic() - start) % 10)
    assert began == measured_at


async def test_a_report_has_the_age_of_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size is current while the counters of the file system do not change."""
    clock, mount, is_away = ManualClock(), make_mount(), False
    counters = (1, 1)

    async def size() -> TreeSize:
        if is_away:
            raise Retry("MountLost", "Transport endpoint is not connected")
        return TreeSize(3, 30)

    mount.is_mounted, mount.path = True, "/"
    monkeypatch.setattr(node, "_counters", lambda _: counters)
    reporter = make_reporter(MemoryBus().key_value(NODES_BUCKET), SimpleNamespace(), mount=mount, clock=clock)
    reporter._engine.volume = SimpleNamespace(size=size)  # type: ignore[misc]
    ages = [reporter._size_age]
    for step in ("measured", "later", "unchanged", "settled", "away", "back"):
        if step == "settled":
            await clock.advance(timing.SIZE_SETTLED_GRACE_SECONDS)
        await clock.advance(7)
        is_away = step == "away"
        counters = (2, 2) if step in ("away", "back") else counters
        if step != "later":
            await reporter._measure_size()
        ages.append(reporter._size_age)
    assert ages == [0, 1, 7, 1, 1, 7, 1]


async def test_a_new_agent_says_that_it_has_not_measured_the_set_and_repeats_its_predecessor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes, mount = MemoryBus().key_value(NODES_BUCKET), make_mount()

    async def reported() -> tuple[bool, int, int]:
        found = from_json(NodeStatus, (await nodes.get("uid.0")).value or b"")
        return found.size_unknown, found.total_bytes, found.total_files

    async def size() -> TreeSize:
        return TreeSize(3, 30)

    async def use() -> CacheUse:
        return CacheUse()

    monkeypatch.setattr(node, "_counters", lambda _: (1, 1))
    cache = SimpleNamespace(staged_bytes=_nothing_staged, use=use)
    await make_reporter(nodes, cache).report()
    assert await reported() == (True, 0, 0)
    await nodes.put("uid.0", to_json(NodeStatus(node="node", total_bytes=20, total_files=2)))
    reporter = make_reporter(nodes, cache, mount=mount)
    reporter._engine.volume = SimpleNamespace(size=size)  # type: ignore[misc]
    await reporter.report()
    assert await reported() == (True, 20, 2)
    mount.is_mounted, mount.path = True, "/"
    await reporter.report()
    assert await reported() == (False, 30, 3)


async def test_a_report_says_what_could_not_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, mount = MemoryBus().key_value(NODES_BUCKET), make_mount()
    broken = True

    async def told() -> str:
        await reporter.report()
        return from_json(NodeStatus, (await nodes.get("uid.0")).value or b"").figures_problem

    async def size() -> TreeSize:
        raise Retry("MountLost", "Transport endpoint is not connected")

    async def use() -> CacheUse:
        if broken:
            raise Retry("MountLost", ".stats: Input/output error")
        return CacheUse()

    def statvfs(path: str) -> os.statvfs_result:
        raise OSError(errno.EIO, "Input/output error") if path == "/" else FileNotFoundError

    monkeypatch.setattr(node, "_counters", lambda _: (1, 1))
    monkeypatch.setattr(os, "statvfs", statvfs)
    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged, use=use), mount=mount)
    reporter._engine.volume = SimpleNamespace(size=size)  # type: ignore[misc]
    reporter._dirs = ["/", "/tmp"]
    assert await told() == "/: Input/output error", "of a mount that is down its own message tells"
    mount.is_mounted, mount.path = True, "/"
    disk, tree = "/: Input/output error", "size of the set: Transport endpoint is not connected"
    assert await told() == f"{disk}; cache: .stats: Input/output error; {tree}"
    broken = False
    reporter._dirs = []
    assert await told() == tree


async def test_a_report_says_of_when_its_figure_of_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes in time when a measurement takes long, with the figure before that."""
    nodes, clock, mount = MemoryBus().key_value(NODES_BUCKET), ManualClock(), make_mount()
    answers = dict[int, asyncio.Event]()

    async def use() -> CacheUse:
        answers[len(answers)] = answer = asyncio.Event()
        await answer.wait()
        return CacheUse(7 * len(answers))

    async def told() -> tuple[int, float | None, int, str]:
        await reporter.report()
        found = from_json(NodeStatus, (await nodes.get("uid.0")).value or b"")
        assert found.updated_at is not None
        age = (found.updated_at - found.cached_at).total_seconds() if found.cached_at else None
        return found.cached_bytes, age, found.cached_age, found.figures_problem

    async def size() -> TreeSize:
        return TreeSize(0, 0)

    monkeypatch.setattr(node, "_counters", lambda _: (1, 1))
    monkeypatch.setattr(node, "FIGURES_TIMEOUT_SECONDS", 0.01)
    mount.is_mounted, mount.path = True, "/"
    cache = SimpleNamespace(staged_bytes=_nothing_staged, use=use)
    reporter = make_reporter(nodes, cache, mount=mount, clock=clock)
    reporter._engine.volume = SimpleNamespace(size=size)  # type: ignore[misc]
    assert await told() == (0, None, 0, "cache: not measured yet")
    await clock.advance(30.0)
    answers[0].set()
    assert await told() == (7, 30.0, 30, "")
    await clock.advance(9.5)
    assert await told() == (7, 39.5, 40, "")
    answers[1].set()
    assert await told() == (14, 0.0, 1, "")
    await reporter.report_last()


async def test_a_figure_of_a_disk_that_is_slow_counts_until_it_is_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would be unknown in each other report."""
    nodes, clock = MemoryBus().key_value(NODES_BUCKET), ManualClock()
    cache = SimpleNamespace(staged_bytes=_nothing_staged)
    reporter = make_reporter(nodes, cache, clock=clock, is_writeback=True)
    await reporter.report()
    cache.staged_bytes = _hang
    with monkeypatch.context() as patch:
        patch.setattr(node, "FIGURES_TIMEOUT_SECONDS", 0.0)
        patch.setattr(node, "LAST_WORD_SECONDS", 0.0)
        for age, unknown in ((10, False), (20, False), (30, False), (40, True)):
            await clock.advance(10.0)
            await reporter.report()
            assert await _reported(nodes) == (0, unknown)
            assert (await _report(nodes)).staged_age == age, "and pods may have written since"
        await reporter.report_last()


@pytest.mark.parametrize(
    ("measure", "staged", "unknown"), [(_nothing_staged, 0, False), (_hang, 7, True), (_fail, 7, True)]
)
async def test_the_last_report_says_what_is_measured_after_the_end_of_the_mount(
    measure: Callable[[], Awaitable[int]], staged: int, unknown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what was measured while the client was ending, nor what has not been answered since."""
    nodes, cache = MemoryBus().key_value(NODES_BUCKET), SimpleNamespace()
    asked, answer = asyncio.Event(), asyncio.Event()

    async def early() -> int:
        asked.set()
        await answer.wait()
        return 0

    async def seven() -> int:
        return 7

    cache.staged_bytes = seven
    reporter = make_reporter(nodes, cache, is_writeback=True)
    await reporter.report()
    assert await _reported(nodes) == (7, False)
    cache.staged_bytes = early
    regular = asyncio.create_task(reporter.report())
    await asked.wait()
    await end(regular)
    answer.set()
    cache.staged_bytes = measure
    with monkeypatch.context() as patch:
        if unknown:
            patch.setattr(node, "FIGURES_TIMEOUT_SECONDS", 0.0)
            patch.setattr(node, "LAST_WORD_SECONDS", 0.0)
        await reporter.report_last()
    assert await _reported(nodes) == (staged, unknown)


@pytest.mark.parametrize("silent", ["bus", "disk"])
async def test_the_last_word_of_an_agent_is_tried_again(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, what pods may have written would be unknown for good: nobody comes back to the node."""
    nodes, clock, tries = MemoryBus().key_value(NODES_BUCKET), ManualClock(), 0
    cache, put = SimpleNamespace(staged_bytes=_nothing_staged), nodes.put

    async def silent_bus(key: str, value: bytes) -> int:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Unavailable("BusUnreachable", "no answer")
        return await put(key, value)

    async def silent_disk() -> int:
        nonlocal tries
        tries += 1
        return await (_fail() if tries < 3 else _nothing_staged())

    reporter = make_reporter(nodes, cache, clock=clock, is_writeback=True)
    if silent == "bus":
        monkeypatch.setattr(nodes, "put", silent_bus)
    else:
        cache.staged_bytes = silent_disk
    last = asyncio.create_task(reporter.report_last())
    while not last.done():
        await clock.advance(timing.LAST_REPORT_INTERVAL_SECONDS)
        await asyncio.sleep(0.001)
    assert (await _reported(nodes), tries) == ((0, False), 3)
    assert clock.monotonic() < LAST_WORD_SECONDS


async def test_a_last_word_that_nobody_takes_holds_no_agent_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    cache = SimpleNamespace(staged_bytes=_fail)
    reporter = make_reporter(MemoryBus().key_value(NODES_BUCKET), cache, clock=clock, is_writeback=True)
    last = asyncio.create_task(reporter.report_last())
    while not last.done():
        await clock.advance(timing.LAST_REPORT_INTERVAL_SECONDS)
        await asyncio.sleep(0.001)
    assert clock.monotonic() >= LAST_WORD_SECONDS


async def test_while_the_client_of_a_lost_mount_ends_there_may_be_more_than_is_measured() -> None:
    """It puts what it has buffered into the cache."""
    nodes, mount = MemoryBus().key_value(NODES_BUCKET), make_mount()
    cache = SimpleNamespace(staged_bytes=_nothing_staged)
    reporter = make_reporter(nodes, cache, mount=mount, is_writeback=True)
    for is_ending in (True, False, True):
        mount.is_ending = is_ending
        await reporter.report()
        assert await _reported(nodes) == (0, is_ending)


async def test_that_nothing_is_left_on_a_node_is_told_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever tells it reads what all partitions report, each time."""
    nodes, clock, listings = MemoryBus().key_value(NODES_BUCKET), ManualClock(), 0
    await nodes.put("uid.0", to_json(NodeStatus(node="a", writeback=True)))
    entries = nodes.entries

    async def listed(pattern: str) -> list[Entry]:
        nonlocal listings
        listings += 1
        return await entries(pattern)

    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged), clock=clock)
    await reporter.report()
    assert (await _report(nodes)).staged_elsewhere == [NOTHING_ON_A]
    await clock.advance(timing.EMPTY_NODE_REPORT_GRACE_SECONDS)
    monkeypatch.setattr(nodes, "entries", listed)
    await reporter.report()
    assert ((await _report(nodes)).staged_elsewhere, listings) == ([], 0)


ON_A = StagedElsewhere(node="a", staged_bytes=7)
NOTHING_ON_A = StagedElsewhere(node="a")
UNKNOWN_ON_B = StagedElsewhere(node="b", staged_unknown=True)


@pytest.mark.parametrize(
    ("before", "elsewhere"),
    [
        (None, []),
        (NodeStatus(node="a", staged_bytes=7, mounted=True), [ON_A]),
        (NodeStatus(node="a", mounted=True), []),
        (NodeStatus(node="a", writeback=True), [NOTHING_ON_A]),
        (NodeStatus(node="a", writeback=True, staged_bytes=7), [ON_A]),
        (
            NodeStatus(node="b", staged_unknown=True, staged_elsewhere=[NOTHING_ON_A]),
            [UNKNOWN_ON_B, NOTHING_ON_A],
        ),
        (NodeStatus(node="b", mounted=True, writeback=True, staged_elsewhere=[ON_A]), [UNKNOWN_ON_B, ON_A]),
        (NodeStatus(node="b", staged_unknown=True, staged_elsewhere=[ON_A]), [UNKNOWN_ON_B, ON_A]),
        (NodeStatus(node="a", staged_elsewhere=[ON_A]), []),
        (NodeStatus(node="node", staged_bytes=7, staged_elsewhere=[UNKNOWN_ON_B]), [UNKNOWN_ON_B]),
        (NodeStatus(node="a", staged_elsewhere=[StagedElsewhere(node="node", staged_bytes=7)]), []),
    ],
    ids=[
        "new",
        "moved",
        "moved empty",
        "ended in order",
        "ended in order with writes",
        "died after one that ended in order",
        "died while pods wrote",
        "moved twice",
        "uploaded there",
        "same node",
        "back",
    ],
)
async def test_what_the_partition_has_left_on_other_nodes_stays_known(
    before: NodeStatus | None, elsewhere: list[StagedElsewhere]
) -> None:
    nodes = MemoryBus().key_value(NODES_BUCKET)
    if before is not None:
        await nodes.put("uid.0", to_json(before))
    for _ in range(2):
        # Each by an agent that was started anew, as after a restart on the new node.
        await make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged)).report()
        status = from_json(NodeStatus, (await nodes.get("uid.0")).value or b"")
        assert (status.node, status.staged_elsewhere) == ("node", elsewhere)


@pytest.mark.parametrize("skew", [-600, 0, 600])
async def test_what_was_left_is_handed_over_to_the_partition_that_is_there_now(skew: int) -> None:
    """Whatever time it is there."""
    nodes, clock = MemoryBus().key_value(NODES_BUCKET), ManualClock()
    await nodes.put("uid.0", to_json(NodeStatus(node="a", staged_bytes=7, mounted=True)))
    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged), clock=clock)
    for mounted, elsewhere in ((True, [ON_A]), (False, [ON_A]), (True, [])):
        at = clock.now() + timedelta(seconds=skew)
        report = NodeStatus(node="a", partition=1, mounted=mounted, updated_at=at)
        await nodes.put("uid.1", to_json(report))
        await reporter.report()
        assert (await _report(nodes)).staged_elsewhere == elsewhere
        await clock.advance(INTERVAL)


@pytest.mark.parametrize("skew", [-600, 0, 600])
async def test_nothing_is_handed_over_to_a_partition_that_says_nothing_any_more(skew: int) -> None:
    """By its clock, its last report may be from the future for long."""
    nodes, clock = MemoryBus().key_value(NODES_BUCKET), ManualClock()
    await nodes.put("uid.0", to_json(NodeStatus(node="a", staged_bytes=7, mounted=True)))
    last = NodeStatus(node="a", partition=1, mounted=True, updated_at=clock.now() + timedelta(seconds=skew))
    await nodes.put("uid.1", to_json(last))
    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged), clock=clock)
    for _ in range(3):
        await reporter.report()
        assert (await _report(nodes)).staged_elsewhere == [ON_A]
        await clock.advance(INTERVAL)


async def test_a_report_of_a_time_in_which_nobody_looked_hands_nothing_over() -> None:
    nodes, clock = MemoryBus().key_value(NODES_BUCKET), ManualClock()
    await nodes.put("uid.0", to_json(NodeStatus(node="a", staged_bytes=7, mounted=True)))
    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged), clock=clock)
    report = to_json(NodeStatus(node="a", partition=1, mounted=True))
    await nodes.put("uid.1", report)
    await reporter.report()
    await nodes.put("uid.1", report)
    await clock.advance(node.RECENT * INTERVAL)
    await reporter.report()
    assert (await _report(nodes)).staged_elsewhere == [ON_A]


def test_of_many_nodes_with_writes_those_with_unknown_ones_are_named_first() -> None:
    known = [StagedElsewhere(node=f"n{n}", staged_bytes=n) for n in range(1, 10)]
    last = NodeStatus(node="b", staged_unknown=True, staged_elsewhere=known)
    named = [each.node for each in left_behind(last, "here")]
    assert named == ["b", "n9", "n8", "n7", "n6", "n5", "n4", "n3"]


def test_of_many_nodes_with_nothing_left_the_last_ones_are_named() -> None:
    known: tuple[StagedElsewhere, ...] = ()
    last = NodeStatus(node="n0", writeback=True)
    for n in range(10):
        known = left_behind(last, f"n{n + 1}")
        last = NodeStatus(node=f"n{n + 1}", writeback=True, staged_elsewhere=list(known))
    assert [each.node for each in known] == ["n9", "n8", "n7", "n6", "n5", "n4", "n3", "n2"]


async def test_the_last_record_is_not_replaced_before_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = MemoryBus().key_value(NODES_BUCKET)
    await nodes.put("uid.0", to_json(NodeStatus(node="a", staged_bytes=7)))
    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged))

    async def unreachable(_: str) -> Entry:
        raise Retry("BusUnreachable", "no answer")

    with monkeypatch.context() as patch:
        patch.setattr(nodes, "get", unreachable)
        await reporter.report()
    await reporter.report()
    status = from_json(NodeStatus, (await nodes.get("uid.0")).value or b"")
    assert status.staged_elsewhere == [ON_A]


async def _report(nodes: KeyValue) -> NodeStatus:
    return from_json(NodeStatus, (await nodes.get("uid.0")).value or b"")


async def _reported(nodes: KeyValue) -> tuple[int, bool]:
    """Staged bytes, and whether they are unknown."""
    status = await _report(nodes)
    return status.staged_bytes, status.staged_unknown


async def test_why_it_is_not_mounted_is_reported_however_long_it_is() -> None:
    nodes = MemoryBus().key_value(NODES_BUCKET)
    text = "\x01" * NODES.max_msg_size
    mount = make_mount(Ailment("MountFailed", text))

    await make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged), mount=mount).report()

    entry = await nodes.get("uid.0")
    assert entry is not None
    assert len(entry.value or b"") < NODES.max_msg_size
    assert from_json(NodeStatus, entry.value or b"").message == "\x01" * MESSAGE_MAX


async def test_the_volume_of_the_set_stays_in_its_reports() -> None:
    """The report of an agent that has not mounted yet replaces the one of the agent before."""
    nodes = MemoryBus().key_value(NODES_BUCKET)
    await nodes.put("uid.0", to_json(NodeStatus(node="a", mounted=True, volume_id="first")))
    for _ in range(2):
        await make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged)).report()
        assert from_json(NodeStatus, (await nodes.get("uid.0")).value or b"").volume_id == "first"


ILL = make_mount(Ailment("SecretMissing", "no key"))


@pytest.mark.parametrize("key", ["uid.0", "uid.1"])
async def test_a_record_that_cannot_be_read_keeps_no_agent_from_reporting_and_each_from_formatting(
    key: str,
) -> None:
    """Whether it is its own or another's, and also when the agent was started anew."""
    nodes = MemoryBus().key_value(NODES_BUCKET)
    await nodes.put(key, b"{")
    for _ in range(2):
        reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged), mount=ILL)
        for _ in range(2):
            await reporter.report()
            report = await _report(nodes)
            assert (report.ailment, report.volume_unknown) == ("SecretMissing", key == "uid.0")
            with pytest.raises(Retry, match=rf"record '{key}' .* delete this record") as found:
                await VolumeRecord(nodes, "uid").recall()
            assert found.value.reason == "RecordUnreadable"


async def test_an_agent_whose_record_could_not_be_read_notices_that_it_was_deleted() -> None:
    """As the message advises where nothing was ever mounted."""
    nodes = MemoryBus().key_value(NODES_BUCKET)
    await nodes.put("uid.0", b"{")
    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged), mount=ILL)
    await reporter.report()
    await nodes.delete("uid.0")
    await reporter.report()
    assert not (await _report(nodes)).volume_unknown
    assert await VolumeRecord(nodes, "uid").recall() == ""


@pytest.mark.parametrize("partition", [0, 1])
async def test_an_agent_whose_record_could_not_be_read_takes_the_volume_from_one_that_was_restored(
    partition: int,
) -> None:
    """Its own, which it replaces, or another's; what it has found out itself by then stays."""
    nodes = MemoryBus().key_value(NODES_BUCKET)
    await nodes.put("uid.0", b"{")
    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged), mount=ILL)
    await reporter.report()
    restored = NodeStatus(partition=partition, node="node", staged_bytes=7, volume_id="first")
    await nodes.put(f"uid.{partition}", to_json(restored))
    for _ in range(2):
        await reporter.report()
        report = await _report(nodes)
        assert (report.volume_id, report.volume_unknown, report.staged_bytes) == ("first", False, 0)


async def test_a_record_that_was_restored_is_not_replaced_before_it_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = MemoryBus().key_value(NODES_BUCKET)
    await nodes.put("uid.0", b"{")
    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged), mount=ILL)
    await reporter.report()
    await nodes.put("uid.0", to_json(NodeStatus(node="node", volume_id="first")))

    async def unreachable(_: str) -> list[Entry]:
        raise Retry("BusUnreachable", "no answer")

    with monkeypatch.context() as patch:
        patch.setattr(nodes, "entries", unreachable)
        await reporter.report()
    await reporter.report()
    assert (await _report(nodes)).volume_id == "first"


async def test_an_agent_that_has_mounted_names_its_volume_in_place_of_a_record_that_could_not_be_read() -> (
    None
):
    nodes = MemoryBus().key_value(NODES_BUCKET)
    await nodes.put("uid.0", b"{")
    record = VolumeRecord(nodes, "uid")
    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged), record=record)
    await reporter.report()
    record.keep("first")
    await reporter.report()
    report = await _report(nodes)
    assert (report.volume_id, report.volume_unknown) == ("first", False)


@pytest.mark.parametrize(
    ("options", "is_writeback"),
    [({"writeback": "true"}, True), ({"writeback": ""}, True), ({"writeback": "false"}, False), ({}, False)],
)
async def test_a_report_says_whether_pods_write_to_the_cache_first(
    options: dict[str, str], is_writeback: bool, tmp_path: Path
) -> None:
    settings = make_settings(tmp_path, mount_options=options)
    bus = MemoryBus()
    await App(settings, juicefs.create_engine, bus, Metrics(NoOpMeter("test")))._node.report()
    entry = await bus.key_value(NODES_BUCKET).get("uid.0")
    assert from_json(NodeStatus, entry.value or b"").writeback is is_writeback


async def test_a_mount_that_falls_silent_is_reported_at_once_and_when_it_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever is measured on it meanwhile."""
    nodes = MemoryBus().key_value(NODES_BUCKET)
    mount = BaseMount(View(tmp_path, tmp_path), ManualClock(), AsyncMock())
    cache = SimpleNamespace(staged_bytes=_hang)
    reporter = make_reporter(nodes, cache, mount=cast(SimpleNamespace, mount))
    reporter._interval = 3600.0

    async def is_told(reason: str) -> bool:
        return [from_json(NodeStatus, entry.value or b"").ailment for entry in await nodes.entries(">")] == [
            reason
        ]

    await reporter.report()
    monkeypatch.setattr(node, "FIGURES_TIMEOUT_SECONDS", 3600.0)
    reporting = asyncio.create_task(reporter.run())
    try:
        mount._set_silence(Ailment("MountSilent", "no answer"))
        await eventually(lambda: is_told("MountSilent"), what="it is told")
        reporter._stop_measuring()
        monkeypatch.setattr(node, "FIGURES_TIMEOUT_SECONDS", 0.0)
        mount._set_silence(None)
        await eventually(lambda: is_told(""), what="it answers")
    finally:
        await end(reporting)
        reporter._stop_measuring()
