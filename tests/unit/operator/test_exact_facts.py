"""A fact has the content of the moment when it was recorded, even if it is published late, and only once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operator.test_reconciler import KEY, ToyHarness

from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.generated.jobs_v1 import JobRestarted
from paddlewheel.kube.ports import PADDLE_JOBS, Object
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS, PUBLISH_RETRY_INTERVAL_SECONDS

REASONS = ("OOMKilled", "Evicted", "Error")


def restarts(toy: ToyHarness) -> list[tuple[str, str]]:
    """Id and reason of each stored restart, in the order of the stream."""
    return [(e.id, e.data.reason) for e in toy.published if isinstance(e.data, JobRestarted)]


async def restart_toy(toy: ToyHarness, number: int, reason: str) -> None:
    await toy.patch(KEY, {"spec": {"restarts": number, "reason": reason}})
    await toy.drain_queue()


async def uid_of_toy(toy: ToyHarness) -> str:
    return str((await toy.get(KEY))["metadata"]["uid"])


async def test_two_restarts_while_the_bus_is_away_tell_two_reasons() -> None:
    async with ToyHarness().running() as toy:
        assert isinstance(toy, ToyHarness)
        await toy.make(phase="Running")
        await toy.drain_queue()
        toy.bus.down = True
        await restart_toy(toy, 1, "OOMKilled")
        await restart_toy(toy, 2, "Evicted")
        toy.bus.down = False
        await toy.advance(PUBLISH_RETRY_INTERVAL_SECONDS)
        uid = await uid_of_toy(toy)
        expected = [(f"{uid}/JobRestarted/0", "OOMKilled"), (f"{uid}/JobRestarted/1", "Evicted")]
        assert restarts(toy) == expected


STEPS = st.lists(
    st.sampled_from([*REASONS, "down", "up", "kill", "wait", "conflict"]), min_size=3, max_size=15
)


@settings(max_examples=20, deadline=None)
@given(steps=STEPS)
async def test_each_fact_is_published_once_with_the_content_of_its_moment(steps: list[str]) -> None:
    """The bus comes and goes, the object changes, the process is killed; then the bus is back."""
    async with ToyHarness().running() as toy:
        assert isinstance(toy, ToyHarness)
        await toy.make(phase="Running")
        await toy.drain_queue()
        reasons = await _follow(toy, steps)
        toy.bus.down = False
        for _ in range(3):
            await toy.advance(PUBLISH_RETRY_INTERVAL_SECONDS)
        uid = await uid_of_toy(toy)
        assert restarts(toy) == [(f"{uid}/JobRestarted/{n}", reason) for n, reason in enumerate(reasons)]
        assert _is_ordered_by_time(toy.published)
        await _check_republished(toy)


async def _follow(toy: ToyHarness, steps: list[str]) -> list[str]:
    """The reasons of the restarts that the steps cause."""
    reasons: list[str] = []
    for step in steps:
        match step:
            case "down" | "up":
                toy.bus.down = step == "down"
            case "kill":
                await toy.restart()
            case "wait":
                await toy.advance(CONFIRM_GRACE_SECONDS)
            case "conflict":
                await toy.patch(KEY, {"metadata": {"labels": {"n": str(len(reasons))}}})
            case reason:
                reasons.append(reason)
                await restart_toy(toy, len(reasons), reason)
    return reasons


def _is_ordered_by_time(events: list[Event]) -> bool:
    """Neither `ce-time` nor `resourceVersion` goes back in the order of the stream."""
    times = [event.time for event in events]
    versions = [int(event.data.job.resource_version) for event in events]  # type: ignore[attr-defined]
    return times == sorted(times) and versions == sorted(versions)


async def _check_republished(toy: ToyHarness) -> None:
    """After the loss of the stream, the same facts are published again."""
    before = {event.id: (event.time, event.data) for event in toy.published}
    await toy.advance(CONFIRM_GRACE_SECONDS)
    await toy.patch(KEY, {"spec": {"reason": "another"}})
    await toy.drain_queue()
    toy.bus.lose_facts(JOBS.name)
    await toy.restart()
    await toy.advance(30)
    again = {event.id: (event.time, event.data) for event in toy.published}
    # The status keeps the last confirmed attempt of each fact.
    assert again.items() <= before.items()
    assert {id_.rpartition("/")[0] for id_ in again} == {id_.rpartition("/")[0] for id_ in before}


def _without_payloads(obj: Object) -> Object:
    facts = [{k: v for k, v in fact.items() if k != "payload"} for fact in obj["status"]["announcements"]]
    return {"announcements": facts}


@pytest.mark.parametrize("is_announced", [False, True], ids=["pending", "published"])
async def test_facts_that_an_older_release_recorded_without_a_message_are_published(
    is_announced: bool,
) -> None:
    async with ToyHarness().running() as toy:
        assert isinstance(toy, ToyHarness)
        toy.bus.down = not is_announced
        await toy.make(phase="Running", restarts=1, reason="Evicted")
        await toy.drain_queue()
        await toy.advance(CONFIRM_GRACE_SECONDS)
        assert await toy.announced() == [is_announced] * 2
        await toy.set_status(KEY, _without_payloads(await toy.get(KEY)))
        toy.bus.lose_facts(JOBS.name)
        toy.bus.down = False
        await toy.restart()
        await toy.reconcile(KEY)
        await toy.advance(30)
        assert restarts(toy) == [(f"{await uid_of_toy(toy)}/JobRestarted/0", "Evicted")]


async def test_a_message_is_recorded_in_the_write_that_records_its_fact() -> None:
    """Also while the bus is away, a fact costs one write."""
    async with ToyHarness().running() as toy:
        assert isinstance(toy, ToyHarness)
        await toy.make(phase="Running")
        await toy.drain_queue()
        toy.bus.down = True
        await toy.patch(KEY, {"spec": {"restarts": 1, "reason": "OOMKilled"}})
        with toy.counted_writes() as writes:
            await toy.drain_queue()
        assert writes == {("patch-status", PADDLE_JOBS.plural): 1}
        with toy.counted_writes() as writes:
            await toy.advance(3600)
        assert not writes


async def test_beyond_the_maximum_the_oldest_repetitions_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("paddlewheel.operator.domain.facts.PENDING_MAX", 4)
    counts: list[tuple[str, str]] = []
    async with ToyHarness(count=_collect(counts)).running() as toy:
        assert isinstance(toy, ToyHarness)
        toy.bus.down = True
        await toy.make(phase="Running")
        for number in range(1, 6):
            await restart_toy(toy, number, f"R{number}")
        assert len((await toy.status(KEY))["announcements"]) == 4
        assert counts.count(("JobRestarted", "dropped")) == 2
        toy.bus.down = False
        await toy.advance(PUBLISH_RETRY_INTERVAL_SECONDS)
        assert [reason for _, reason in restarts(toy)] == ["R3", "R4", "R5"]


def _collect(counts: list[tuple[str, str]]) -> Callable[..., Any]:
    return lambda fact, outcome: counts.append((fact, outcome))


async def test_lost_facts_with_messages_are_published_again_without_an_observation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An observation may read other objects, and logs."""
    async with ToyHarness().running() as toy:
        assert isinstance(toy, ToyHarness)
        await toy.make(phase="Running")
        await toy.drain_queue()
        await toy.advance(CONFIRM_GRACE_SECONDS)
        toy.bus.lose_facts(JOBS.name)

        async def observe(_: object) -> None:
            raise AssertionError("observed")

        monkeypatch.setattr(toy.kind, "observe", observe)
        assert (await toy.reconciler.republish(KEY, everything=True)).published == 1
        assert [event.type.rpartition(".")[2] for event in toy.published] == ["JobAccepted"]
