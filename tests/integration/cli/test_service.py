"""`paddlewheel service` on a real API server."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from aiohttp import web
from tests.integration.cli.command import Ended, run

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import CONTROLLER_REVISIONS, PADDLE_SERVICES, Object
from paddlewheel.testkit.paddleservices import make_endpoint, make_service

REVISIONS = [
    {"name": "lac-2", "number": 2, "role": "Stable", "traffic": 100, "wasReady": True},
    {"name": "lac-1", "number": 1, "role": "Retired", "wasReady": True},
]
STATUS = {
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
    content = {"image": "example/lac:1", "port": 9292}
    record: Object = {"metadata": {"name": "lac-1", "namespace": namespace}, "revision": 1}
    await cluster.create(CONTROLLER_REVISIONS, {**record, "data": {"content": content}})
    return key


async def service(api_server: str, *arguments: str) -> Ended:
    return await run("service", *arguments, env={"KUBECONFIG": api_server})


async def test_a_life_with_a_service(cluster: ApiCluster, served: Key, api_server: str) -> None:
    listed = await service(api_server, "list", "-A")
    assert listed.code == 0, listed.err
    assert str(served) in listed.out
    assert "lac-2 100 %" in listed.out
    shown = await service(api_server, "show", str(served), "-o", "json")
    assert shown.json["url"] == STATUS["url"]
    kept = await service(api_server, "history", "lac", "-n", served.namespace, "-o", "json")
    assert [revision["number"] for revision in kept.json] == [2, 1]
    back = await service(api_server, "rollback", str(served))
    assert "lac-1 is served again" in back.out
    spec: dict[str, Any] = (await cluster.get(PADDLE_SERVICES, served))["spec"]
    assert spec["default"] == {"containerImage": "example/lac", "tag": "1", "port": 9292}
    nothing = await service(api_server, "promote", str(served))
    assert (nothing.code, "NothingToPromote" in nothing.err) == (1, True)
    unknown = await service(api_server, "show", "absent", "-n", served.namespace)
    assert (unknown.code, "no PaddleService" in unknown.err) == (1, True)


async def test_a_prediction_through_a_gateway_names_the_host_of_the_service(
    served: Key, api_server: str
) -> None:
    asked: list[tuple[str, str, bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.host, request.path, await request.read()))
        return web.json_response({"error": "no such input"}, status=400)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    gateway = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    request = ("--path", "/lac/prediction", "--gateway", gateway, "--data", '{"feed": []}')
    try:
        done = await service(api_server, "predict", str(served), *request)
    finally:
        await runner.cleanup()
    assert (done.code, orjson.loads(done.out)) == (1, {"error": "no such input"})
    assert asked == [("lac.served.example.com", "/lac/prediction", b'{"feed": []}')]


async def test_data_that_is_no_json_is_refused_before_anything_is_asked(api_server: str) -> None:
    done = await service(api_server, "predict", "lac", "--data", "digit.json")
    assert (done.code, "a file is named as @FILE" in done.err) == (1, True)
