"""A service of others on the chart's own server, as a plain NATS client: what it may, and what it may not."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import copytree, rmtree

import nats.errors
import pytest
from nats.js import JetStreamContext

from paddlewheel.bus.admin.permissions import FACTS
from paddlewheel.bus.nats import NatsBus
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.gen.protos import ROOT
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobGated, JobSucceeded
from paddlewheel.core.tasks import end
from paddlewheel.testkit.chart_bus import (
    BUS_ANSWER_TIMEOUT_SECONDS,
    PASSWORD,
    ChartBus,
    Guest,
    emptied,
    entering,
    guest,
    install,
    running,
)
from paddlewheel.testkit.facts import make_gated
from paddlewheel.testkit.wait import eventually

TEAMS = (
    "nats.jetstream.maxFileStore=4Gi",
    "nats.subscribers[0].name=subscriber",
    "nats.subscribers[1].name=vision",
    "nats.subscribers[1].namespaces={vision}",
)
SERVICES = (
    *TEAMS,
    "nats.services[0].name=notebooks",
    "nats.services[0].publishes[0].context=notebooks",
    "nats.services[0].publishes[0].maxBytes=16Mi",
    "nats.services[0].publishes[0].maxAge=48h",
    "nats.services[0].follows={jobs}",
    "nats.services[1].name=reports",
    "nats.services[1].follows={notebooks,jobs}",
)
STARTED = "pw.evt.notebooks.notebook.started.v1.{}.uid-1"
API = "$JS.API"
PROGRAM = ROOT / "examples/bus-services/notebooks.py"
MANY = 20
"""Tries, more than any program would count to."""
SPOILED = "uid-2"
"""Of a job whose fact nobody can read."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChartBus]:
    with running(tmp_path_factory.mktemp("bus"), *SERVICES) as started:
        yield started


@pytest.fixture
async def bus(server: ChartBus) -> ChartBus:
    return await emptied(server)


def plain(bus: ChartBus, service: str) -> AbstractAsyncContextManager[Guest]:
    """With a client's defaults."""
    return entering(bus, bus.authority, prefix="_INBOX", user=service, password=PASSWORD)


async def start_notebook(js: JetStreamContext, id_: str, namespace: str = "vision") -> bool:
    """Publish a fact of its own; whether the stream had it."""
    headers = {
        "Nats-Msg-Id": id_,
        "ce-id": id_,
        "ce-specversion": "1.0",
        "ce-type": "example.notebooks.v1.Started",
    }
    return bool((await js.publish(STARTED.format(namespace), b"{}", headers=headers)).duplicate)


async def test_it_publishes_facts_of_its_own_and_handles_those_of_others(bus: ChartBus) -> None:
    await install(bus)
    controller = NatsBus(bus.access("job-controller"), name="job-controller")
    try:
        await controller.publish(make_gated(1))
    finally:
        await controller.close()

    async with plain(bus, "notebooks") as client, plain(bus, "reports") as other:
        js = client.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
        assert [await start_notebook(js, "1"), await start_notebook(js, "1")] == [False, True]
        assert (await js.stream_info("PW_NOTEBOOKS")).state.messages == 1

        jobs = await js.pull_subscribe_bind("notebooks-jobs", "PW_JOBS")
        [fact] = await jobs.fetch(1, timeout=BUS_ANSWER_TIMEOUT_SECONDS)
        assert (fact.headers or {})["ce-type"].endswith(JobGated.__name__)
        await fact.ack_sync(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
        info = await js.consumer_info("PW_JOBS", "notebooks-jobs")
        assert (info.num_pending, info.num_ack_pending) == (0, 0)

        notebooks = await other.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS).pull_subscribe_bind(
            "reports-notebooks", "PW_NOTEBOOKS"
        )
        [fact] = await notebooks.fetch(1, timeout=BUS_ANSWER_TIMEOUT_SECONDS)
        assert (fact.headers or {})["ce-id"] == "1"
        await fact.ack_sync(timeout=BUS_ANSWER_TIMEOUT_SECONDS)


async def test_it_is_refused_what_is_anothers(bus: ChartBus) -> None:
    await install(bus)
    async with plain(bus, "notebooks") as client:
        for subject in (
            "pw.evt.jobs.job.succeeded.v1.vision.uid",
            "pw.evt.reports.report.made.v1.vision.uid",
            "pw.dlq.notebooks-jobs",
            "pw.cmd.job-controller.rebuild.v1",
            f"{API}.CONSUMER.MSG.NEXT.PW_JOBS.reports-jobs",
            f"{API}.CONSUMER.MSG.NEXT.PW_JOBS.trigger-controller-jobs",
            f"{API}.CONSUMER.CREATE.PW_JOBS.notebooks-jobs",
            f"{API}.CONSUMER.CREATE.PW_NOTEBOOKS.mine",
            f"{API}.CONSUMER.DELETE.PW_JOBS.notebooks-jobs",
            f"{API}.STREAM.INFO.PW_JOBS",
            f"{API}.STREAM.UPDATE.PW_NOTEBOOKS",
            f"{API}.STREAM.MSG.GET.PW_JOBS",
            "$JS.ACK.PW_JOBS.reports-jobs.1.1.1.1.1",
        ):
            assert await client.refused_to_publish(subject), subject
        for subject in ("pw.evt.>", "pw.live.>", "pw.work.>", "_INBOX_operator.>"):
            assert await client.refused_to_subscribe(subject), subject


async def test_teams_hear_its_facts_live_and_have_copies(bus: ChartBus) -> None:
    await install(bus)
    async with plain(bus, "notebooks") as client, guest(bus, "vision", prefix="_INBOX_subscriber") as team:
        heard = await team.client.subscribe("pw.evt.>")
        await team.client.flush()
        js = client.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
        await start_notebook(js, "1", "elsewhere")
        await start_notebook(js, "2", "vision")

        assert ((await heard.next_msg(BUS_ANSWER_TIMEOUT_SECONDS)).headers or {})["ce-id"] == "2"
        copies = team.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)

        async def arrived() -> bool:
            return (await copies.stream_info("PW_NOTEBOOKS")).state.messages == 1

        await eventually(arrived)

    operator = NatsBus(bus.access("operator"), name="operator")

    async def copies_are_fed() -> bool:
        # The server starts to feed each team's copy at a moment of its own.
        copies = [each for each in (await operator.inspect.status()).mirrors if each.stream == "PW_NOTEBOOKS"]
        return sorted((each.team, each.trouble) for each in copies) == [("subscriber", ""), ("vision", "")]

    try:
        await eventually(copies_are_fed)
        status = await operator.inspect.status()
    finally:
        await operator.close()
    assert [(other.name, other.messages) for other in status.others] == [("PW_NOTEBOOKS", 2)]


async def test_its_stream_and_durable_are_corrected_made_anew_and_left_when_it_is_no_longer_declared(
    bus: ChartBus,
) -> None:
    await install(bus)
    async with guest(bus, "operator") as operator:
        js = operator.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
        made = (await js.stream_info("PW_NOTEBOOKS")).config
        assert (made.subjects, made.max_bytes, made.max_age) == (
            ["pw.evt.notebooks.>"],
            16 * 1024**2,
            48 * 3600,
        )
        await js.update_stream(replace(made, max_bytes=1024**2))
        await js.delete_consumer("PW_JOBS", "notebooks-jobs")

        await install(bus)
        assert (await js.stream_info("PW_NOTEBOOKS")).config.max_bytes == 16 * 1024**2
        assert (await js.consumer_info("PW_JOBS", "notebooks-jobs")).config.max_deliver == -1

        await install(bus, services=())
        assert (await js.stream_info("PW_NOTEBOOKS")).config.max_bytes == 16 * 1024**2
        assert await js.consumer_info("PW_JOBS", "notebooks-jobs")


@pytest.mark.long
async def test_without_its_entry_its_access_ends_and_teams_keep_their_copies(tmp_path: Path) -> None:
    with running(tmp_path / "before", *SERVICES) as bus:
        await install(bus)
    with running(tmp_path / "after", *TEAMS) as bus:
        bus.stop()
        rmtree(bus.folder / "store")
        copytree(tmp_path / "before" / "store", bus.folder / "store")
        bus.start()
        await install(bus)

        with pytest.raises(nats.errors.Error, match=r"(?i)authorization violation"):
            async with plain(bus, "notebooks"):
                pass
        async with (
            guest(bus, "operator") as operator,
            guest(bus, "vision", prefix="_INBOX_subscriber") as team,
        ):
            js = operator.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
            assert await js.consumer_info("PW_JOBS", "notebooks-jobs")
            copies = {
                info.config.name
                for info in await team.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS).streams_info()
            }
            assert copies == {*(spec.name for spec in FACTS), "PW_NOTEBOOKS"}
            # As docs/tasks/bus-services.md removes them.
            assert (await operator.ask("pw.install.vision.STREAM.DELETE.PW_NOTEBOOKS"))["success"]
            for name in ("notebooks", "reports"):
                assert await js.delete_consumer("PW_JOBS", f"{name}-jobs")
            assert await js.delete_stream("PW_NOTEBOOKS")
        await install(bus)


@asynccontextmanager
async def example(bus: ChartBus) -> AsyncIterator[list[str]]:
    """What the program prints while it runs."""
    token = bus.home / "token-notebooks"
    token.write_text(PASSWORD)
    environment = {
        "NATS_URL": bus.url,
        "NATS_TLS_DIR": str(bus.authority),
        "NATS_TOKEN_FILE": str(token),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        env={**os.environ, **environment, "RETRY_SECONDS": "0.1"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    said: list[str] = []

    async def note(lines: asyncio.StreamReader) -> None:
        async for line in lines:
            said.append(line.decode().strip())

    noting = asyncio.create_task(note(process.stdout))
    try:
        yield said
    finally:
        process.kill()
        await process.wait()
        await end(noting)


async def succeed(bus: ChartBus, uid: str) -> None:
    """A job has succeeded, job-controller says."""
    fact = make_event(
        JobSucceeded(job=ObjectRef(namespace="team-a", name="digits", uid=uid), seconds=1.0),
        id=f"{uid}/JobSucceeded/0",
        source="job-controller",
        namespace="team-a",
        uid=uid,
        time=datetime.now(UTC),
    )
    controller = NatsBus(bus.access("job-controller"), name="job-controller")
    try:
        await controller.publish(make_gated(1))
        await controller.publish(fact)
    finally:
        await controller.close()


async def offered(bus: ChartBus, uid: str) -> None:
    """The example has published its fact of that job, as the next one of all."""
    async with plain(bus, "reports") as client:
        js = client.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
        reports = await js.pull_subscribe_bind("reports-notebooks", "PW_NOTEBOOKS")
        [told] = await reports.fetch(1, timeout=60)
        await told.ack()
        await client.client.flush()
    assert told.subject == f"pw.evt.notebooks.notebook.offered.v1.team-a.{uid}"
    assert (told.headers or {})["ce-id"] == f"{uid}/NotebookOffered/0"
    assert json.loads(told.data)["job"]["name"] == "digits"


async def test_the_example_publishes_a_fact_for_each_job_that_succeeded(bus: ChartBus) -> None:
    await install(bus)
    async with example(bus):
        await succeed(bus, "uid-9")
        await offered(bus, "uid-9")


@pytest.mark.long
async def test_the_example_outlasts_what_passes_and_gives_up_what_does_not(bus: ChartBus) -> None:
    await install(bus)
    async with guest(bus, "operator") as operator, example(bus) as said:
        js = operator.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
        await js.delete_stream("PW_NOTEBOOKS")
        await succeed(bus, "uid-1")

        def tries() -> int:
            return sum("uid-1" in line and "NoStreamResponseError" in line for line in said)

        await eventually(lambda: tries() > MANY, within=60, what="tries, without an end")
        await install(bus)
        await offered(bus, "uid-1")

        spoiled = f"pw.evt.jobs.job.succeeded.v1.team-a.{SPOILED}"
        await js.publish(spoiled, b"no JSON", headers={"ce-type": "JobSucceeded", "ce-id": f"{SPOILED}/0"})
        await succeed(bus, "uid-3")
        await offered(bus, "uid-3")

        async def is_done() -> bool:
            info = await js.consumer_info("PW_JOBS", "notebooks-jobs")
            return (info.num_pending, info.num_ack_pending) == (0, 0)

        await eventually(is_done)
        assert [line.split()[0] for line in said if SPOILED in line] == ["given"]
