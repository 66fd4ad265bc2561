"""Who does the work of partitions that are away, and what a run says of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_runtime.domain.losses import PUBLICATIONS, LostChunks
from cache_runtime.domain.shares import partitions_of, problems_of, stand_ins, unfinished
from cache_runtime.presence import Presence
from cache_runtime.timing import STALE_REPORT_GRACE_SECONDS
from paddlewheel.contracts.generated.cache_v1 import (
    NodeStatus,
    PartitionState,
    PartitionTotals,
    RunSpec,
    RunState,
    StandIn,
)
from paddlewheel.contracts.run_keys import NodeKey
from paddlewheel.contracts.wire import to_json
from paddlewheel.core.errors import Permanent
from paddlewheel.core.tasks import end
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.wait import eventually


@pytest.mark.parametrize(
    ("current", "left", "present", "wanted"),
    [
        ({}, {0: 3, 1: 3}, {0, 1}, {}),
        ({}, {0: 3, 1: 3}, {0}, {1: 0}),
        ({}, {0: 3, 1: 3}, set(), {}),
        ({}, {0: 9, 1: 3, 2: 3}, {0, 1}, {2: 1}),
        ({}, {1: 3}, {0, 2}, {1: 0}),
        ({}, {0: 3, 1: 3}, {0, 2}, {1: 2}),
        ({1: 0}, {0: 3, 1: 3, 2: 1}, {0, 2}, {1: 0}),
        ({1: 0}, {0: 3, 1: 3}, {0, 2}, {1: 2}),
        ({1: 0}, {1: 3}, {0, 2}, {1: 0}),
        ({1: 0}, {0: 3, 1: 3}, {2}, {0: 2, 1: 2}),
        ({1: 0}, {0: 3, 1: 3}, {0, 1}, {}),
        ({}, {0: 1, 1: 1, 2: 1, 3: 1}, {2, 3}, {0: 2, 1: 3}),
    ],
    ids=[
        "all there", "one away", "nobody there", "the one with the least left", "one that is done",
        "one beyond the partitions", "it goes on", "one that is idle takes over", "it is idle itself",
        "the stand-in is away as well", "it is back", "shared alike",
    ],
)  # fmt: skip
def test_who_stands_in(
    current: dict[int, int], left: dict[int, int], present: set[int], wanted: dict[int, int]
) -> None:
    assert stand_ins(current, left, present) == wanted


@given(
    st.dictionaries(st.integers(0, 5), st.integers(0, 5)),
    st.dictionaries(st.integers(0, 5), st.integers(0, 9)),
    st.sets(st.integers(0, 7)),
)
def test_all_work_has_somebody_who_is_there(
    current: dict[int, int], left: dict[int, int], present: set[int]
) -> None:
    chosen = stand_ins(current, left, present)
    assert set(chosen) == (set(left) - present if present else set())
    assert set(chosen.values()) <= present
    assert stand_ins(chosen, left, present) == chosen


def test_an_agent_does_its_own_work_first() -> None:
    spec = RunSpec(partitions=2)
    state = RunState(stand_ins=[StandIn(partition=1, by=3), StandIn(partition=0, by=3)])
    assert partitions_of(1, spec, state) == [1]
    assert partitions_of(3, spec, state) == [0, 1]
    assert partitions_of(0, spec, None) == [0]


def test_what_is_left_is_known_before_all_is_listed() -> None:
    totals = [PartitionTotals(chunks=2), PartitionTotals(chunks=1)]
    parts = {0: PartitionState(watermark=1), 1: PartitionState(watermark=1)}
    assert unfinished(3, False, totals, parts) == {0: 1, 1: 0, 2: 0}
    assert unfinished(3, True, totals, parts) == {0: 1}


@pytest.mark.parametrize(
    ("chosen", "bound", "meanwhile"),
    [
        ({1: 0}, False, "its work is done by partition 0"),
        ({}, False, "no other partition is there to do its work"),
        ({}, True, "what is on its node it alone can do, so the run waits for it"),
    ],
)
def test_a_run_says_what_it_waits_for(chosen: dict[int, int], bound: bool, meanwhile: str) -> None:
    troubles = {0: "", 1: "its agent has not reported since 01:02:03 UTC"}
    [problem] = problems_of({0: 1, 1: 1}, chosen, troubles, bound_to_node=bound)
    text = f"partition 1: its agent has not reported since 01:02:03 UTC; {meanwhile}"
    assert (problem.reason, problem.message) == ("PartitionAway", text)


def test_a_message_names_few_of_many() -> None:
    [problem] = problems_of(dict.fromkeys(range(9), 1), {}, {}, bound_to_node=False)
    assert problem.message.count("no agent reports") == 3
    assert problem.message.endswith("; and 6 partitions more")


def test_what_is_missed_is_published_again_until_that_helps_nothing() -> None:
    lost = LostChunks()
    assert not lost.found({0: PartitionState(watermark=4)})
    for count in range(1, PUBLICATIONS + 1):
        parts = {0: PartitionState(watermark=4, lacking=count)}
        assert lost.found(parts)
        lost.published(parts)
        assert not lost.found(parts)
    with pytest.raises(Permanent, match="WorkLost: chunk 4 of partition 0 was published 4 times"):
        lost.found({0: PartitionState(watermark=4, lacking=PUBLICATIONS + 1)})


class Reports:
    """Of agents of one set, and who hears them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.nodes = MemoryBus().key_value("pw_cache_nodes")
        self.presence = Presence(self.nodes, "s", self.clock, 25.0)

    async def report(self, partition: int, *, mounted: bool = True, age: float = 0.0) -> str:
        """Returns the time that it has."""
        at = self.clock.now() - timedelta(seconds=age)
        status = NodeStatus(partition=partition, mounted=mounted, message="no engine", updated_at=at)
        await self.nodes.put(str(NodeKey("s", partition)), to_json(status))
        # It is heard before the clock goes on.
        for _ in range(10):
            await asyncio.sleep(0)
        return f"{at:%H:%M:%S} UTC"

    async def shows(self, troubles: dict[int, str]) -> bool:
        return bool(await eventually(lambda: self.presence.troubles() == troubles))


@pytest.fixture
async def reports() -> AsyncIterator[Reports]:
    made = Reports()
    watching = asyncio.create_task(made.presence.watch())
    yield made
    await end(watching)


async def test_a_partition_is_there_while_it_reports_that_it_is_mounted(reports: Reports) -> None:
    await reports.report(0)
    await reports.report(1, mounted=False)
    await reports.nodes.put("s.2", b"not json")
    assert await reports.shows({0: "", 1: "not mounted: no engine"})
    await reports.clock.advance(10)
    await reports.report(1)
    last = await reports.report(0, mounted=False)
    # A mount that was lost just now may be back in a moment.
    assert await reports.shows({0: "", 1: ""})
    for _ in range(2):
        await reports.clock.advance(10)
        await reports.report(1)
    assert await reports.shows({0: "not mounted: no engine", 1: ""})
    await reports.clock.advance(10)
    await reports.report(1)
    assert await reports.shows({0: f"its agent has not reported since {last}", 1: ""})
    await reports.nodes.delete("s.0")
    assert await reports.shows({1: ""})


async def test_when_nobody_is_heard_it_is_the_bus_that_is_away(reports: Reports) -> None:
    assert reports.presence.is_blind
    for partition in (0, 1):
        await reports.report(partition)
    assert await reports.shows({0: "", 1: ""})
    await reports.clock.advance(60)
    assert reports.presence.is_blind
    await reports.report(0)
    assert await reports.shows({0: "", 1: ""}), "the silence of the other is counted anew"
    assert not reports.presence.is_blind


async def test_a_report_that_has_outlived_its_agent_does_not_count() -> None:
    reports = Reports()
    await reports.report(0)
    await reports.report(1, age=STALE_REPORT_GRACE_SECONDS + 1)
    watching = asyncio.create_task(reports.presence.watch())
    await reports.presence.known.wait()
    assert reports.presence.troubles() == {0: ""}
    await reports.report(1, age=STALE_REPORT_GRACE_SECONDS)
    assert await reports.shows({0: "", 1: ""}), "its clock is late, but it is there"
    await end(watching)
