"""The program before which pods wait, as it is built for the cluster; no name is looked up on the network."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.integration.job_controller.conftest import JobServiceHarness

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
    with subprocess.Popen(["gate", *arguments], executable=program, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def answering(answer: Callable[[], web.Response]) -> AsyncIterator[str]:
    """The URL of a server that answers this."""

    async def handle(_: web.Request) -> web.Response:
        return answer()

    app = web.Application()
    app.router.add_get("/gate", handle)
    async with TestServer(app) as server:
        yield str(server.make_url("/gate"))


class Answers:
    """Positive answers with these names, and how many were given."""

    def __init__(self, names: str) -> None:
        self.names = names
        self.given = 0

    def __call__(self) -> web.Response:
        self.given += 1
        return web.Response(text=self.names)


async def test_the_gate_passes_when_the_names_in_the_answer_resolve() -> None:
    """Names that are no longer wanted are not waited for."""
    answers = Answers(f"{KNOWN}\n{NEVER}")
    async with answering(answers) as url:
        with gate("--ask", url, "--fallback", "1ms", "--resolve", "") as process:
            await eventually(lambda: answers.given >= 2, within=WITHIN, what="the gate asks again")
            assert process.poll() is None, "a name is missing, and there was an answer"
            answers.names = KNOWN
            await eventually(lambda: process.poll() == 0, within=WITHIN, what="the gate passes")


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


@pytest.mark.parametrize(
    ("endpoints", "reason"),
    [(f"{KNOWN}:1,[::1]:2", b""), (f"{KNOWN}:1,{NEVER}:2", f"; the name {NEVER} does not resolve".encode())],
)
async def test_a_gate_falls_back_when_its_endpoints_resolve_or_have_not_resolved_for_long(
    endpoints: str, reason: bytes
) -> None:
    async with answering(lambda: web.Response(status=404)) as url:
        with gate("--ask", url, "--fallback", "1ms", "--resolve", endpoints) as process:
            _, log = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 0
    assert log.endswith(b"no answer for 1ms: 404 Not Found" + reason + b"\n") or b"termination-log" in log
    assert reason in log


async def test_a_gate_that_is_answered_does_not_fall_back() -> None:
    asked = asyncio.Event()

    def wait() -> web.Response:
        asked.set()
        return web.Response(status=202)

    async with answering(wait) as url:
        with gate("--ask", url, "--fallback", "2s") as process:
            # Each answer begins the time again: five of them take twice as long.
            for _ in range(5):
                asked.clear()
                async with asyncio.timeout(90):
                    await asked.wait()
            assert process.poll() is None


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--resolve", "a"),
        ("--file", "a"),
        ("--ask",),
        ("--ask", "u", "v"),
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
async def test_a_pod_learns_over_http_the_names_of_its_role(jobs: JobServiceHarness) -> None:
    """A scaling changes them."""
    pods_port, probed = free_ports(2)
    url = f"http://127.0.0.1:{pods_port}"
    settings = {"PODS_PORT": str(pods_port), "HTTP_PORT": str(probed)}
    await jobs.start(GATE_IMAGE="example/gate:1", GATE_URL=url, **settings)
    key = await jobs.create(make_paddle_job("named", intranet="Service", worker=make_role(2)))
    await jobs.wait_pods(key, 2)
    pod = await jobs.get(Key(key.namespace, "named-worker-0"), PODS)
    question = pod["spec"]["initContainers"][-1]["command"][2].replace("$(POD_IP)", "10.0.0.1")

    async def names() -> list[str]:
        async with aiohttp.ClientSession() as session, session.get(question) as answer:
            return (await answer.text()).split()

    await eventually(_equals(names, ["named-worker-0", "named-worker-1"]), within=WITHIN)
    await jobs.cluster.patch(PADDLE_JOBS, key, {"spec": {"worker": {"replicas": 1}}})
    await eventually(_equals(names, ["named-worker-0"]), within=WITHIN)


def _equals(read: Callable[[], Awaitable[list[str]]], wanted: list[str]) -> Callable[[], Awaitable[bool]]:
    async def is_equal() -> bool:
        return await read() == wanted

    return is_equal


async def _status(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(url) as answer:
        return answer.status
