"""The requests of the demo while a bad version is on trial."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from paddlewheel.cli.demo.canary import asking
from paddlewheel.testkit.wait import eventually


@pytest.mark.parametrize(("status", "outcome"), [(200, True), (500, False)])
async def test_requests_are_counted_by_how_they_were_answered(status: int, outcome: bool) -> None:
    received = set()

    async def answer(request: web.Request) -> web.Response:
        received.add((request.headers["Host"], await request.text()))
        return web.Response(status=status)

    app = web.Application()
    app.router.add_post("/infer", answer)
    server = TestServer(app)
    await server.start_server()
    async with asking(str(server.make_url("/infer")), "digits.example.com", "{}") as asked:
        await eventually(lambda: asked[outcome] >= 3)
    await server.close()
    assert asked[not outcome] == 0
    assert received == {("digits.example.com", "{}")}


async def test_a_gateway_that_is_away_is_a_failed_request() -> None:
    async with asking("http://127.0.0.1:9/infer", "digits.example.com", "{}") as asked:
        await eventually(lambda: asked[False] >= 2)
    assert asked[True] == 0
