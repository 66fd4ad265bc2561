"""Records on the bus: written once, removed in order, watched and stamped with the service's own clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from cache_runtime.node import left_behind
from dataset_controller import records
from dataset_controller.apply import SIZE_REMEDY, RecordWriter
from dataset_controller.domain.actions import (
    BUS,
    RECORD,
    CancelRun,
    ForgetRun,
    ForgetSet,
    RecordAction,
    WriteRun,
)
from dataset_controller.domain.reports import UNSAID_MAX, settled
from dataset_controller.domain.sampleset.runtime import is_fresh
from dataset_controller.records import NodeRecords, RunRecords
from dataset_controller.timing import (
    RECORD_CHECK_INTERVAL_SECONDS,
    RECORD_RETRY_INTERVAL_SECONDS,
    REPORT_TIMEOUT_SECONDS,
)
from dataset_controller.watch import Wakes, make_watch
from paddlewheel.bus.ports import Entry
from paddlewheel.bus.streams import NODES_BUCKET, RUNS_BUCKET
from paddlewheel.contracts.generated.cache_v1 import (
    NodeStatus,
    RunPhase,
    RunSpec,
    RunState,
    StagedElsewhere,
    WarmupOperation,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.contracts.staged_writes import has_writes, left_on_node
from paddlewheel.contracts.wire import to_json
from paddlewheel.core.errors import PaddlewheelError, Permanent, Retry, Unavailable
from paddlewheel.core.tasks import end
from paddlewheel.kube import ports
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.domain.plan import Applied
from paddlewheel.operator.failures import (
    RETRY_MAX_INTERVAL_SECONDS,
    RETRY_MIN_INTERVAL_SECONDS,
    Owner,
)
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.memory_bus.kv import MemoryKeyValue
from paddlewheel.testkit.memory_cluster import MemoryCluster
from paddlewheel.testkit.samplesets import make_sample_set
from paddlewheel.testkit.wait import eventually

OWNER = Owner("set-uid", 1)
RUN = RunKey("set-uid", "run-1")
SPEC = RunSpec(run_id="run-1", set_uid="set-uid", partitions=1, warmup=WarmupOperation())
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_writer(bus: MemoryBus, clock: ManualClock) -> RecordWriter:
    return RecordWriter(bus, CircuitBreaker(clock), clock)


async def test_a_record_is_written_once_and_again_after_it_was_lost() -> None:
    bus, clock = MemoryBus(), ManualClock()
    runs, writer = bus.key_value(RUNS_BUCKET), make_writer(bus, clock)
    await writer.apply(OWNER, [WriteRun(SPEC)])
    first = await runs.get(RUN.spec)
    await writer.apply(OWNER, [WriteRun(SPEC.model_copy(update={"partitions": 9}))])
    await clock.advance(RECORD_CHECK_INTERVAL_SECONDS + 1)
    await writer.apply(OWNER, [WriteRun(SPEC.model_copy(update={"partitions": 9}))])
    assert await runs.get(RUN.spec) == first
    await runs.delete(RUN.spec)
    await clock.advance(RECORD_CHECK_INTERVAL_SECONDS + 1)
    await writer.apply(OWNER, [WriteRun(SPEC)])
    assert (await runs.get(RUN.spec)).value == first.value


async def test_a_run_is_cancelled_once() -> None:
    bus, clock = MemoryBus(), ManualClock()
    runs, writer = bus.key_value(RUNS_BUCKET), make_writer(bus, clock)
    asked = await runs.create(RUN.spec, b"{}")
    for _ in range(2):
        assert (await writer.apply(OWNER, [CancelRun(RUN)])).troubles == ()
    assert (await runs.get(RUN.cancel)).revision == asked + 1


async def test_the_cancel_of_a_run_that_the_bus_does_not_have_leaves_no_record() -> None:
    bus, clock = MemoryBus(), ManualClock()
    assert await make_writer(bus, clock).apply(OWNER, [CancelRun(RUN)]) == Applied()
    assert await bus.key_value(RUNS_BUCKET).entries(">") == []


async def test_the_cancel_of_a_run_that_is_written_next_is_there_before_it() -> None:
    """The bus has lost both: without its cancel the run would be worked on until the next pass."""
    bus, clock = MemoryBus(), ManualClock()
    runs = bus.key_value(RUNS_BUCKET)
    assert await make_writer(bus, clock).apply(OWNER, [CancelRun(RUN), WriteRun(SPEC)]) == Applied()
    assert (await runs.get(RUN.cancel)).revision < (await runs.get(RUN.spec)).revision


async def test_a_forgotten_run_leaves_no_record_and_others_stay() -> None:
    bus, clock = MemoryBus(), ManualClock()
    runs = bus.key_value(RUNS_BUCKET)
    other = RunKey("set-uid", "run-2").spec
    for key in (RUN.spec, RUN.state, RUN.part(0), other):
        await runs.put(key, b"{}")
    await make_writer(bus, clock).apply(OWNER, [ForgetRun(RUN)])
    assert [entry.key for entry in await runs.entries(">")] == [other]


async def test_a_forgotten_run_may_be_written_again() -> None:
    bus, clock = MemoryBus(), ManualClock()
    writer = make_writer(bus, clock)
    await writer.apply(OWNER, [WriteRun(SPEC), ForgetRun(RUN), WriteRun(SPEC)])
    assert (await bus.key_value(RUNS_BUCKET).get(RUN.spec)).value


async def test_a_forgotten_set_leaves_nothing_and_other_sets_stay() -> None:
    bus, clock = MemoryBus(), ManualClock()
    for bucket, keys in (
        (RUNS_BUCKET, (RUN.spec, "other.run.spec")),
        (NODES_BUCKET, ("set-uid.0", "other.0")),
    ):
        for key in keys:
            await bus.key_value(bucket).put(key, b"{}")
    await make_writer(bus, clock).apply(OWNER, [ForgetSet("set-uid")])
    left = [e.key for bucket in (RUNS_BUCKET, NODES_BUCKET) for e in await bus.key_value(bucket).entries(">")]
    assert left == ["other.run.spec", "other.0"]


async def test_a_key_that_no_service_writes_keeps_no_record_from_being_removed() -> None:
    """Agents write to the bucket through any client of NATS."""
    bus, clock = MemoryBus(), ManualClock()
    runs = bus.key_value(RUNS_BUCKET)
    runs._write("set-uid.run-1.b/d", b"{}")  # type: ignore[attr-defined]
    await runs.put(RUN.state, b"{}")
    for action in (ForgetRun(RUN), ForgetSet("set-uid")):
        assert (await make_writer(bus, clock).apply(OWNER, [action])).troubles == ()
    assert [entry.key for entry in await runs.entries(">")] == ["set-uid.run-1.b/d"]


async def test_a_bus_that_is_down_is_reported_and_left_alone_for_a_moment() -> None:
    bus, clock = MemoryBus(), ManualClock()
    bus.down = True
    breaker = CircuitBreaker(clock)
    applied = await RecordWriter(bus, breaker, clock).apply(OWNER, [WriteRun(SPEC), CancelRun(RUN)])
    assert ([t.kind for t in applied.troubles], applied.retry_after) == ([BUS], RECORD_RETRY_INTERVAL_SECONDS)
    bus.down = False
    with pytest.raises(Retry, match="a moment ago"):
        await breaker.call(bus.key_value(RUNS_BUCKET).entries(">"))
    await clock.advance(3)
    assert await breaker.call(bus.key_value(RUNS_BUCKET).entries(">")) == []


class RefusingBus(MemoryBus):
    """Counts the records that are offered, and refuses those in `errors`."""

    def __init__(self) -> None:
        super().__init__()
        self.tries: Counter[str] = Counter()
        self.errors: dict[str, PaddlewheelError] = {}
        runs = self.key_value(RUNS_BUCKET)
        create = runs.create

        async def counted(key: str, value: bytes) -> int:
            self.tries[key] += 1
            if error := self.errors.get(key):
                raise error
            return await create(key, value)

        runs.create = counted  # type: ignore[method-assign]


TOO_LARGE = Permanent("TooLarge", "2 MiB, the server takes 1 MiB")


@pytest.mark.parametrize(("action", "key"), [(WriteRun(SPEC), RUN.spec), (CancelRun(RUN), RUN.cancel)])
async def test_a_record_that_is_refused_is_not_sent_again_in_every_pass(
    action: RecordAction, key: str
) -> None:
    bus, clock = RefusingBus(), ManualClock()
    await bus.key_value(RUNS_BUCKET).put(RUN.spec, b"{}")
    bus.errors[key], writer = TOO_LARGE, make_writer(bus, clock)
    waits = []
    for _ in range(8):
        for _ in range(5):
            applied = await writer.apply(OWNER, [action])
            assert [(t.kind, t.verb, t.reason) for t in applied.troubles] == [(RECORD, "create", "TooLarge")]
        assert applied.retry_after is not None
        waits.append(applied.retry_after)
        await clock.advance(applied.retry_after)
    assert bus.tries[key] == 8
    assert waits == [min(RETRY_MIN_INTERVAL_SECONDS * 2**n, RETRY_MAX_INTERVAL_SECONDS) for n in range(8)]
    assert SIZE_REMEDY in applied.troubles[0].message
    bus.errors.clear()
    assert await writer.apply(OWNER, [action]) == Applied()


async def test_an_answer_is_a_refusal_even_if_it_may_pass_and_silence_is_none() -> None:
    bus, clock = RefusingBus(), ManualClock()
    writer = make_writer(bus, clock)
    await bus.key_value(RUNS_BUCKET).put(RUN.spec, b"{}")
    actions: list[RecordAction] = [WriteRun(SPEC), CancelRun(RUN)]
    bus.errors[RUN.spec] = Retry("BusFull", "maximum bytes exceeded")
    applied = await writer.apply(OWNER, actions)
    assert [(t.kind, t.reason, t.message) for t in applied.troubles] == [
        (RECORD, "BusFull", "maximum bytes exceeded")
    ]
    assert applied.retry_after == RETRY_MIN_INTERVAL_SECONDS
    bus.errors[RUN.cancel] = bus.errors[RUN.spec] = Unavailable("BusUnreachable", "no connection")
    applied = await writer.apply(OWNER, actions)
    assert [(t.kind, t.reason) for t in applied.troubles] == [(RECORD, "BusFull"), (BUS, "BusUnreachable")]


async def test_a_refusal_is_told_until_the_bus_takes_the_record_also_while_it_is_silent() -> None:
    bus, clock = RefusingBus(), ManualClock()
    writer = make_writer(bus, clock)
    await bus.key_value(RUNS_BUCKET).put(RUN.spec, b"{}")
    actions: list[RecordAction] = [CancelRun(RUN), WriteRun(SPEC)]
    bus.errors[RUN.spec] = TOO_LARGE
    await writer.apply(OWNER, actions)
    bus.errors[RUN.cancel] = bus.errors[RUN.spec] = Unavailable("BusUnreachable", "no connection")
    for _ in range(3):
        await clock.advance(RETRY_MIN_INTERVAL_SECONDS * 3)
        applied = await writer.apply(OWNER, actions)
        assert [t.reason for t in applied.troubles] == ["TooLarge", "BusUnreachable"]
        # Not at once, though the refused record is due.
        assert applied.retry_after == RECORD_RETRY_INTERVAL_SECONDS
    bus.errors.clear()
    await clock.advance(RECORD_RETRY_INTERVAL_SECONDS)
    assert await writer.apply(OWNER, actions) == Applied()


async def test_a_record_that_is_refused_keeps_no_other_from_being_written() -> None:
    bus, clock = RefusingBus(), ManualClock()
    await bus.key_value(RUNS_BUCKET).put(RUN.spec, b"{}")
    bus.errors[RUN.spec] = TOO_LARGE
    await make_writer(bus, clock).apply(OWNER, [WriteRun(SPEC), CancelRun(RUN)])
    assert [e.key for e in await bus.key_value(RUNS_BUCKET).entries(">")] == [RUN.spec, RUN.cancel]


async def test_no_run_is_written_before_the_bus_has_taken_the_cancels_that_come_first() -> None:
    bus, clock = RefusingBus(), ManualClock()
    runs, writer = bus.key_value(RUNS_BUCKET), make_writer(bus, clock)
    other = RunKey("set-uid", "run-2")
    await runs.put(other.spec, b"{}")
    actions: list[RecordAction] = [CancelRun(other), WriteRun(SPEC), ForgetRun(RunKey("set-uid", "run-3"))]
    await runs.put("set-uid.run-3.state", b"{}")
    bus.errors[other.cancel] = Retry("BusFull", "maximum bytes exceeded")
    for _ in range(2):  # refused, and then not tried again at once
        applied = await writer.apply(OWNER, actions)
        assert [(t.reason, t.key.name) for t in applied.troubles] == [("BusFull", other.cancel)]
        assert [entry.key for entry in await runs.entries(">")] == [other.spec]
    assert bus.tries == {other.cancel: 1}
    bus.errors.clear()
    assert applied.retry_after is not None
    await clock.advance(applied.retry_after)
    assert await writer.apply(OWNER, actions) == Applied()
    assert [entry.key for entry in await runs.entries(">")] == [other.spec, other.cancel, RUN.spec]


async def test_a_refused_record_is_tried_at_once_after_an_edit_and_forgotten_with_its_owner() -> None:
    bus, clock = RefusingBus(), ManualClock()
    bus.errors[RUN.spec], writer = TOO_LARGE, make_writer(bus, clock)
    await writer.apply(OWNER, [WriteRun(SPEC)])
    await writer.apply(Owner(OWNER.uid, 2), [WriteRun(SPEC)])
    assert bus.tries[RUN.spec] == 2
    assert await writer.apply(OWNER, []) == Applied()
    await writer.apply(OWNER, [WriteRun(SPEC)])
    assert bus.tries[RUN.spec] == 3
    writer.forget(OWNER.uid)
    assert not writer._refusals._held
    assert writer._refusals._backoff.failures((OWNER.uid, RUN.spec)) == 0


@asynccontextmanager
async def followed(
    bus: MemoryBus, runs: RunRecords, nodes: NodeRecords, woken: list[object]
) -> AsyncIterator[None]:
    tasks = [
        asyncio.create_task(runs.follow(bus.key_value(RUNS_BUCKET), woken.append)),
        asyncio.create_task(nodes.follow(bus.key_value(NODES_BUCKET), woken.append)),
    ]
    yield
    await end(*tasks)


async def test_records_are_stamped_with_the_services_own_clock() -> None:
    bus, clock = MemoryBus(), ManualClock(NOW)
    runs, nodes = RunRecords(clock), NodeRecords(clock)
    woken: list[object] = []
    elsewhere = NOW - timedelta(days=3)
    ended = RunState(run_id="run-1", phase=RunPhase.SUCCEEDED, ended_at=elsewhere)
    async with followed(bus, runs, nodes, woken):
        await bus.key_value(RUNS_BUCKET).put(RUN.state, to_json(ended))
        await bus.key_value(NODES_BUCKET).put("set-uid.0", to_json(NodeStatus(updated_at=elsewhere)))
        await eventually(lambda: len(woken) == 2)
        await clock.advance(60)
        await bus.key_value(RUNS_BUCKET).put(RUN.state, to_json(ended))
        await bus.key_value(RUNS_BUCKET).put(RunKey("set-uid", "run-2").state, b"nonsense")
        await eventually(lambda: len(woken) == 4)
        assert runs.of("set-uid")["run-1"].ended_at == NOW
        assert [r.updated_at for r in nodes.of("set-uid")] == [NOW]
        assert (runs.find("run-1"), runs.find("run-2")) == ((RUN,), ())
        await bus.key_value(RUNS_BUCKET).delete(RUN.state)
        await eventually(lambda: len(woken) == 5)
        assert runs.of("set-uid") == {}


async def test_records_are_known_once_everything_that_the_bus_has_was_taken_in() -> None:
    bus, clock = MemoryBus(), ManualClock(NOW)
    runs, nodes = RunRecords(clock), NodeRecords(clock)
    assert not runs.is_known
    assert not nodes.is_known
    await bus.key_value(RUNS_BUCKET).put(RUN.state, to_json(RunState(run_id="run-1")))
    await bus.key_value(NODES_BUCKET).put("set-uid.0", to_json(NodeStatus()))
    async with followed(bus, runs, nodes, []):
        await eventually(lambda: runs.is_known and nodes.is_known)
        assert list(runs.of("set-uid")) == ["run-1"]
        assert len(nodes.of("set-uid")) == 1


async def test_only_reports_since_the_start_say_how_it_is_now() -> None:
    bus, clock = MemoryBus(), ManualClock(NOW)
    nodes, bucket = NodeRecords(clock), bus.key_value(NODES_BUCKET)
    for partition in (0, 1):
        await bucket.put(f"set-uid.{partition}", to_json(NodeStatus(partition=partition)))
    async with followed(bus, RunRecords(clock), nodes, woken := list[object]()):
        await eventually(lambda: nodes.is_known)
        assert nodes.replayed("set-uid") == {0, 1}
        await bucket.put("set-uid.1", to_json(NodeStatus(partition=1)))
        await eventually(lambda: len(woken) == 3)
        assert nodes.replayed("set-uid") == {0}
        nodes.forget("set-uid")
        assert nodes.replayed("set-uid") == frozenset()


async def test_a_report_that_came_while_the_connection_was_lost_may_be_of_any_age() -> None:
    """The bus lists it once more afterwards, and it is another than the one before."""
    nodes = NodeRecords(ManualClock(NOW))

    class Interrupted(MemoryKeyValue):
        async def watch(self, pattern: str) -> AsyncGenerator[Entry | None, None]:
            yield None
            yield Entry("set-uid.0", to_json(NodeStatus(staged_bytes=1)), 1)
            yield Entry("set-uid.1", to_json(NodeStatus(partition=1)), 2)
            yield Entry("set-uid.0", to_json(NodeStatus()), 3, is_stored=True)
            yield Entry("set-uid.1", to_json(NodeStatus(partition=1)), 2, is_stored=True)

    await nodes.follow(Interrupted(NODES_BUCKET, lambda: None), lambda _: None)
    assert nodes.replayed("set-uid") == {0}
    assert [report.staged_bytes for report in nodes.of("set-uid")] == [0, 0]


async def test_a_report_that_the_bus_gives_once_more_becomes_no_newer() -> None:
    """As it does after a lost connection."""
    clock, again = ManualClock(NOW), asyncio.Event()
    nodes, entry = NodeRecords(clock), Entry("set-uid.0", to_json(NodeStatus()), 7)

    class Interrupted(MemoryKeyValue):
        async def watch(self, pattern: str) -> AsyncGenerator[Entry | None, None]:
            yield None
            yield entry
            await again.wait()
            yield entry

    woken = list[str]()
    following = asyncio.create_task(nodes.follow(Interrupted(NODES_BUCKET, lambda: None), woken.append))
    await eventually(lambda: len(woken) == 1)
    await clock.advance(60)
    again.set()
    await following
    assert [r.updated_at for r in nodes.of("set-uid")] == [NOW]


@pytest.mark.parametrize("skew", [-600, 0, 600])
async def test_a_node_whose_clock_is_wrong_is_silent_when_it_says_nothing_and_only_then(skew: int) -> None:
    bus, clock = MemoryBus(), ManualClock(NOW)
    nodes, bucket, woken = NodeRecords(clock), bus.key_value(NODES_BUCKET), list[object]()
    async with followed(bus, RunRecords(clock), nodes, woken):
        for number in range(1, 4):
            woken.clear()
            at = clock.now() + timedelta(seconds=skew)
            await bucket.put("set-uid.0", to_json(NodeStatus(updated_at=at, cached_bytes=number)))
            await eventually(lambda: len(woken) == 1)
            assert is_fresh(nodes.of("set-uid")[0], clock.now())
            await clock.advance(REPORT_TIMEOUT_SECONDS)
        await clock.advance(1)
        assert not is_fresh(nodes.of("set-uid")[0], clock.now())


async def test_a_report_that_the_bus_loses_counts_until_the_set_is_gone() -> None:
    """What pods have written is on the node all the same."""
    bus, clock = MemoryBus(), ManualClock(NOW)
    nodes, bucket, woken = NodeRecords(clock), bus.key_value(NODES_BUCKET), list[object]()
    async with followed(bus, RunRecords(clock), nodes, woken):
        await bucket.put("set-uid.0", to_json(NodeStatus(partition=0, staged_bytes=1)))
        await bucket.put("set-uid.1", to_json(NodeStatus(partition=1, staged_bytes=2)))
        await eventually(lambda: len(woken) == 2)
        await clock.advance(60)
        await bucket.delete("set-uid.0")
        await bucket.put("set-uid.1", b"nonsense")
        await eventually(lambda: len(woken) == 4)
        assert [(r.staged_bytes, r.updated_at) for r in nodes.of("set-uid")] == [(1, NOW), (2, NOW)]
        await bucket.put("set-uid.0", to_json(NodeStatus(partition=0)))
        await eventually(lambda: len(woken) == 5)
        assert [r.staged_bytes for r in nodes.of("set-uid")] == [0, 2]
        nodes.forget("set-uid")
        assert nodes.of("set-uid") == ()


async def test_what_was_known_of_a_node_counts_until_a_partition_reports_from_there() -> None:
    """The bus has lost the report before, and the next agent is on another node: nobody has told it."""
    bus, clock, woken = MemoryBus(), ManualClock(NOW), list[object]()
    nodes, bucket = NodeRecords(clock), bus.key_value(NODES_BUCKET)

    async def report(partition: int, node: str, **values: Any) -> list[list[tuple[str, int]]]:
        """What the partitions then have elsewhere."""
        count, status = len(woken), NodeStatus(partition=partition, node=node, **values)
        await bucket.put(f"set-uid.{partition}", to_json(status))
        await eventually(lambda: len(woken) > count)
        return [[(e.node, e.staged_bytes) for e in r.staged_elsewhere] for r in nodes.of("set-uid")]

    async with followed(bus, RunRecords(clock), nodes, woken):
        older = StagedElsewhere(node="old", staged_bytes=2)
        assert await report(0, "a", staged_bytes=1, staged_elsewhere=[older]) == [[("old", 2)]]
        await bucket.delete("set-uid.0")
        for _ in range(2):
            assert await report(0, "b") == [[("a", 1), ("old", 2)]]
        told = [StagedElsewhere(node="a", staged_bytes=3)]
        assert await report(0, "b", staged_elsewhere=told) == [[("a", 3), ("old", 2)]]
        assert await report(1, "old", staged_unknown=True) == [[("a", 3), ("old", 2)], []]
        assert await report(1, "old") == [[("a", 3)], []]
        assert await report(0, "a", staged_bytes=3) == [[], []]
        assert await report(0, "b", staged_elsewhere=told) == [[("a", 3)], []]
        # Its agent has seen that another one is there, which then reports once more.
        assert await report(0, "b") == [[("a", 3)], []]
        assert await report(1, "a") == [[], []]


async def test_nodes_that_a_partition_has_left_are_remembered_up_to_a_number() -> None:
    """Those that it has left last: a cluster may replace its nodes every day."""
    count = 2 * UNSAID_MAX
    nodes = NodeRecords(ManualClock(NOW))
    there = [Entry("set-uid.0", to_json(NodeStatus(node=f"n{i}", staged_bytes=1)), i) for i in range(count)]
    await nodes.follow(Told(None, *there), lambda _: None)
    [report] = nodes.of("set-uid")
    assert [each.node for each in report.staged_elsewhere] == [
        f"n{i}" for i in range(count - 2, count - 2 - UNSAID_MAX, -1)
    ]


async def test_reports_on_a_set_that_is_gone_are_not_kept() -> None:
    """Its agents end after it, and report to the last."""
    clock, cluster, woken = ManualClock(NOW), MemoryCluster(), list[Key]()
    own = await cluster.create(ports.SAMPLE_SETS, make_sample_set())
    uid, nodes, watch = own["metadata"]["uid"], NodeRecords(clock), make_watch(cluster, "", "default", clock)
    wakes = Wakes(watch, woken.append, Mock(), forget_reports=nodes.forget)
    reports = [Entry(f"{each}.0", to_json(NodeStatus()), i) for i, each in enumerate([uid, "gone"])]
    await nodes.follow(Told(None, *reports), wakes.report_changed)
    assert len(nodes.of("gone")) == 1, "it is not known yet which sets there are"
    watching = asyncio.create_task(watch.run(wakes.changed))
    await watch.wait_synced()
    reports = [replace(each, revision=each.revision + 9) for each in reports]
    await nodes.follow(Told(None, *reports), wakes.report_changed)
    assert (len(nodes.of(uid)), nodes.of("gone")) == (1, ())
    await end(watching)


class Told(MemoryKeyValue):
    """A bucket whose watch gives these entries; None ends what it lists at the beginning."""

    def __init__(self, *entries: Entry | None) -> None:
        super().__init__(NODES_BUCKET, lambda: None)
        self._told = entries

    async def watch(self, pattern: str) -> AsyncGenerator[Entry | None, None]:
        for entry in self._told:
            yield entry


def told(revision: int, *, is_stored: bool = False, **values: Any) -> Entry:
    status = NodeStatus(mounted=True, writeback=True, **values)
    return Entry(f"set-uid.{status.partition}", to_json(status), revision, is_stored=is_stored)


LOST = told(2, partition=1, node="x", staged_bytes=5, staged_elsewhere=[StagedElsewhere(node="y")])


async def still_on_x(*entries: Entry | None) -> list[bool]:
    """By partition: whether its last report tells of writes on node x, where it is no more."""
    nodes = NodeRecords(ManualClock(NOW))
    await nodes.follow(Told(*entries), lambda _: None)
    return [
        (each.node == "x" and left_on_node(each) is not None)
        or any(other.node == "x" and has_writes(other) for other in each.staged_elsewhere)
        for each in nodes.of("set-uid")
    ]


@pytest.mark.parametrize(
    "lost",
    [LOST, told(2, partition=1, node="z", staged_elsewhere=[StagedElsewhere(node="x", staged_bytes=5)])],
)
async def test_what_another_partition_has_uploaded_is_not_claimed_by_the_last_report_of_one_that_is_lost(
    lost: Entry,
) -> None:
    """Partition 1 has been killed, and partition 0 was on its node meanwhile."""
    assert await still_on_x(None, lost) == [True]
    there, away = told(3, partition=0, node="x"), told(4, partition=0, node="a")
    for is_stored in (False, True):
        there = replace(there, is_stored=is_stored)
        found = await still_on_x(None, lost, there, away)
        assert found == [True, False], "of partition 0 only what pods wrote since its report"
    unmeasured = told(3, partition=0, node="x", staged_unknown=True)
    assert (await still_on_x(None, lost, unmeasured))[1]


async def test_a_report_changes_only_what_is_known_of_partitions_that_tell_of_its_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A set may have a thousand, which report every few seconds, to each replica."""
    changed = list[int]()

    def counted(report: NodeStatus, node: str) -> NodeStatus:
        changed.append(report.partition)
        return settled(report, node)

    monkeypatch.setattr(records, "settled", counted)
    others = [told(i, partition=i, node=f"n{i}") for i in range(3, 9)]
    left = told(9, partition=2, node="n2", staged_elsewhere=[StagedElsewhere(node="x", staged_bytes=5)])
    found = await still_on_x(None, LOST, left, *others, told(10, partition=0, node="x"))
    assert not any(found[1:])
    assert changed == [1, 2]


async def test_a_report_that_is_older_settles_nothing_of_what_is_told_later() -> None:
    """The bus lists what it has in any order."""
    older = told(1, partition=0, node="x", is_stored=True)
    assert (await still_on_x(replace(LOST, is_stored=True), older, None))[1]
    assert (await still_on_x(older, replace(LOST, is_stored=True), None))[1]


@pytest.mark.parametrize(("mounted", "writeback"), [(True, True), (False, True), (True, False)])
async def test_a_node_that_a_partition_left_without_an_end_may_have_what_pods_wrote_last(
    mounted: bool, writeback: bool
) -> None:
    """The bus has lost the report before as well, so that the next agent does not tell of it."""
    bus, clock, woken = MemoryBus(), ManualClock(NOW), list[object]()
    nodes, bucket = NodeRecords(clock), bus.key_value(NODES_BUCKET)
    async with followed(bus, RunRecords(clock), nodes, woken):
        last = NodeStatus(node="a", mounted=mounted, writeback=writeback)
        await bucket.put("set-uid.0", to_json(last))
        await eventually(lambda: len(woken) == 1)
        await bucket.put("set-uid.0", to_json(NodeStatus(node="b", mounted=True, writeback=writeback)))
        await eventually(lambda: len(woken) == 2)
        [report] = nodes.of("set-uid")
        left = [StagedElsewhere(node="a", staged_unknown=True)] if mounted and writeback else []
        assert report.staged_elsewhere == left


async def test_a_node_that_a_partition_left_in_order_has_nothing_also_for_who_missed_its_last_word() -> None:
    """The bucket keeps one report: the connection was lost when it came, and the next agent's replaced it."""
    nodes = NodeRecords(ManualClock(NOW))
    told = left_behind(NodeStatus(node="a", writeback=True), "b")
    then = NodeStatus(node="b", mounted=True, writeback=True, staged_elsewhere=list(told))

    class Interrupted(MemoryKeyValue):
        async def watch(self, pattern: str) -> AsyncGenerator[Entry | None, None]:
            yield None
            yield Entry("set-uid.0", to_json(NodeStatus(node="a", mounted=True, writeback=True)), 1)
            yield Entry("set-uid.0", to_json(then), 3, is_stored=True)

    await nodes.follow(Interrupted(NODES_BUCKET, lambda: None), lambda _: None)
    [report] = nodes.of("set-uid")
    assert report.staged_elsewhere == [StagedElsewhere(node="a")], "and not an unknown amount"
