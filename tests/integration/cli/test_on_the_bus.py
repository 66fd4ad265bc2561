"""`paddlewheel events`, `dlq` and `bus` as processes on a real server, with real dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest
from pydantic import BaseModel
from tests.integration.cli.command import COMMAND_TIMEOUT_SECONDS, Ended, ended, run, start

from paddlewheel.bus import Access
from paddlewheel.bus.admin.services import DeclaredService, Publication
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Bus, Delivery, RawMessage, Subscription
from paddlewheel.bus.streams import DATASETS, STREAMS
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.bus_v1 import RebuildReport
from paddlewheel.contracts.subjects import command_subject, event_filter
from paddlewheel.contracts.wire import to_json
from paddlewheel.core.errors import Permanent
from paddlewheel.core.tasks import end
from paddlewheel.sdk import JobDeleted, JobGated, JobSucceeded, ObjectRef, SampleSetReady
from paddlewheel.testkit.chart_bus import running
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.patient_bus import connect
from paddlewheel.testkit.suites import long_after
from paddlewheel.testkit.wait import eventually

DURABLE = "trigger-controller-datasets"
SUBSCRIPTION = Subscription(DURABLE, DATASETS.name, (event_filter("datasets"),))


async def paddlewheel(url: str, *arguments: str) -> Ended:
    return await run(*arguments, env={"NATS_URL": url})


def make_fact(data: BaseModel, id_: str, uid: str) -> Event:
    now = datetime.now(UTC)
    return make_event(data, id=id_, source="test", namespace="team-a", uid=uid, time=now)


def make_ready(number: int) -> Event:
    images = ObjectRef(namespace="team-a", name="images", uid="s1")
    return make_fact(SampleSetReady(sample_set=images, partitions=number), f"ready/{number}", "s1")


def make_story(uid: str, facts: Iterable[type[BaseModel]]) -> list[Event]:
    job = ObjectRef(namespace="team-a", name="resnet", uid=uid)
    return [make_fact(fact(job=job), f"{uid}/{fact.__name__}", uid) for fact in facts]


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    connected = await connect(nats_server.url, name="test")
    yield connected
    await connected.close()


@dataclass
class Consumer:
    """A handler that refuses everything until it is mended."""

    is_broken: bool = True
    handled: list[str] = field(default_factory=list)

    async def __call__(self, delivery: Delivery) -> None:
        if self.is_broken:
            raise Permanent("NoSuchPartition", "partition 7 does not exist: mend spec.partitions")
        self.handled.append(delivery.event.id)


@pytest.fixture
async def consumer(bus: Bus) -> AsyncIterator[Consumer]:
    """Four dead letters of its: two refused facts, text, and bytes."""
    made = Consumer()
    task = asyncio.create_task(bus.consume(SUBSCRIPTION, made))
    await bus.publish(make_ready(1))
    await bus.publish(make_ready(2))
    for poison in (b"not json\nat all", b"\x00\xff" * 3000):
        await bus.publish_raw(RawMessage(make_ready(3).subject, poison))  # type: ignore[attr-defined]
    await eventually(lambda: parked(bus, 4), within=COMMAND_TIMEOUT_SECONDS)
    yield made
    await end(task)


async def parked(bus: Bus, count: int) -> bool:
    return len([letter.sequence async for letter in bus.dead_letters.list()]) == count


async def test_dead_letters_are_listed_shown_replayed_and_dropped(
    bus: Bus, nats_url: str, consumer: Consumer
) -> None:
    listed = await paddlewheel(nats_url, "dlq", "list")
    rows = [line for line in listed.out.splitlines() if DURABLE in line]
    assert len(rows) == 4
    assert "NoSuchPartition" in rows[0]
    assert "not json at all" in rows[2]
    assert "0x00ff00ff" in rows[3]

    shown = await paddlewheel(nats_url, "dlq", "show", "1")
    assert "reason     NoSuchPartition: partition 7 does not exist: mend spec.partitions" in shown.out
    assert "  ce-id: ready/1" in shown.out
    assert '    "partitions": 1' in shown.out
    binary = (await paddlewheel(nats_url, "dlq", "show", "4", "-o", "json")).json
    assert (binary["encoding"], binary["reason"]) == ("base64", "MalformedEvent")

    consumer.is_broken = False
    replayed = await paddlewheel(nats_url, "dlq", "replay", "1", "99")
    assert (replayed.code, replayed.out) == (1, "replayed 1 of 2\n")
    assert "99: no such dead letter" in replayed.err
    all_ = await paddlewheel(nats_url, "dlq", "replay", "--durable", DURABLE, "--all", "-o", "json")
    assert (all_.code, [outcome["done"] for outcome in all_.json]) == (0, [True] * 3)
    await eventually(lambda: consumer.handled == ["ready/1", "ready/2"], within=COMMAND_TIMEOUT_SECONDS)
    await eventually(
        lambda: parked(bus, 2), within=COMMAND_TIMEOUT_SECONDS, what="what cannot be read is parked again"
    )

    unsure = await paddlewheel(nats_url, "dlq", "drop", "--all")
    assert unsure.code == 2
    assert "add --yes" in unsure.err
    assert (await paddlewheel(nats_url, "dlq", "drop", "--all", "--yes")).out == "dropped 2 of 2\n"
    assert (await paddlewheel(nats_url, "dlq", "list")).out == "no dead letters\n"
    assert (await paddlewheel(nats_url, "dlq", "list", "-o", "json")).json == []


@pytest.mark.long
async def test_a_replay_that_no_process_takes_is_said_aloud(bus: Bus, nats_url: str) -> None:
    task = asyncio.create_task(bus.consume(SUBSCRIPTION, Consumer()))
    await bus.publish(make_ready(1))
    await eventually(lambda: parked(bus, 1), within=COMMAND_TIMEOUT_SECONDS)
    await end(task)

    replayed = await paddlewheel(nats_url, "dlq", "replay", "1")
    assert (replayed.code, replayed.out) == (0, "replayed 1 of 1\n")
    said = f"1 replayed message for {DURABLE}, which no process takes: start its service"
    assert said in replayed.err
    assert said in (await paddlewheel(nats_url, "bus", "status", "-o", "json")).json["faults"][0]


async def test_what_is_not_there_is_told_with_the_next_step(nats_url: str, bus: Bus) -> None:
    ended = await paddlewheel(nats_url, "dlq", "show", "7")
    assert (ended.code, ended.out) == (1, "")
    assert "dead letter 7 does not exist; `paddlewheel dlq list`" in ended.err


async def test_the_status_is_a_figure_for_everything_and_fails_on_faults(
    bus: Bus, nats_url: str, consumer: Consumer
) -> None:
    wrong = await paddlewheel(nats_url, "bus", "status")
    assert wrong.code == 1
    assert f"fault: 4 dead letters of {DURABLE}: `paddlewheel dlq list --durable {DURABLE}`" in wrong.out
    assert "warning: nats_replicas=1" in wrong.out
    assert all(spec.name in wrong.out for spec in STREAMS)
    await paddlewheel(nats_url, "dlq", "drop", "--all", "--yes")
    well = await paddlewheel(nats_url, "bus", "status", "-o", "json")
    assert (well.code, well.json["faults"], well.json["dead_letters"]) == (0, [], {})
    [durable] = [d for d in well.json["durables"] if d["name"] == DURABLE]
    assert (durable["pending"], durable["ack_pending"]) == (0, 0)


@pytest.mark.long
async def test_the_status_shows_what_services_of_others_have_and_what_waits_for_them(nats_url: str) -> None:
    own = Publication(context="notebooks", max_bytes="1Mi", max_age="1h")
    services = (
        DeclaredService(name="notebooks", publishes=(own,), follows=("jobs",)),
        DeclaredService(name="reports", follows=("notebooks",)),
    )
    installer = NatsBus(Access(nats_url, streams="make", services=services), name="installer")
    try:
        await installer.install()
        await installer.publish(*make_story("u1", [JobGated]))
        js = await installer._connection.jetstream()
        await js.publish("pw.evt.notebooks.notebook.started.v1.team-a.uid", b"{}")
        await js.add_stream(name="ELSE", subjects=["else"])
    finally:
        await installer.close()

    told = (await paddlewheel(nats_url, "bus", "status", "-o", "json")).json
    assert [(other["name"], other["messages"]) for other in told["others"]] == [("PW_NOTEBOOKS", 1)]
    assert (told["missing"], told["faults"]) == ([], [])
    waiting = {(d["stream"], d["name"]): d["pending"] for d in told["durables"]}
    assert waiting["PW_JOBS", "notebooks-jobs"] == 1
    assert waiting["PW_NOTEBOOKS", "reports-notebooks"] == 1
    shown = await paddlewheel(nats_url, "bus", "status")
    [row] = [line for line in shown.out.splitlines() if "declared by others" in line]
    assert "PW_NOTEBOOKS" in row
    assert "reports-notebooks" in shown.out


@pytest.mark.long
async def test_missing_streams_are_a_fault_and_looking_makes_none(nats_url: str) -> None:
    for _ in range(2):
        ended = await paddlewheel(nats_url, "bus", "status", "-o", "json")
        assert ended.code == 1
        assert ended.json["missing"] == [spec.name for spec in STREAMS]


async def test_rebuild_says_who_did_what_and_who_did_not_answer(bus: Bus, nats_url: str) -> None:
    async def report(_: bytes) -> bytes:
        return to_json(RebuildReport(service="job-controller", replica="job-0", objects=12, facts_checked=40))

    task = asyncio.create_task(bus.answer(command_subject("job-controller", "rebuild"), report))

    async def answered() -> Ended | None:
        ended = await paddlewheel(nats_url, "bus", "rebuild", "--service", "job-controller", "-o", "json")
        return ended if ended.code == 0 else None

    found = (await eventually(answered, within=COMMAND_TIMEOUT_SECONDS)).json
    assert found[0]["replicas"] == [
        {
            "service": "job-controller",
            "replica": "job-0",
            "objects": 12,
            "facts_checked": 40,
            "facts_published": 0,
        }
    ]

    async def told() -> Ended | None:
        """The command waits for two seconds, in which this process may stand still."""
        ended = await paddlewheel(nats_url, "bus", "rebuild")
        return ended if "job-0" in ended.out else None

    ended = await eventually(told, within=COMMAND_TIMEOUT_SECONDS)
    await end(task)
    assert ended.code == 1
    assert "dataset-controller: no replica answered: start it" in ended.err


async def test_a_deleted_jobs_story_is_told_from_the_stream(bus: Bus, nats_url: str) -> None:
    for uid in ("u1", "u2"):
        for event in make_story(uid, (JobGated, JobSucceeded, JobDeleted)):
            await bus.publish(event)
    told = await paddlewheel(nats_url, "bus", "replay", "--job", "team-a/resnet")
    lines = told.out.splitlines()
    assert [line for line in lines if "uid" in line] == [f"team-a/resnet, uid {uid}" for uid in ("u1", "u2")]
    facts = [line.split()[2] for line in lines if not line.startswith("team-a")]
    assert facts == ["jobs.job.gated", "jobs.job.succeeded", "jobs.job.deleted"] * 2
    as_json = await paddlewheel(nats_url, "bus", "replay", "--job", "team-a/resnet", "-o", "json")
    assert [orjson.loads(line)["id"] for line in as_json.out.splitlines()][:2] == [
        "u1/JobGated",
        "u1/JobSucceeded",
    ]
    nothing = await paddlewheel(nats_url, "bus", "replay", "--job", "team-a/none")
    assert nothing.code == 1
    assert "no facts are stored about team-a/none" in nothing.err


async def test_events_are_filtered_and_a_durable_goes_on_where_it_ended(bus: Bus, nats_url: str) -> None:
    for event in (*make_story("u1", (JobGated, JobSucceeded)), make_ready(1)):
        await bus.publish(event)
    everything = await paddlewheel(nats_url, "events", "--no-follow")
    assert [line.split()[1] for line in everything.out.splitlines()] == [
        "jobs.job.gated", "jobs.job.succeeded", "datasets.sampleset.ready",
    ]  # fmt: skip
    ours = ("events", "--no-follow", "--job", "team-a/resnet", "--durable", "me", "-o", "json")
    assert len((await paddlewheel(nats_url, *ours)).out.splitlines()) == 2
    assert (await paddlewheel(nats_url, *ours)).out == ""
    for event in make_story("u2", (JobGated,)):
        await bus.publish(event)
    [line] = (await paddlewheel(nats_url, *ours)).out.splitlines()
    assert orjson.loads(line)["id"] == "u2/JobGated"


@pytest.mark.long
async def test_a_durable_refuses_another_selection_in_the_words_of_the_options(
    bus: Bus, nats_url: str
) -> None:
    await bus.publish(make_ready(1))
    ours = (
        "events",
        "--no-follow",
        "--durable",
        "me",
        "--type",
        "SampleSetReady",
        "--type",
        "SampleSetSynced",
    )
    assert len((await paddlewheel(nats_url, *ours)).out.splitlines()) == 1
    await bus.publish(make_ready(2))
    refused = await paddlewheel(
        nats_url, "events", "--no-follow", "--durable", "me", "--set", "team-a/images"
    )
    assert (refused.code, refused.out) == (2, "")
    said = refused.err
    assert "error: Invalid value for --durable: 'me' was created to read --type SampleSetReady --type" in said
    assert "SampleSetSynced, not --set team-a/images; pass the same selection, or another name" in said
    refused = await paddlewheel(
        nats_url, "events", "--no-follow", "--durable", "me", "--paddle-service", "team-a/digits"
    )
    assert "not --paddle-service team-a/digits;" in refused.err
    assert len((await paddlewheel(nats_url, *ours)).out.splitlines()) == 1


def make_late(number: int, age: timedelta) -> Event:
    """A fact that became true before it was published, as after the loss of a stream."""
    fact = make_ready(number)
    return replace(fact, time=fact.time - age)


@pytest.mark.parametrize("follow", long_after(1, ("--follow", "--no-follow")))
async def test_stored_facts_are_ordered_and_bounded_by_when_they_became_true(
    bus: Bus, nats_url: str, follow: str
) -> None:
    [job] = make_story("u1", (JobGated,))
    for fact in (make_late(1, timedelta(minutes=5)), job, make_late(2, timedelta(minutes=20))):
        await bus.publish(fact)
    await bus.publish(make_late(3, timedelta(hours=2)))

    process = await start("events", "-o", "json", follow, env={"NATS_URL": nats_url})
    assert process.stdout
    async with asyncio.timeout(COMMAND_TIMEOUT_SECONDS):
        ids = [orjson.loads(await process.stdout.readline())["id"] for _ in range(3)]
        assert ids == ["ready/2", "ready/1", "u1/JobGated"]
        if follow == "--follow":
            await bus.publish(make_late(4, timedelta(hours=3)))
            assert orjson.loads(await process.stdout.readline())["id"] == "ready/4", (
                "a new one comes as it is"
            )
            process.terminate()
    assert (await ended(process)).out == ""


@pytest.mark.long
async def test_a_jobs_story_is_ordered_by_when_its_facts_became_true(bus: Bus, nats_url: str) -> None:
    gated, succeeded, deleted = make_story("u1", (JobGated, JobSucceeded, JobDeleted))
    for fact in (deleted, replace(gated, time=gated.time - timedelta(days=1)), succeeded):
        await bus.publish(fact)
    told = await paddlewheel(nats_url, "bus", "replay", "--job", "team-a/resnet", "-o", "json")
    ids = [orjson.loads(line)["id"] for line in told.out.splitlines()]
    assert ids == ["u1/JobGated", "u1/JobSucceeded", "u1/JobDeleted"]


@pytest.mark.parametrize(
    "arguments", long_after(1, map(str.split, ("events --no-follow", "dlq list", "bus status")))
)
async def test_a_bus_that_is_away_is_one_line_with_address_origin_and_remedy(
    nats_server: NatsServer, arguments: list[str]
) -> None:
    nats_server.kill()
    failed = await paddlewheel(nats_server.url, *arguments)
    assert (failed.code, failed.out) == (1, "")
    [line] = failed.err.splitlines()
    assert line.startswith(
        f"error: BusUnreachable: no connection to {nats_server.url}: ConnectionRefusedError"
    )
    assert line.endswith(
        "; the address is from NATS_URL: set it to a running server, or unset it to use the bus of a cluster"
    )


@pytest.mark.long
async def test_to_follow_waits_for_a_bus_that_is_away_and_says_so(nats_server: NatsServer) -> None:
    nats_server.kill()
    process = await start("events", "--since", "all", env={"NATS_URL": nats_server.url})
    assert process.stdout
    assert process.stderr
    async with asyncio.timeout(COMMAND_TIMEOUT_SECONDS):
        said = (await process.stderr.readline()).decode()
        assert said.startswith(f"no connection to {nats_server.url}: ConnectionRefusedError")
        assert said.endswith("; the address is from NATS_URL; still trying, Ctrl-C ends it\n")
        await asyncio.to_thread(nats_server.start)
        bus = await connect(nats_server.url, name="late")
        await bus.publish(make_ready(1))
        assert b"datasets.sampleset.ready" in await process.stdout.readline()
        await bus.close()
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("arguments", long_after(1, map(str.split, ("events", "dlq list", "bus status"))))
async def test_wrong_certificates_are_refused_by_variable_and_file_before_connecting(
    nats_url: str, tmp_path: Path, arguments: list[str]
) -> None:
    failed = await run(*arguments, env={"NATS_URL": nats_url, "NATS_TLS_DIR": str(tmp_path)})
    assert (failed.code, failed.out) == (1, "")
    [line] = failed.err.splitlines()
    assert line.startswith(
        f"error: NATS_TLS_DIR: {tmp_path}/ca.crt: No such file or directory; a folder with"
    )
    assert "(ConfigMap bus-ca)" in line


@pytest.mark.parametrize("arguments", long_after(1, map(str.split, ("events", "dlq list", "bus status"))))
async def test_a_certificate_of_another_server_ends_the_command_with_its_names(
    tmp_path: Path, arguments: list[str]
) -> None:
    with running(tmp_path / "bus") as bus:
        env = {"NATS_URL": bus.url, "NATS_TLS_DIR": str(bus.authority), "NATS_TLS_HOSTNAME": "bus.example"}
        failed = await run(*arguments, env=env)
    assert (failed.code, failed.out) == (1, "")
    [line] = failed.err.splitlines()
    assert line.startswith(f"error: BusCertificateWrong: {bus.url}: the server's certificate is for ")
    assert "nats, " in line
    assert "not for bus.example: use one of its names in NATS_URL, or set NATS_TLS_HOSTNAME" in line
