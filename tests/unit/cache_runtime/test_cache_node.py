"""What an agent reports about its node: it fits into the bucket, and comes whatever hangs or fails there."""

from __future__ import annotations

import asyncio
import errno
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from opentelemetry.metrics import NoOpMeter

from cache_runtime.app import App
from cache_runtime.config import CacheRuntimeSettings
from cache_runtime.domain.model import Identity
from cache_runtime.engines.ports import Ailment, Engine
from cache_runtime.metrics import Metrics
from cache_runtime.node import MESSAGE_MAX, CacheLimit, NodeReporter, left_behind
from cache_runtime.volume_record import ReportedVolume
from paddlewheel.bus.memory import MemoryBus
from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.bus.streams import NODES, NODES_BUCKET
from paddlewheel.contracts.generated.cache_v1 import NodeStatus, StagedElsewhere
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Retry


async def _nothing_staged() -> int:
    return 0


def make_reporter(nodes: KeyValue, cache: SimpleNamespace) -> NodeReporter:
    """Of a node without a mount."""
    mount = SimpleNamespace(is_mounted=False, message="", ailment=None, changed_at=None)
    engine = cast(Engine, SimpleNamespace(mount=mount, cache=cache))
    me = Identity(set_namespace="ns", set_name="digits", set_uid="uid", partition=0, pod="pod", node="node")
    return NodeReporter(
        nodes,
        me,
        engine,
        ReportedVolume(nodes, "uid"),
        [],
        CacheLimit(0),
        ManualClock(),
        10.0,
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


async def test_two_reports_at_a_time_share_what_is_measured() -> None:
    """The last one of an agent that ends, and a regular one."""
    nodes, go = MemoryBus().key_value(NODES_BUCKET), asyncio.Event()
    looks = []

    async def staged() -> int:
        looks.append(1)
        await go.wait()
        return 7

    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=staged))
    both = asyncio.gather(reporter.report(), reporter.report())
    while not looks:
        await asyncio.sleep(0)
    go.set()
    await both
    assert len(looks) == 1
    entry = await nodes.get("uid.0")
    assert entry is not None
    assert from_json(NodeStatus, entry.value or b"").staged_bytes == 7


async def test_a_disk_that_fails_does_not_end_the_reports() -> None:
    nodes = MemoryBus().key_value(NODES_BUCKET)

    async def staged() -> int:
        raise OSError(errno.EIO, "Input/output error")

    await make_reporter(nodes, SimpleNamespace(staged_bytes=staged)).report()
    assert await nodes.get("uid.0") is not None


@pytest.mark.parametrize(
    ("before", "staged", "unknown"),
    [
        (None, 0, True),
        (NodeStatus(node="node", staged_bytes=7), 7, False),
        (NodeStatus(node="node", staged_unknown=True), 0, True),
        (NodeStatus(node="other", staged_bytes=7), 0, True),
    ],
    ids=["new", "same node", "unknown before", "other node"],
)
async def test_what_cannot_be_measured_is_as_before_or_unknown(
    before: NodeStatus | None, staged: int, unknown: bool
) -> None:
    nodes = MemoryBus().key_value(NODES_BUCKET)
    if before is not None:
        await nodes.put("uid.0", to_json(before))
    is_well = False

    async def measure() -> int:
        if not is_well:
            raise Retry("CacheUnreadable", "Input/output error")
        return 3

    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=measure))
    for _ in range(2):
        await reporter.report()
        assert await _reported(nodes) == (staged, unknown)
    is_well = True
    await reporter.report()
    assert await _reported(nodes) == (3, False)


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


async def test_what_was_left_is_handed_over_to_the_partition_that_is_there_now() -> None:
    nodes = MemoryBus().key_value(NODES_BUCKET)
    await nodes.put("uid.0", to_json(NodeStatus(node="a", staged_bytes=7, mounted=True)))
    reporter = make_reporter(nodes, SimpleNamespace(staged_bytes=_nothing_staged))
    now = ManualClock().now()
    old = now - timedelta(seconds=30)
    said = [(False, now, [ON_A]), (True, old, [ON_A]), (True, None, [ON_A]), (True, now, [])]
    for mounted, at, elsewhere in said:
        report = NodeStatus(node="a", partition=1, mounted=mounted, updated_at=at)
        await nodes.put("uid.1", to_json(report))
        await reporter.report()
        status = from_json(NodeStatus, (await nodes.get("uid.0")).value or b"")
        assert status.staged_elsewhere == elsewhere


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


async def _reported(nodes: KeyValue) -> tuple[int, bool]:
    """Staged bytes, and whether they are unknown."""
    status = from_json(NodeStatus, (await nodes.get("uid.0")).value or b"")
    return status.staged_bytes, status.staged_unknown


async def test_why_it_is_not_mounted_is_reported_however_long_it_is() -> None:
    nodes = MemoryBus().key_value(NODES_BUCKET)
    text = "\x01" * NODES.max_msg_size
    mount = SimpleNamespace(
        is_mounted=False, message=text, ailment=Ailment("MountFailed", text), changed_at=None
    )
    engine = cast(Engine, SimpleNamespace(mount=mount, cache=SimpleNamespace(staged_bytes=_nothing_staged)))
    me = Identity(set_namespace="ns", set_name="digits", set_uid="uid", partition=0, pod="pod", node="node")

    await NodeReporter(
        nodes, me, engine, ReportedVolume(nodes, "uid"), [], CacheLimit(0), ManualClock(), 10.0
    ).report()

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


@pytest.mark.parametrize(
    ("options", "is_writeback"),
    [({"writeback": "true"}, True), ({"writeback": ""}, True), ({"writeback": "false"}, False), ({}, False)],
)
async def test_a_report_says_whether_pods_write_to_the_cache_first(
    options: dict[str, str], is_writeback: bool, tmp_path: Path
) -> None:
    settings = CacheRuntimeSettings(
        set_namespace="ns",
        set_name="digits",
        set_uid="uid",
        pod_name="digits-runtime-0",
        mount_path=tmp_path / "mnt",
        cache_dirs=str(tmp_path / "cache"),
        cache_roots=(str(tmp_path),),
        mount_options=options,
    )
    bus = MemoryBus()
    await App(settings, bus, Metrics(NoOpMeter("test")))._node.report()
    entry = await bus.key_value(NODES_BUCKET).get("uid.0")
    assert from_json(NodeStatus, entry.value or b"").writeback is is_writeback
