"""The port for probes beside a NATS server: all that other pods can read of the server's monitor."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from bus_auth import server_monitor
from paddlewheel.testkit.charts import Manifests, named, render

MONITOR = "http://loopback"
STATE = {"host": "10.1.2.3", "jetstream": {"config": {"sync_always": True, "store_dir": "/data"}}}
ALIVE, READY = "healthz?js-enabled-only=true", "healthz?js-server-only=true"
UP = {ALIVE: {"status": "ok"}, READY: {"status": "ok"}, "varz": STATE}


async def ask(monkeypatch: pytest.MonkeyPatch, path: str, answers: dict[str, Any]) -> web.Response:
    async def ask_monitor(url: str, path: str = "varz") -> Any:
        assert url == MONITOR
        return answers.get(path)

    monkeypatch.setattr(server_monitor, "ask_monitor", ask_monitor)
    [route] = [each for each in server_monitor.routes(MONITOR, lambda: False) if each.path == path]
    answer = await route.handler(make_mocked_request("GET", path))
    assert isinstance(answer, web.Response)
    return answer


@pytest.mark.parametrize(
    ("path", "answers", "status"),
    [
        ("/healthz", UP, 200),
        ("/readyz", UP, 200),
        # JetStream has not recovered its streams yet.
        ("/healthz", {ALIVE: {"status": "ok"}}, 200),
        ("/readyz", {ALIVE: {"status": "ok"}}, 503),
        ("/healthz", {}, 503),
    ],
)
async def test_a_probe_gets_the_health_of_the_server(
    monkeypatch: pytest.MonkeyPatch, path: str, answers: dict[str, Any], status: int
) -> None:
    assert (await ask(monkeypatch, path, answers)).status == status


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (UP, '{"jetstream": {"config": {"sync_always": true}}, "config_loaded": false}'),
        ({"varz": {"jetstream": {}}}, '{"jetstream": {"config": {}}, "config_loaded": false}'),
        ({}, '{"jetstream": {"config": {}}, "config_loaded": false}'),
    ],
)
async def test_services_read_the_sync_interval_and_whether_the_configuration_is_loaded_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], text: str
) -> None:
    assert (await ask(monkeypatch, "/varz", answers)).text == text


@pytest.fixture(scope="module")
def manifests() -> Manifests:
    return render("paddlewheel", "crds.install=false")


def test_the_monitor_of_the_server_listens_on_loopback_and_its_port_is_that_of_the_container_beside_it(
    manifests: Manifests,
) -> None:
    pod = named(manifests, "StatefulSet", "nats")["spec"]["template"]["spec"]
    [beside], [server] = pod["initContainers"], pod["containers"]
    config = named(manifests, "ConfigMap", "nats-config")["data"]["nats.conf"]
    [*_, monitor, port] = beside["args"]

    assert f'http: "{monitor.removeprefix("http://")}"' in config
    assert monitor.startswith("http://127.0.0.1:")
    assert "http_port" not in config
    assert {"name": "monitor", "containerPort": int(port)} in server["ports"]
    probes = (server[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness"))
    assert [(each["path"], each["port"]) for each in probes] == [
        ("/readyz", "monitor"),
        ("/healthz", "monitor"),
        ("/readyz", "monitor"),
    ]
