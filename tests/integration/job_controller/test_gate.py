"""The program before which pods wait, as it is built for the cluster; no name is looked up on the network."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.integration.job_controller.conftest import JobServiceHarness

from job_controller.core import names
from paddlewheel.contracts.keys import Key
from paddlewheel.core.sockets import free_ports
from paddlewheel.devcluster.binaries import PAUSE, ensure
from paddlewheel.kube.ports import PADDLE_JOBS, PODS
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role
from paddlewheel.testkit.service_harness import WITHIN
from paddlewheel.testkit.wait import eventually

KNOWN, NEVER = "127.0.0.1", "no..name"
"""An address resolves to itself, and what is no name to nothing: neither asks a server."""


@contextmanager
def gate(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    program = ensure((PAUSE,), lambda _message, _fraction: None).path("pause")
    with subprocess.Popen(["gate", *arguments], executable=program) as process:
        try:
            yield process
        finally:
            process.kill()


def is_told(path: Path, names: str) -> bool:
    """Whether a gate reads the pipe and has received the names."""
    with suppress(OSError):
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            return os.write(pipe, f"{names}\n".encode()) > 0
        finally:
            os.close(pipe)
    return False


async def test_names_that_are_wanted_no_more_are_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "names"
    os.mkfifo(path)
    with gate("--resolve-all", str(path)) as process:
        for _ in range(3):
            await eventually(lambda: is_told(path, f"{KNOWN} {NEVER}"), what="the gate asks for its names")
        assert process.poll() is None

        def has_passed() -> bool:
            is_told(path, KNOWN)
            return process.poll() == 0

        await eventually(has_passed, what="the gate passes")


async def test_a_release_is_a_file_that_is_not_empty(tmp_path: Path) -> None:
    path = tmp_path / "released"
    path.touch()
    with gate("--file", str(path)) as process:
        path.write_text("true")
        assert process.wait(60) == 0


async def test_the_gate_asks_until_the_answer_is_yes() -> None:
    """The answers of the server meanwhile change nothing, nor does its absence."""
    answers = [404, 202, 503]
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query["ip"])
        return web.Response(status=answers.pop(0) if answers else 200)

    app = web.Application()
    app.router.add_get("/v1/gate/ns/job/worker/0", answer)
    async with TestServer(app) as server:
        with gate("--ask", f"{server.make_url('/v1/gate/ns/job/worker/0')}?ip=10.0.0.1") as process:
            await eventually(lambda: process.poll() is not None, what="the gate passes")
    assert process.returncode == 0
    # Again, too, when an answer took too long.
    assert (set(asked), len(asked) >= 4) == ({"10.0.0.1"}, True)


async def test_a_gate_that_nobody_answers_waits_and_ends_when_it_is_told() -> None:
    asked = asyncio.Event()

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with gate("--ask", f"http://127.0.0.1:{port}/nobody") as process:
            for _ in range(2):
                asked.clear()
                async with asyncio.timeout(90):
                    await asked.wait()
            assert process.poll() is None
            process.terminate()
            assert await asyncio.to_thread(process.wait, 60) == 143


async def test_a_gate_that_nobody_answers_falls_back() -> None:
    (port,) = free_ports(1)
    with gate("--ask", f"http://127.0.0.1:{port}/nobody", "--fallback", "1ms") as process:
        assert await asyncio.to_thread(process.wait, 60) == 0


async def test_a_gate_that_is_answered_does_not_fall_back() -> None:
    asked = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        asked.set()
        return web.Response(status=202)

    app = web.Application()
    app.router.add_get("/wait", answer)
    async with TestServer(app) as server:
        with gate("--ask", str(server.make_url("/wait")), "--fallback", "1h") as process:
            for _ in range(2):
                asked.clear()
                async with asyncio.timeout(90):
                    await asked.wait()
            assert process.poll() is None


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--resolve-all",),
        ("--resolve", "a"),
        ("--file", "a", "b"),
        ("--ask",),
        ("--ask", "u", "--fallback", "soon"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    with gate(*arguments) as process:
        assert process.wait(60) == 2


@pytest.mark.long
async def test_probes_are_answered_while_a_thousand_gates_wait(jobs: JobServiceHarness) -> None:
    """The port of the pods takes more, so they are counted by it alone."""
    pods_port, probed = free_ports(2)
    url = f"http://127.0.0.1:{pods_port}"
    settings = {"PODS_PORT": str(pods_port), "HTTP_PORT": str(probed)}
    await jobs.start(GATE_IMAGE="example/gate:1", GATE_URL=url, **settings)
    key = await jobs.create(make_paddle_job("waiting", worker=make_role(2)))
    await jobs.wait_pods(key, 2)
    uid = (await jobs.get(key))["metadata"]["uid"]
    question = f"{url}/v1/gate/{key.namespace}/{key.name}/worker/0?uid={uid}&epoch=0&ip=10.0.0.1"
    # One address may have 300 connections, and each pod has its own.
    hosts = [f"127.0.0.{number}" for number in range(2, 8)]
    connectors = [aiohttp.TCPConnector(limit=0, local_addr=(host, 0)) for host in hosts]
    async with AsyncExitStack() as sessions:
        gates = [
            await sessions.enter_async_context(aiohttp.ClientSession(connector=connector))
            for connector in connectors
        ]
        probe = await sessions.enter_async_context(aiohttp.ClientSession())
        waiting = [asyncio.create_task(_status(session, question)) for session in gates for _ in range(200)]
        try:
            await eventually(
                lambda: sum(len(connector._acquired) for connector in connectors) == 1200,
                what="all gates wait",
            )
            assert await _status(probe, f"http://127.0.0.1:{probed}/healthz") == 200
            assert not any(task.done() for task in waiting)
            made_up = question.replace(uid, "another")
            assert await _status(probe, made_up) == 202, "nobody waits for a job that does not exist"
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.long
async def test_pods_that_wait_for_names_are_told_of_a_scaling(jobs: JobServiceHarness) -> None:
    """In the Service network, by an annotation that the gate sees as a file."""
    await jobs.start(GATE_IMAGE="example/gate:1")
    key = await jobs.create(make_paddle_job("named", intranet="Service", worker=make_role(2)))
    await jobs.wait_pods(key, 2)
    await jobs.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": 3}}})
    await _are_annotated(
        jobs, key, names.ANNOTATION_WAITS_FOR, "named-worker-0 named-worker-1 named-worker-2", pods=3
    )


@pytest.mark.long
async def test_without_an_address_to_ask_pods_are_released_by_an_annotation(jobs: JobServiceHarness) -> None:
    """Once every address is known."""
    await jobs.start(GATE_IMAGE="example/gate:1")
    key = await jobs.create(make_paddle_job("released", worker=make_role(2)))
    await jobs.wait_pods(key, 2)
    await jobs.set_pods(key, "Pending")
    await _are_annotated(jobs, key, names.ANNOTATION_RELEASED, "true", pods=2)


async def _are_annotated(
    jobs: JobServiceHarness, key: Key, annotation: str, value: str, *, pods: int
) -> None:
    """Return when the job has so many pods, each with this value."""

    async def values() -> list[str]:
        found = [pod["metadata"] for pod in await jobs.objects(PODS)]
        return [m.get("annotations", {}).get(annotation, "") for m in found if m["name"].startswith(key.name)]

    async def are_told() -> bool:
        return await values() == [value] * pods

    await eventually(are_told, within=WITHIN, what=f"{pods} pods of {key} have {annotation}: {value}")


async def _status(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(url) as answer:
        return answer.status
