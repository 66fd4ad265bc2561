"""Replicas come, go silently, go politely, and lose the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Retry
from paddlewheel.kube.membership import LABEL, LeaseMembership
from paddlewheel.kube.memory import MemoryCluster
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import LEASES, Resource


class Fleet:
    """Replicas of one service over one cluster and clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = MemoryCluster(now=self.clock.now)
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.seen: dict[str, LeaseMembership] = {}
        self.changes: list[str] = []

    async def start(self, *names: str) -> None:
        for name in names:
            member = LeaseMembership(self.cluster, self.cluster, "sys", "jobs", name, self.clock)
            self.seen[name] = member
            self.tasks[name] = asyncio.create_task(member.run(partial(self.changes.append, name)))
            await settle()

    async def stop(self, name: str) -> None:
        self.tasks[name].cancel()
        await asyncio.gather(self.tasks.pop(name), return_exceptions=True)
        await settle()

    async def kill(self, name: str) -> None:
        """Ends the task with no chance to give the Lease up."""
        self.cluster.intercept = refuse_deletes
        await self.stop(name)
        self.cluster.intercept = lambda *_: None

    async def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.clock.advance(1)
            await settle()

    def members(self, name: str) -> str:
        return "".join(sorted(self.seen[name].members()))


def refuse_deletes(verb: str, resource: Resource, key: Key) -> None:
    if verb == "delete":
        raise Retry("Http503")


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    fleet = Fleet()
    yield fleet
    for name in list(fleet.tasks):
        await fleet.stop(name)


async def test_every_replica_sees_all_live_ones(fleet: Fleet) -> None:
    await fleet.start("a", "b", "c")
    assert [fleet.members(name) for name in "abc"] == ["abc"] * 3


async def test_one_lease_per_replica_labelled_by_service(fleet: Fleet) -> None:
    await fleet.start("a", "b")
    leases = await fleet.cluster.list(LEASES, "sys", label_selector=f"{LABEL}=jobs")
    assert [key_of(lease).name for lease in leases] == ["jobs-a", "jobs-b"]
    assert [lease["spec"]["holderIdentity"] for lease in leases] == ["a", "b"]
    assert leases[0]["spec"]["leaseDurationSeconds"] == 15


async def test_a_replica_that_leaves_is_gone_at_once(fleet: Fleet) -> None:
    await fleet.start("a", "b")
    await fleet.stop("b")
    assert fleet.members("a") == "a"


async def test_a_replica_that_is_killed_is_gone_within_20_seconds(fleet: Fleet) -> None:
    await fleet.start("a", "b")
    await fleet.kill("b")
    await fleet.pass_time(9)
    assert fleet.members("a") == "ab"
    await fleet.pass_time(11)
    assert fleet.members("a") == "a"


async def test_it_is_back_when_it_renews(fleet: Fleet) -> None:
    await fleet.start("a", "b")
    await fleet.kill("b")
    await fleet.pass_time(30)
    await fleet.start("b")
    assert (fleet.members("a"), fleet.members("b")) == ("ab", "ab")


async def test_long_dead_leases_are_deleted(fleet: Fleet) -> None:
    await fleet.start("a", "b")
    await fleet.kill("b")
    await fleet.pass_time(310)
    assert [key_of(lease).name for lease in await fleet.cluster.list(LEASES)] == ["jobs-a"]


async def test_a_new_replica_does_not_count_a_lease_that_expired_before(fleet: Fleet) -> None:
    await fleet.start("b")
    await fleet.kill("b")
    await fleet.pass_time(30)
    await fleet.start("a")
    assert fleet.members("a") == "a"


async def test_a_clock_that_is_off_does_not_hide_a_live_replica(fleet: Fleet) -> None:
    await fleet.start("a")
    lease = {
        "metadata": {"namespace": "sys", "name": "jobs-b", "labels": {LABEL: "jobs"}},
        "spec": {"holderIdentity": "b", "renewTime": "2020-01-01T00:00:00.000000Z"},
    }
    await fleet.cluster.create(LEASES, lease)
    await settle()
    assert fleet.members("a") == "a"
    await fleet.cluster.patch(
        LEASES, Key("sys", "jobs-b"), {"spec": {"renewTime": "2020-01-01T00:00:05.000000Z"}}
    )
    await settle()
    assert fleet.members("a") == "ab"


async def test_a_replica_that_cannot_renew_steps_back_itself(fleet: Fleet) -> None:
    def refuse_writes(verb: str, resource: Resource, key: Key) -> None:
        if verb in ("patch", "create"):
            raise Retry("Http503")

    await fleet.start("a")
    fleet.cluster.intercept = refuse_writes
    await fleet.pass_time(21)
    assert fleet.members("a") == ""
    fleet.cluster.intercept = lambda *_: None
    await fleet.pass_time(5)
    assert fleet.members("a") == "a"


async def test_a_change_is_told_once(fleet: Fleet) -> None:
    await fleet.start("a", "b")
    fleet.changes.clear()
    await fleet.pass_time(60)
    assert fleet.changes == []
    await fleet.stop("b")
    assert fleet.changes == ["a"]
