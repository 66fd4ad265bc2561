"""The gateway's figures: read over HTTP from every proxy, counted by window, through restarts of proxies."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.wait import eventually
from serving_controller import figures as module
from serving_controller.domain.judge import Counts
from serving_controller.figures import GatewayFigures
from serving_controller.timing import FIGURES_IDLE_GRACE_SECONDS

LAC = Key("team-a", "lac")
NAMES = (
    "httproute-team-a-lac-gw-gateways-main-ep-http-0-5f8a3c-svc-team-a-lac-1-pods-0@kubernetesgateway",
    "httproute-team-a-lac-team-a-example-com-gw-gateways-main-ep-http-0-5f8a3c-svc-team-a-lac-1-1@kubernetesgateway",
    "team-a-lac-1-pods-http-80@kubernetesgateway",
    "team-a-lac-1-pods-80@kubernetesgateway",
    "team-a-lac-1-http-80@kubernetesgateway",
)
"""As releases of Traefik name our own Service, and that of a revision of Knative."""


def lines(service: str, ok: int, failed: int = 0, fast: int = 0) -> str:
    """As Traefik writes them; `fast` of the requests took at most 0.1 s."""
    labels = f'method="GET",protocol="http",service="{service}"'
    total, bucket = "traefik_service_requests_total", "traefik_service_request_duration_seconds_bucket"
    return (
        f"# HELP {total} How many requests\n# TYPE {total} counter\n"
        f'{total}{{code="200",{labels}}} {ok}\n{total}{{code="503",{labels}}} {failed}\n'
        f"# TYPE traefik_service_request_duration_seconds histogram\n"
        f'{bucket}{{code="200",{labels},le="0.1"}} {fast}\n'
        f'{bucket}{{code="200",{labels},le="+Inf"}} {ok}\n'
        'go_goroutines{x="}"} 1e+06\n'
    )


class Proxy:
    """One proxy's endpoint; the test sets what it answers."""

    def __init__(self, host: str = "127.0.0.1", port: int | None = None) -> None:
        self.text = ""
        self.status = 200
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = 0
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self.server = TestServer(app, host=host, port=port)

    async def _answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        await self.answers.wait()
        return web.Response(text=self.text, status=self.status)

    @property
    def url(self) -> str:
        return str(self.server.make_url("/metrics"))


@pytest.fixture
async def proxies() -> AsyncIterator[list[Proxy]]:
    made = [Proxy(), Proxy()]
    for proxy in made:
        await proxy.server.start_server()
    yield made
    for proxy in made:
        await proxy.server.close()


class Reader:
    """Figures of `lac-1`; the proxies are read at every call, when it is known what is asked for."""

    def __init__(self, *proxies: Proxy, endpoint: str = "") -> None:
        self.clock = ManualClock()
        endpoints = [endpoint] if endpoint else [proxy.url for proxy in proxies]
        self.figures = GatewayFigures(endpoints, self.clock)

    async def __call__(self, window: str = "w") -> Counts:
        with suppress(Retry):
            await self.last(window)
        await self.figures.refresh()
        return await self.last(window)

    async def last(self, window: str = "w") -> Counts:
        return (await self.figures.read(LAC, ["lac-1"], window))["lac-1"]


@pytest.mark.parametrize("service", NAMES)
async def test_requests_since_the_window_began(proxies: list[Proxy], service: str) -> None:
    reader = Reader(proxies[0])
    proxies[0].text = lines(service, ok=100, failed=7, fast=90)
    assert await reader() == Counts(0, 0, {0.1: 0, float("inf"): 0})
    proxies[0].text = lines(service, ok=140, failed=9, fast=95)
    assert await reader() == Counts(42, 2, {0.1: 5, float("inf"): 40})
    assert (await reader("next")).requests == 0


async def test_all_proxies_are_summed(proxies: list[Proxy]) -> None:
    reader = Reader(*proxies)
    await reader()
    for proxy in proxies:
        proxy.text = lines(NAMES[0], ok=10)
    # What a proxy counted before it named the revision came within the window.
    assert (await reader()).requests == 20


async def test_a_proxy_that_was_started_anew_counts_from_nothing(proxies: list[Proxy]) -> None:
    reader = Reader(proxies[0])
    for ok in (100, 130, 5, 9):
        proxies[0].text = lines(NAMES[0], ok=ok)
        last = await reader()
    assert last.requests == 30 + 5 + 4


async def test_without_one_proxys_figures_there_are_none(proxies: list[Proxy]) -> None:
    reader = Reader(*proxies)
    proxies[1].status = 500
    with pytest.raises(Retry, match="answers 500"):
        await reader()
    await proxies[1].server.close()
    with pytest.raises(Retry, match="cannot be read"):
        await reader()


async def test_a_proxy_that_does_not_answer_is_asked_once_for_all_services(proxies: list[Proxy]) -> None:
    proxies[0].status = 500
    reader = Reader(proxies[0])
    for name in ("lac", "ocr", "senta"):
        await reader.figures.read(Key("team-a", name), ["lac-1"], "w")
    await reader.figures.refresh()
    for name in ("lac", "ocr", "senta"):
        with pytest.raises(Retry, match="answers 500"):
            await reader.figures.read(Key("team-a", name), ["lac-1"], "w")
    assert proxies[0].asked == 1
    proxies[0].status = 200
    assert await reader() == Counts()


async def test_a_proxy_that_hangs_holds_no_service_up(proxies: list[Proxy]) -> None:
    proxies[0].text = lines(NAMES[0], ok=1)
    reader = Reader(proxies[0])
    await reader()
    proxies[0].text = lines(NAMES[0], ok=11)
    await reader()
    proxies[0].answers.clear()
    background = asyncio.create_task(reader.figures.run())
    await eventually(lambda: proxies[0].asked == 3)
    assert (await reader.last()).requests == 10
    proxies[0].answers.set()
    await end(background)


async def test_the_loop_goes_on_while_an_answer_is_parsed(
    proxies: list[Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_parsing, goes_on = threading.Event(), threading.Event()

    def slow(text: str) -> Iterable[Metric]:
        is_parsing.set()
        assert goes_on.wait(90), "the loop stood still"
        return text_string_to_metric_families(text)

    monkeypatch.setattr(module, "text_string_to_metric_families", slow)
    reader = Reader(proxies[0])
    reading = asyncio.create_task(reader())
    await eventually(is_parsing.is_set)
    goes_on.set()
    assert await reading == Counts()


async def test_only_what_is_asked_for_is_parsed(proxies: list[Proxy]) -> None:
    reader = Reader(proxies[0])
    other = lines("httproute-team-a-ocr-gw-main-ep-http-0-5f-svc-team-a-ocr-1-pods-0@kubernetesgateway", ok=1)
    proxies[0].text = lines(NAMES[0], ok=1) + other.replace("} 1", "} none")
    await reader()
    proxies[0].text = proxies[0].text.replace("} 1\n", "} 4\n")
    assert (await reader()).requests == 3
    proxies[0].text = lines(NAMES[0], ok=1).replace("} 1", "} none")
    with pytest.raises(Retry, match="cannot be read"):
        await reader()


async def test_proxies_are_left_alone_while_nobody_asks(proxies: list[Proxy]) -> None:
    reader = Reader(proxies[0])
    proxies[0].status = 500
    with pytest.raises(Retry, match="answers 500"):
        await reader()
    await reader.clock.advance(FIGURES_IDLE_GRACE_SECONDS)
    await reader.figures.refresh()
    assert proxies[0].asked == 1
    # The trouble of then says nothing about now.
    assert await reader.last() == Counts()


async def test_without_an_address_the_remedy_is_named() -> None:
    with pytest.raises(Retry, match=r"set servingController\.figures"):
        await Reader()()


async def test_a_name_that_is_not_known_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror("unknown")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    with pytest.raises(Retry, match=r"nobody\.invalid"):
        await Reader(endpoint="http://nobody.invalid/metrics")()


async def test_every_address_of_a_name_is_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Proxy()
    await first.server.start_server()
    second = Proxy("127.0.0.2", first.server.port)
    await second.server.start_server()

    async def both(_: str, port: int, **__: object) -> list[object]:
        return [(None, None, None, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
    reader = Reader(endpoint=f"http://gateway:{first.server.port}/metrics")
    for ok in (1, 11):
        first.text, second.text = lines(NAMES[0], ok=ok), lines(NAMES[0], ok=ok)
        found = await reader()
    assert found.requests == 20
    for proxy in (first, second):
        await proxy.server.close()
