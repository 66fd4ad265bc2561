"""The client against servers that answer late, by halves or not at all; real pages, and big objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import PaddlewheelError, Retry
from paddlewheel.kube import api, connect
from paddlewheel.kube.api import MAX_CALLS, REQUESTS, ApiCluster
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import CONFIG_MAPS, LEASES, PODS, Object
from paddlewheel.testkit.wait import eventually

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
KEY = Key("team", "a")


@asynccontextmanager
async def served(
    answer: Answer, renew: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[ApiCluster]:
    """A client of a plain HTTP server that answers every request with `answer`."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    settings = Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        async with ApiCluster(ApiClient(configuration=settings), renew=renew, page_size=2) as cluster:
            yield cluster
    finally:
        await runner.cleanup()


def status(code: int, reason: str, **headers: str) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": reason}
    return web.json_response(body, status=code, headers=headers)


def page(names: str, token: str = "") -> web.Response:
    items = [{"metadata": {"name": name, "namespace": "team", "resourceVersion": "1"}} for name in names]
    return web.json_response({"metadata": {"resourceVersion": "9", "continue": token}, "items": items})


async def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return status(500, "Never")

    monkeypatch.setattr(api, "CALL_TIMEOUT_SECONDS", 0.2)
    async with served(hang) as cluster:
        with pytest.raises(Retry, match="ApiServerTimeout"):
            await cluster.get(PODS, KEY)


async def test_of_a_log_only_the_last_bytes_are_kept() -> None:
    async def log(request: web.Request) -> web.StreamResponse:
        assert request.query["tailLines"] == "200"
        answer = web.StreamResponse()
        await answer.prepare(request)
        for number in range(200):
            await answer.write(b"x" * 16_000 + b" step %d\n" % number)
        return answer

    async with served(log) as cluster:
        text = await cluster.read_log(KEY, container="main", lines=200, limit_bytes=100)
    assert text == "x" * 90 + " step 199\n"


async def test_a_log_cut_in_half_is_a_retry() -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(b"step 1")
        assert request.transport
        request.transport.abort()
        return answer

    async with served(cut) as cluster:
        with pytest.raises(Retry, match="ApiServerUnreachable"):
            await cluster.read_log(KEY, container="main", lines=200, limit_bytes=100)


async def cut_short(request: web.Request, code: int) -> web.StreamResponse:
    answer = web.StreamResponse(status=code, headers={"Content-Length": "1000"})
    await answer.prepare(request)
    await answer.write(b'{"metadata":')
    assert request.transport
    request.transport.abort()
    return answer


async def test_an_answer_cut_in_half_is_a_retry() -> None:
    async with served(partial(cut_short, code=200)) as cluster:
        with pytest.raises(Retry, match="ApiServerUnreachable"):
            await cluster.get(PODS, KEY)


async def test_a_refusal_of_a_watch_cut_in_half_is_a_retry() -> None:
    async with served(partial(cut_short, code=503)) as cluster:
        with pytest.raises(Retry, match="ApiServerUnreachable"):
            await cluster.open_stream(PODS, "team", {})


async def test_a_refusal_of_a_watch_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stall(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(status=503, headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await asyncio.Event().wait()
        return answer

    monkeypatch.setattr(api, "CALL_TIMEOUT_SECONDS", 0.2)
    async with served(stall) as cluster:
        with pytest.raises(Retry, match="ApiServerTimeout"):
            await cluster.open_stream(PODS, "team", {})


async def test_no_more_than_the_limit_of_calls_is_in_flight() -> None:
    now, most, gate = 0, 0, asyncio.Event()

    async def count(request: web.Request) -> web.Response:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await gate.wait()
        now -= 1
        return web.json_response({"metadata": {"name": "a"}})

    async with served(count) as cluster, asyncio.TaskGroup() as group:
        for _ in range(MAX_CALLS * 2):
            group.create_task(cluster.get(PODS, KEY))
        await eventually(lambda: now == MAX_CALLS)
        gate.set()
    assert most == MAX_CALLS


async def test_leases_are_renewed_while_other_calls_wait() -> None:
    """A server that is slow to create pods must not cost a replica its share."""
    gate, waiting = asyncio.Event(), 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal waiting
        if "leases" not in request.path:
            waiting += 1
            await gate.wait()
        return web.json_response({"metadata": {"name": "a"}})

    async with served(answer) as cluster, asyncio.TaskGroup() as group:
        for _ in range(MAX_CALLS * 2):
            group.create_task(cluster.get(PODS, KEY))
        await eventually(lambda: waiting == MAX_CALLS)
        await asyncio.wait_for(cluster.patch(LEASES, KEY, {}), 90)
        gate.set()


async def test_a_progress_bar_larger_than_the_read_buffer_is_read_by_lines() -> None:
    step, steps = b"training: #####\r", 400_000

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=step * steps)

    async with served(answer) as cluster:
        read = [line async for line in cluster.stream_log(KEY, {})]
    assert (len(read), set(read)) == (steps, {step})


async def test_logs_of_many_pods_leave_connections_for_calls(tmp_path: Path) -> None:
    """The client as `connect` sets it up."""
    logs, reading, ended = 300, 0, asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal reading
        if not request.path.endswith("/log"):
            return web.json_response({"metadata": {"name": "a"}})
        stream = web.StreamResponse()
        await stream.prepare(request)
        reading += 1
        await ended.wait()
        return stream

    async def read(cluster: ApiCluster) -> None:
        async for _ in cluster.stream_log(KEY, {"follow": "true"}):
            pass

    async with served(answer) as plain:
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(kubeconfig_of(plain._client.configuration.host))
        async with await connect(str(kubeconfig)) as cluster, asyncio.TaskGroup() as group:
            for _ in range(logs):
                group.create_task(read(cluster))
            await eventually(lambda: reading == logs)
            await asyncio.wait_for(cluster.get(PODS, KEY), 90)
            ended.set()


def kubeconfig_of(server: str) -> str:
    return json.dumps(
        {
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "a", "user": {}}],
            "current-context": "a",
        }
    )


async def test_an_answer_that_is_not_json_is_a_retry() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="<html>", content_type="text/html")

    async with served(answer) as cluster:
        with pytest.raises(Retry, match="ApiServerUnreachable"):
            await cluster.get(PODS, KEY)


async def test_a_page_token_that_expired_starts_the_list_again() -> None:
    answers = [page("ab", "t1"), status(410, "Expired"), page("ab", "t2"), page("c")]
    asked: list[str] = []

    async def script(request: web.Request) -> web.Response:
        asked.append(request.query.get("continue", ""))
        return answers.pop(0)

    async with served(script) as cluster:
        listed = await cluster.list(PODS, "team")
    assert [key_of(pod).name for pod in listed] == ["a", "b", "c"]
    assert asked == ["", "t1", "", "t2"]
    assert {(pod["apiVersion"], pod["kind"]) for pod in listed} == {("v1", "Pod")}


async def test_refused_credentials_are_renewed_and_the_call_is_a_retry() -> None:
    renewed: list[bool] = []

    async def refuse(request: web.Request) -> web.Response:
        return status(401, "Unauthorized")

    async def renew() -> None:
        renewed.append(True)

    async with served(refuse, renew) as cluster:
        with pytest.raises(Retry, match="Unauthorized"):
            await cluster.get(PODS, KEY)
    assert renewed == [True]


async def test_a_busy_server_says_when_to_come_again() -> None:
    async def busy(request: web.Request) -> web.Response:
        return status(429, "TooManyRequests", **{"Retry-After": "3"})

    async with served(busy) as cluster:
        with pytest.raises(Retry) as caught:
            await cluster.create(PODS, {"metadata": {"name": "a", "namespace": "team"}})
    assert caught.value.after == 3
    assert not cluster.writes


async def test_the_request_metric_is_emitted_with_closed_labels() -> None:
    async def one(request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": "a"}})

    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("test")
    async with served(one) as plain:
        await ApiCluster(plain._client, meter=meter).get(PODS, KEY)
    data = reader.get_metrics_data()
    assert data
    [metric] = data.resource_metrics[0].scope_metrics[0].metrics
    assert metric.name == REQUESTS
    [point] = metric.data.data_points
    assert dict(point.attributes or {}) == {"verb": "get", "resource": "pods", "status": "200"}


def config(namespace: str, name: str, text: str = "") -> Object:
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": {"own": "y"}},
        "data": {"text": text},
    }


async def test_real_pages_hold_every_object_once(cluster: ApiCluster, namespace: str) -> None:
    names = [f"c{i:02}" for i in range(11)]
    await asyncio.gather(*(cluster.create(CONFIG_MAPS, config(namespace, name)) for name in names))
    paged = ApiCluster(cluster._client, page_size=3)
    listed = await paged.list(CONFIG_MAPS, namespace, label_selector="own=y")
    assert [key_of(obj).name for obj in listed] == names


async def test_an_object_near_the_size_limit_comes_through_a_watch(
    cluster: ApiCluster, namespace: str
) -> None:
    informer = Informer(cluster, CONFIG_MAPS, namespace, clock=SystemClock(), label_selector="own=y")
    task = asyncio.create_task(informer.run())
    try:
        await asyncio.wait_for(informer.wait_synced(), 90)
        # The server writes "<" as six bytes: the line on the wire is about 5 MB.
        await cluster.create(CONFIG_MAPS, config(namespace, "big", "<" * 900_000))
        await eventually(lambda: informer.get(Key(namespace, "big")))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_stream_that_is_refused_gets_new_credentials_too() -> None:
    renewed = 0

    async def renew() -> None:
        nonlocal renewed
        renewed += 1

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b"line\n") if renewed else status(401, "Unauthorized")

    async with served(answer, renew) as cluster:
        with pytest.raises(PaddlewheelError, match="Unauthorized"):
            await cluster.read_log(KEY, container="main", lines=1, limit_bytes=100)
        assert await cluster.read_log(KEY, container="main", lines=1, limit_bytes=100) == "line\n"
    assert renewed == 1
