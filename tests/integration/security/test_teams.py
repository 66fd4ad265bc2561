"""Teams of subscribers: copies of facts in accounts of their own, which reach nothing of the services."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest
from nats.js.errors import APIError

from paddlewheel.bus.admin.mirrors import MirrorStatus
from paddlewheel.bus.admin.permissions import FACTS
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Delivery, Reading
from paddlewheel.bus.streams import STREAMS
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.testkit.chart_bus import (
    BUS_ANSWER_TIMEOUT_SECONDS,
    ChartBus,
    Guest,
    emptied,
    guest,
    install,
    running,
)
from paddlewheel.testkit.wait import eventually, patiently

TEAMS = (
    "nats.subscribers[0].name=subscriber",
    "nats.subscribers[1].name=team-a",
    "nats.subscribers[1].namespaces={a,b}",
    "nats.jetstream.maxFileStore=4Gi",
)
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
API = "$JS.API"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChartBus]:
    with running(tmp_path_factory.mktemp("bus"), *TEAMS) as started:
        yield started


@pytest.fixture
async def bus(server: ChartBus) -> ChartBus:
    return await emptied(server)


def make_fact(number: int, namespace: str = "a") -> Event:
    ref = ObjectRef(namespace=namespace, name="job", uid=f"uid-{number}", resource_version="1")
    data = JobGated(job=ref, reason="SampleSetNotReady", message=f"{number}")
    return make_event(
        data,
        id=f"{namespace}/{number}",
        source="test",
        namespace=namespace,
        uid=ref.uid,
        time=datetime.now(UTC),
        traceparent="",
    )


async def publish(bus: ChartBus, *facts: Event) -> None:
    controller = NatsBus(bus.access("job-controller"), name="job-controller")
    try:
        for fact in facts:
            await patiently(lambda: controller.publish(fact))  # noqa: B023 - awaited here
    finally:
        await controller.close()


async def read(bus: ChartBus, team: str, most: int, **how: Any) -> list[Delivery]:
    """The first facts that a team's program gets."""
    client = NatsBus(bus.access("subscriber", url=bus.url_of(team)), name=team)
    found: list[Delivery] = []
    try:
        async with asyncio.timeout(BUS_ANSWER_TIMEOUT_SECONDS):
            async with aclosing(client.read(Reading(("pw.evt.>",), since=BEGINNING, **how))) as facts:
                async for delivery in facts:
                    found.append(delivery)
                    if len(found) == most:
                        break
    finally:
        await client.close()
    return found


def ids(found: list[Delivery]) -> list[str]:
    return [delivery.event.id for delivery in found]


async def count(bus: ChartBus, team: str) -> int:
    async with guest(bus, team, prefix="_INBOX_subscriber") as client:
        return int((await client.ask(f"{API}.STREAM.INFO.PW_JOBS"))["state"]["messages"])


async def test_each_team_has_its_copies_with_the_same_numbers_and_ids(bus: ChartBus) -> None:
    await install(bus)
    facts = [make_fact(number, "abc"[number % 3]) for number in range(6)]
    await publish(bus, *facts)

    everything = await read(bus, "subscriber", 6)
    own = await read(bus, "team-a", 4, durable="my-service", selection="all", selection_key="all")

    assert ids(everything) == [fact.id for fact in facts]
    assert [delivery.sequence for delivery in everything] == [1, 2, 3, 4, 5, 6]
    assert ids(own) == [fact.id for fact in facts if fact.id[0] in "ab"]
    assert [delivery.sequence for delivery in own] == [1, 2, 4, 5]


async def test_positions_stay_when_namespaces_are_added_and_removed(bus: ChartBus) -> None:
    async def have(*namespaces: str) -> None:
        [first, team] = bus.teams
        await install(bus, teams=(first, replace(team, namespaces=namespaces)))

    durable = {"durable": "sub-mine", "selection": "all", "selection_key": "all"}
    await install(bus)
    await publish(bus, *(make_fact(number, "abc"[number % 3]) for number in range(6)))
    assert ids(await read(bus, "team-a", 2, **durable)) == ["a/0", "b/1"]

    await have("a", "b", "c")
    await publish(bus, *(make_fact(number, "abc"[number % 3]) for number in range(6, 9)))
    # The new namespace counts from now on.
    assert ids(await read(bus, "team-a", 4, **durable)) == ["b/1", "a/3", "b/4", "a/6"]

    await have("a", "c")
    await publish(bus, *(make_fact(number, "abc"[number % 3]) for number in range(9, 12)))
    assert ids(await read(bus, "team-a", 4, **durable)) == ["a/6", "c/8", "a/9", "c/11"]
    # Nothing of the namespace that was removed is left.
    assert ids(await read(bus, "team-a", 6)) == ["a/0", "a/3", "a/6", "c/8", "a/9", "c/11"]


async def test_positions_stay_when_a_team_gets_all_namespaces(bus: ChartBus) -> None:
    [first, team] = bus.teams
    durable = {"durable": "sub-mine", "selection": "all", "selection_key": "all"}
    await install(bus)
    await publish(bus, *(make_fact(number, "abc"[number % 3]) for number in range(6)))
    assert ids(await read(bus, "team-a", 2, **durable)) == ["a/0", "b/1"]

    await install(bus, teams=(first, replace(team, namespaces=())))
    await publish(bus, *(make_fact(number, "abc"[number % 3]) for number in range(6, 9)))

    assert ids(await read(bus, "team-a", 6, **durable)) == ["b/1", "a/3", "b/4", "a/6", "b/7", "c/8"]


async def test_a_team_hears_only_its_namespaces_live(bus: ChartBus) -> None:
    await install(bus)
    async with guest(bus, "team-a", prefix="_INBOX_subscriber") as client:
        heard = await client.client.subscribe("pw.evt.>")
        await client.client.flush()
        await publish(bus, make_fact(1, "c"), make_fact(2, "b"))
        message = await heard.next_msg(BUS_ANSWER_TIMEOUT_SECONDS)
    assert message.headers
    assert message.headers["ce-id"] == "b/2"


LIVE = {
    "jobs.job.gated": "job-controller",
    "progress.job.progressed": "job-controller",
    "models.model.published": "job-controller",
    "datasets.sampleset.ready": "dataset-controller",
    "triggers.trigger.fired": "trigger-controller",
    "serving.service.ready": "serving-controller",
    "cache.run.ended": "cache-runtime",
    "cacheprogress.run.progressed": "cache-runtime",
    "measurements.revision.measured": "evaluator",
}
"""A fact of each context, and who publishes it."""


async def test_live_facts_of_every_context_are_what_the_stream_stored_once(bus: ChartBus) -> None:
    await install(bus)
    async with guest(bus, "team-a", prefix="_INBOX_subscriber") as team:
        heard = await team.client.subscribe("pw.evt.>")
        await team.client.flush()
        for fact, role in LIVE.items():
            async with guest(bus, role) as publisher:
                await publish_repeatedly(publisher, f"pw.evt.{fact}.v1.a.u", fact)
        messages = [await heard.next_msg(BUS_ANSWER_TIMEOUT_SECONDS) for _ in range(2 * len(LIVE))]
        await team.client.flush()
        left = heard.pending_msgs

    expected = [(f"pw.evt.{fact}.v1.a.u", f"{fact}/{number}") for fact in LIVE for number in (1, 2)]
    assert sorted((m.subject, (m.headers or {})["Nats-Msg-Id"]) for m in messages) == sorted(expected)
    assert left == 0


async def publish_repeatedly(publisher: Guest, subject: str, fact: str) -> None:
    """One three times under one id, one that the server refuses, and another one."""
    js = publisher.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
    for _ in range(3):
        await js.publish(subject, b"{}", headers={"Nats-Msg-Id": f"{fact}/1"})
    with pytest.raises(APIError):
        await js.publish(subject, b"{}", headers={"Nats-Expected-Stream": "PW_ELSE"})
    await js.publish(subject, b"{}", headers={"Nats-Msg-Id": f"{fact}/2"})


async def test_copies_of_lossy_streams_are_in_memory_as_these_are(bus: ChartBus) -> None:
    await install(bus)
    async with guest(bus, "operator") as operator:
        for each in (each for each in STREAMS if each.storage == "memory"):
            for api in (API, "pw.install.team-a", "pw.install.subscriber"):
                info = await operator.ask(f"{api}.STREAM.INFO.{each.name}")
                assert info["config"]["storage"] == "memory", (api, each.name)


async def test_copies_catch_up_after_a_server_that_was_killed(bus: ChartBus) -> None:
    await install(bus)
    await publish(bus, *(make_fact(number) for number in range(50)))
    assert bus.process
    bus.process.kill()
    bus.process.wait()
    bus.start()
    # The streams in memory are gone, and the installer makes them again.
    await install(bus)
    await publish(bus, *(make_fact(number) for number in range(50, 100)))

    assert ids(await read(bus, "subscriber", 100)) == [f"a/{number}" for number in range(100)]


async def test_a_stream_that_was_lost_is_copied_anew(bus: ChartBus) -> None:
    await install(bus)
    await publish(bus, *(make_fact(number) for number in range(3)))
    assert len(await read(bus, "subscriber", 3)) == 3
    async with guest(bus, "operator") as operator:
        await operator.client.jetstream().delete_stream("PW_JOBS")
    await install(bus)
    await publish(bus, make_fact(7))

    assert ids(await read(bus, "subscriber", 1)) == ["a/7"]
    assert ids(await read(bus, "team-a", 1)) == ["a/7"]


async def test_a_copy_that_was_lost_is_filled_again(bus: ChartBus) -> None:
    await install(bus)
    await publish(bus, *(make_fact(number) for number in range(3)))
    assert len(await read(bus, "team-a", 3)) == 3
    async with guest(bus, "operator") as operator:
        await operator.ask("pw.install.team-a.STREAM.DELETE.PW_JOBS")
    await install(bus)

    assert len(await read(bus, "team-a", 3)) == 3
    assert len(await read(bus, "subscriber", 3)) == 3


async def test_a_feed_that_was_lost_goes_on_where_the_copy_ends(bus: ChartBus) -> None:
    await install(bus)
    await publish(bus, *(make_fact(number) for number in range(3)))
    assert len(await read(bus, "team-a", 3)) == 3
    async with guest(bus, "operator") as operator:
        await operator.client.jetstream().delete_consumer("PW_JOBS", "mirror-team-a")
    await install(bus)
    await publish(bus, make_fact(3))

    assert ids(await read(bus, "team-a", 4)) == [f"a/{number}" for number in range(4)]


@pytest.mark.long
async def test_a_copy_that_is_ahead_of_a_stream_restored_from_a_backup_is_made_anew(
    bus: ChartBus, tmp_path: Path
) -> None:
    stored, backup = bus.folder / "store/jetstream/PADDLEWHEEL/streams/PW_JOBS", tmp_path / "backup"
    await install(bus)
    await publish(bus, *(make_fact(number) for number in range(3)))
    await eventually(lambda: has(bus, "team-a", 3), what="the copy is there")
    bus.stop()
    copytree(stored, backup)
    bus.start()
    await publish(bus, *(make_fact(number) for number in range(3, 6)))
    await eventually(lambda: has(bus, "team-a", 6), what="the copy has all")
    bus.stop()
    rmtree(stored)
    copytree(backup, stored)
    bus.start()
    await install(bus)
    await publish(bus, make_fact(9))

    assert ids(await read(bus, "team-a", 4)) == ["a/0", "a/1", "a/2", "a/9"]
    assert ids(await read(bus, "subscriber", 4)) == ["a/0", "a/1", "a/2", "a/9"]


async def test_the_state_of_the_bus_has_the_copies_of_each_team(bus: ChartBus) -> None:
    await install(bus)
    await publish(bus, make_fact(1))
    client = NatsBus(bus.access("operator"), name="operator")

    async def mirrors() -> tuple[MirrorStatus, ...]:
        return (await client.inspect.status()).mirrors

    async def are_fed() -> bool:
        return all(each.trouble == "" and each.lag == 0 for each in await mirrors())

    try:
        await eventually(are_fed, what="the copies have all")
        places = {(each.team, each.stream) for each in await mirrors()}
        assert places == {(team, spec.name) for team in ("subscriber", "team-a") for spec in FACTS}
        async with guest(bus, "operator") as operator:
            await operator.ask("pw.install.team-a.STREAM.DELETE.PW_JOBS")
        lost = [each for each in await mirrors() if each.trouble]
        assert [(each.team, each.stream) for each in lost] == [("team-a", "PW_JOBS")]
        assert not any(d.name.startswith("mirror-") for d in (await client.inspect.status()).durables)
    finally:
        await client.close()


async def test_installing_again_changes_nothing(bus: ChartBus) -> None:
    await install(bus)
    await publish(bus, make_fact(1))
    await eventually(lambda: has(bus, "team-a", 1), what="the copy is there")
    async with guest(bus, "operator") as operator:
        before = [await created(operator, stream.name) for stream in FACTS]
        await install(bus)
        assert [await created(operator, stream.name) for stream in FACTS] == before
    assert await count(bus, "team-a") == 1


async def has(bus: ChartBus, team: str, number: int) -> bool:
    return await count(bus, team) == number


async def created(operator: Any, stream: str) -> tuple[str, ...]:
    asked = [f"pw.install.{team}.STREAM.INFO.{stream}" for team in ("subscriber", "team-a")]
    asked += [f"{API}.CONSUMER.INFO.{stream}.mirror-{team}" for team in ("subscriber", "team-a")]
    return tuple([(await operator.ask(each))["created"] for each in asked])


async def test_a_team_that_is_gone_is_fed_no_more(bus: ChartBus) -> None:
    await install(bus)
    await install(bus, teams=bus.teams[:1])
    async with guest(bus, "operator") as operator:
        js = operator.client.jetstream()
        assert [info.name for info in await js.consumers_info("PW_PROGRESS")] == ["mirror-subscriber"]
