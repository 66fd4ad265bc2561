"""`paddlewheel service` on a real API server."""

from __future__ import annotations

import os
import pty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from tests.integration.cli.command import Ended, ended, run, start

from paddlewheel.bus import connect
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import CONTROLLER_REVISIONS, PADDLE_SERVICES, Object
from paddlewheel.testkit.chart_bus import ChartBus, install, running
from paddlewheel.testkit.paddleservices import make_endpoint, make_service
from paddlewheel.testkit.suites import long_after

REVISIONS = [
    {"name": "lac-2", "number": 2, "role": "Stable", "traffic": 100, "wasReady": True, "wasStable": True},
    {"name": "lac-1", "number": 1, "role": "Retired", "wasReady": True, "wasStable": True},
]
STATUS = {
    "observedGeneration": 1,
    "mode": "Kubernetes",
    "url": "http://lac.served.example.com",
    "default": {"name": "lac-2"},
    "reason": "Ready",
    "revisions": REVISIONS,
    "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
}  # fmt: skip


@pytest.fixture
async def served(cluster: ApiCluster, namespace: str) -> Key:
    """A service whose image was changed once, as the controller records it."""
    key = Key(namespace, "lac")
    await cluster.create(PADDLE_SERVICES, make_service("lac", namespace, default=make_endpoint("2")))
    await cluster.patch(PADDLE_SERVICES, key, {"status": STATUS}, subresource="status")
    for number, port in ((1, 9292), (2, 9393)):
        content = {"image": f"example/lac:{number}", "port": port}
        metadata = {"name": f"lac-{number}", "namespace": namespace, "labels": {"PaddleService": "lac"}}
        record: Object = {"metadata": metadata, "revision": number, "data": {"content": content}}
        await cluster.create(CONTROLLER_REVISIONS, record)
    return key


async def service(api_server: str, *arguments: str) -> Ended:
    return await run("service", *arguments, env={"KUBECONFIG": api_server})


async def test_a_life_with_a_service(cluster: ApiCluster, served: Key, api_server: str) -> None:
    listed = await service(api_server, "list", "-A")
    assert listed.code == 0, listed.err
    assert str(served) in listed.out
    assert "lac-2 100 %" in listed.out
    shown = await service(api_server, "show", str(served), "-o", "json")
    assert (shown.json["status"]["url"], "default" in shown.json["spec"]) == (STATUS["url"], True)
    kept = await service(api_server, "history", "lac", "-n", served.namespace, "-o", "json")
    assert [(each["number"], bool(each["changes"])) for each in kept.json] == [(2, True), (1, False)]
    told_apart = await service(api_server, "history", str(served))
    assert ("port 9393" in told_apart.out, "port 9292" in told_apart.out) == (True, False)
    back = await service(api_server, "rollback", str(served))
    assert "lac-1 requested" in back.out
    spec: dict[str, Any] = (await cluster.get(PADDLE_SERVICES, served))["spec"]
    assert spec["default"] == {"containerImage": "example/lac", "tag": "1", "port": 9292}
    early = await service(api_server, "promote", str(served))
    assert (early.code, "NotObserved" in early.err) == (1, True)
    await cluster.patch(PADDLE_SERVICES, served, {"status": {"observedGeneration": 2}}, subresource="status")
    nothing = await service(api_server, "promote", str(served))
    assert (nothing.code, "NothingToPromote" in nothing.err) == (1, True)
    unknown = await service(api_server, "show", "absent", "-n", served.namespace)
    assert (unknown.code, "PaddleService" in unknown.err and "not found" in unknown.err) == (1, True)


@pytest.mark.long
async def test_a_command_that_waits_says_what_was_reached_or_what_keeps_it(
    cluster: ApiCluster, served: Key, api_server: str
) -> None:
    late = await service(api_server, "rollback", str(served), "--wait", "1")
    assert (late.code, "NotYet: after 1 s: lac-1 gets 0 % of the requests" in late.err) == (1, True)
    waiting = await start(
        "service", "rollback", str(served), "--to", "1", "--wait", "60", env={"KUBECONFIG": api_server}
    )
    reached = {"observedGeneration": 9, "default": {"name": "lac-1"},
               "revisions": [{"name": "lac-1", "number": 1, "traffic": 100}]}  # fmt: skip
    await cluster.patch(PADDLE_SERVICES, served, {"status": reached}, subresource="status")
    done = await ended(waiting)
    assert (done.code, "lac-1 gets all requests" in done.out) == (0, True)


@pytest.fixture
def chart_bus(tmp_path: Path) -> Iterator[ChartBus]:
    """A server as the chart configures it: TLS, and rights by role."""
    with running(tmp_path / "bus") as started:
        yield started


@pytest.mark.long
async def test_a_measurement_is_stored_for_an_evaluator_alone(
    cluster: ApiCluster, served: Key, api_server: str, chart_bus: ChartBus
) -> None:
    await install(chart_bus)
    operator = await connect(chart_bus.access("operator"), name="looks them up")
    env = {"KUBECONFIG": api_server, "NATS_TLS_DIR": str(chart_bus.authority), "NATS_TLS_HOSTNAME": "nats"}

    async def measure(role: str, *arguments: str) -> Ended:
        address = {"NATS_URL": chart_bus.url_of(role) if role else chart_bus.url}
        return await run("service", "measure", *arguments, env={**env, **address})

    uid = (await cluster.get(PADDLE_SERVICES, served))["metadata"]["uid"]
    subject = f"pw.evt.measurements.revision.measured.v1.{served.namespace}.{uid}"
    try:
        for role, reason in (("subscriber", "NotPermitted"), ("", "BusUnreachable")):
            refused = await measure(role, str(served), "--revision", "lac-1", "accuracy=0.97")
            assert (refused.code, refused.out) == (1, "")
            assert f"error: {reason}" in refused.err
        assert await operator.history.last(subject) is None
        done = await measure("evaluator", str(served), "--revision", "1", "accuracy=0.97", "-o", "json")
        assert done.code == 0, done.err
        stored = await operator.history.last(subject)
        assert stored is not None
        assert stored.headers["ce-id"] == done.json["id"]
        assert orjson.loads(stored.data)["metrics"] == {"accuracy": 0.97}
    finally:
        await operator.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    long_after(
        1,
        [
            (("{served}", "accuracy=0.97"), "no revision is on trial: choose one with --revision"),
            (("{served}", "--revision", "lac-9", "accuracy=0.97"), "no revision lac-9 is kept"),
            (("{served}", "accuracy=high"), "accuracy: 'high' is not a number"),
            (("{namespace}/lca", "accuracy=0.97"), "PaddleService {namespace}/lca not found"),
        ],
    ),
)
async def test_a_measurement_of_nothing_is_refused_before_the_bus_is_asked(
    served: Key, api_server: str, arguments: tuple[str, ...], said: str
) -> None:
    words = [word.format(served=served, namespace=served.namespace) for word in arguments]
    refused = await service(api_server, "measure", *words)
    assert (refused.code, refused.out) == (1, "")
    assert said.format(namespace=served.namespace) in refused.err


@asynccontextmanager
async def gateway(status: int, text: str) -> AsyncIterator[tuple[str, list[tuple[str, str, bytes]]]]:
    """One that answers so: its URL, and what it was asked."""
    asked: list[tuple[str, str, bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.host, request.path, await request.read()))
        return web.Response(text=text, status=status)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/", asked
    finally:
        await runner.cleanup()


async def test_a_prediction_through_a_gateway_names_the_host_of_the_service(
    served: Key, api_server: str
) -> None:
    request = ("--path", "/lac/prediction", "--data", '{"feed": []}', "--gateway")
    async with gateway(400, '{"error": "no such input"}') as (url, asked):
        done = await service(api_server, "predict", str(served), *request, url)
    assert (done.code, orjson.loads(done.out)) == (1, {"error": "no such input"})
    assert "the service answered HTTP 400 Bad Request" in done.err
    assert asked == [("lac.served.example.com", "/lac/prediction", b'{"feed": []}')]


async def test_an_answer_reaches_a_file_as_it_is_and_a_terminal_without_control_characters(
    served: Key, api_server: str
) -> None:
    request = ("service", "predict", str(served), "--path", "/x", "--data", "{}", "--gateway")
    terminal, stdout = pty.openpty()
    async with gateway(200, "\x1b]0;title\x07二\nbad \x9b2J") as (url, _):
        to_file = await run(*request, url, env={"KUBECONFIG": api_server})
        await ended(await start(*request, url, env={"KUBECONFIG": api_server}, stdout=stdout))
    os.close(stdout)
    assert to_file.out == "\x1b]0;title\x07二\nbad \x9b2J\n"
    assert os.read(terminal, 1000).decode() == "\\x1b]0;title\\x07二\r\nbad \\x9b2J\r\n"
    os.close(terminal)


@pytest.mark.long
async def test_an_empty_answer_is_told_by_its_status(served: Key, api_server: str) -> None:
    async with gateway(502, "") as (url, _):
        done = await service(
            api_server, "predict", str(served), "--path", "/x", "--data", "{}", "--gateway", url
        )
    assert (done.code, done.out) == (1, "")
    assert "the service answered HTTP 502 Bad Gateway" in done.err


async def test_data_that_is_no_json_is_refused_before_anything_is_asked(api_server: str) -> None:
    done = await service(api_server, "predict", "lac", "--data", "digit.json")
    assert (done.code, "write @FILE for a file" in done.err) == (1, True)
