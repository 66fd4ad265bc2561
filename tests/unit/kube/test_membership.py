"""Replicas start, are killed, stop in order, and lose the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.kube.membership import (
    LABEL,
    LEASE_TIMEOUT_SECONDS,
    RENEW_INTERVAL_SECONDS,
    LeaseMembership,
)
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import LEASES, Resource
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_cluster import MemoryCluster


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
        """End the task without releasing the Lease."""
        self.cluster.intercept = refuse_deletes
        await self.stop(name)
        self.cluster.intercept = lambda *_: None

    async def pass_time(self, seconds: float, step: float = 1.0) -> None:
        for _ in range(max(1, round(seconds / step)) if seconds else 0):
            await self.clock.advance(min(step, seconds))
            await settle()

    async def create_lease(self, name: str, renew_time: str | None) -> None:
        lease = {
            "metadata": {"namespace": "sys", "name": f"jobs-{name}", "labels": {LABEL: "jobs"}},
            "spec": {"holderIdentity": name, "renewTime": renew_time},
        }
        await self.cluster.create(LEASES, lease)
        await settle()

    async def renew_lease(self, name: str, renew_time: str) -> None:
        await self.cluster.patch(LEASES, Key("sys", f"jobs-{name}"), {"spec": {"renewTime": renew_time}})
        await settle()

    async def lease_names(self) -> list[str]:
        return [key_of(lease).name for lease in await self.cluster.list(LEASES)]

    def members(self, name: str) -> str:
        return "".join(sorted(self.seen[name].members()))


def refuse_writes(verb: str, resource: Resource, key: Key) -> None:
    if verb in ("patch", "create"):
        raise Retry("Http503")


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
    assert leases[0]["spec"]["leaseDurationSeconds"] == 10


async def test_a_replica_that_leaves_is_gone_at_once(fleet: Fleet) -> None:
    await fleet.start("a", "b")
    await fleet.stop("b")
    assert fleet.members("a") == "a"


@pytest.mark.parametrize("phase", [0.0, 0.25, 1.5, 2.75])
@pytest.mark.parametrize("offset", [0.0, 1.25, 2.5])
async def test_a_replica_that_is_killed_is_gone_10_seconds_after_its_last_renewal(
    fleet: Fleet, phase: float, offset: float
) -> None:
    """The replica is killed `phase` seconds after a renewal. This holds for every phase."""
    await fleet.start("a")
    await fleet.pass_time(offset, step=0.25)
    await fleet.start("b")
    await fleet.pass_time(2 * RENEW_INTERVAL_SECONDS + phase, step=0.25)
    await fleet.kill("b")
    await fleet.pass_time(LEASE_TIMEOUT_SECONDS - phase - 0.25, step=0.25)
    assert fleet.members("a") == "ab"
    fleet.changes.clear()
    await fleet.pass_time(0.25)
    assert fleet.members("a") == "a"
    assert fleet.changes == ["a"]


async def test_replicas_killed_one_after_the_other_each_expire_when_due(fleet: Fleet) -> None:
    await fleet.start("a", "b")
    await fleet.pass_time(1)
    await fleet.start("c")
    await fleet.kill("b")
    await fleet.kill("c")
    await fleet.pass_time(8)
    assert fleet.members("a") == "abc"
    await fleet.pass_time(1)
    assert fleet.members("a") == "ac"
    await fleet.pass_time(1)
    assert fleet.members("a") == "a"


async def test_two_failed_renewals_in_a_row_change_nothing(fleet: Fleet) -> None:
    await fleet.start("a", "b")
    fleet.changes.clear()
    fleet.cluster.intercept = refuse_writes
    await fleet.pass_time(8)
    fleet.cluster.intercept = lambda *_: None
    await fleet.pass_time(8)
    assert fleet.changes == []
    assert (fleet.members("a"), fleet.members("b")) == ("ab", "ab")


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
    assert await fleet.lease_names() == ["jobs-a"]


async def test_a_new_replica_does_not_count_a_lease_that_expired_before(fleet: Fleet) -> None:
    await fleet.start("b")
    await fleet.kill("b")
    await fleet.pass_time(30)
    await fleet.start("a")
    assert fleet.members("a") == "a"


@pytest.mark.parametrize(
    ("renew_time", "at_first"),
    [
        ("2020-01-01T00:00:00.000000Z", "a"),
        ("2030-01-01T00:00:00Z", "ab"),
        ("soon", "a"),
        ("", "a"),
        (None, "a"),
    ],
)
async def test_a_clock_that_is_off_does_not_hide_a_live_replica(
    fleet: Fleet, renew_time: str | None, at_first: str
) -> None:
    await fleet.create_lease("b", renew_time)
    await fleet.start("a")
    assert fleet.members("a") == at_first
    await fleet.renew_lease("b", "2020-01-01T00:00:05.000000Z")
    assert fleet.members("a") == "ab"
    await fleet.pass_time(9)
    assert fleet.members("a") == "ab"
    await fleet.pass_time(1)
    assert fleet.members("a") == "a"


async def test_a_replica_whose_clock_is_late_joins_at_once(fleet: Fleet) -> None:
    await fleet.start("a")
    await fleet.create_lease("b", "2020-01-01T00:00:00.000000Z")
    assert fleet.members("a") == "ab"


async def test_a_live_replica_whose_clock_is_late_keeps_its_lease(fleet: Fleet) -> None:
    await fleet.create_lease("b", "2020-01-01T00:00:00.000000Z")
    await fleet.start("a")
    for second in range(400):
        await fleet.renew_lease("b", f"2020-01-01T01:{second // 60:02}:{second % 60:02}.000000Z")
        await fleet.pass_time(1)
        assert await fleet.lease_names() == ["jobs-a", "jobs-b"]
    assert fleet.members("a") == "ab"


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None}, {"holderIdentity": ""}])
async def test_a_lease_without_a_holder_is_nobody(fleet: Fleet, spec: dict[str, Any] | None) -> None:
    await fleet.start("a")
    lease = {"metadata": {"namespace": "sys", "name": "odd", "labels": {LABEL: "jobs"}}}
    await fleet.cluster.create(LEASES, lease if spec is None else {**lease, "spec": spec})
    await settle()
    assert fleet.members("a") == "a"


async def test_a_lease_deleted_by_somebody_is_created_again_at_once(fleet: Fleet) -> None:
    await fleet.start("a", "b")
    await fleet.pass_time(1)
    await fleet.cluster.delete(LEASES, Key("sys", "jobs-a"))
    await settle()
    assert await fleet.lease_names() == ["jobs-a", "jobs-b"]
    assert (fleet.members("a"), fleet.members("b")) == ("ab", "ab")


async def test_dead_leases_pruned_by_several_replicas_at_once(fleet: Fleet) -> None:
    """Regression test: the watch removed a Lease between two deletes, and a KeyError ended the process."""
    await fleet.start("a", "b", "x", "y", "z")
    for name in "xyz":
        await fleet.kill(name)
    await fleet.pass_time(400)
    assert await fleet.lease_names() == ["jobs-a", "jobs-b"]
    assert not any(task.done() for task in fleet.tasks.values())
    assert (fleet.members("a"), fleet.members("b")) == ("ab", "ab")


async def test_a_lease_renewed_unseen_is_not_pruned(fleet: Fleet) -> None:
    """The watch of `a` has missed a change in the API server."""
    await fleet.start("a", "b")
    await fleet.kill("b")
    await fleet.pass_time(290)
    mute = fleet.cluster._watches
    fleet.cluster._watches = []
    await fleet.renew_lease("b", "2026-01-01T00:04:50.000000Z")
    fleet.cluster._watches = mute
    await fleet.pass_time(200)
    assert await fleet.lease_names() == ["jobs-a", "jobs-b"]


async def test_a_slow_prune_does_not_delay_renewals(fleet: Fleet) -> None:
    await fleet.start("a", "x")
    await fleet.kill("x")
    await fleet.pass_time(290)
    hung = asyncio.Event()

    async def hang(*_: object, **__: object) -> None:
        await hung.wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet.cluster, "delete", hang)
        await fleet.pass_time(60)
        assert fleet.members("a") == "a"


async def test_a_replica_that_cannot_renew_steps_back_itself(fleet: Fleet) -> None:
    await fleet.start("a")
    fleet.cluster.intercept = refuse_writes
    await fleet.pass_time(21)
    assert fleet.members("a") == ""
    fleet.cluster.intercept = lambda *_: None
    await fleet.pass_time(5)
    assert fleet.members("a") == "a"


async def test_a_change_is_reported_once(fleet: Fleet) -> None:
    await fleet.start("a", "b")
    fleet.changes.clear()
    await fleet.pass_time(60)
    assert fleet.changes == []
    await fleet.stop("b")
    assert fleet.changes == ["a"]
