"""The health endpoints on a real socket."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from paddlewheel.core import http


async def yes() -> bool:
    return True


async def no() -> bool:
    return False


async def breaks() -> bool:
    raise ConnectionError("bus is gone")


async def hangs() -> bool:
    await asyncio.Event().wait()
    return True


async def test_readiness_names_the_checks_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CHECK_TIMEOUT", 0.05)
    checks = {"a": yes, "b": no, "c": breaks, "d": hangs}
    async with http.serve(0, checks, host="127.0.0.1") as port, aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            assert answer.status == 503
            assert await answer.json() == {"a": True, "b": False, "c": False, "d": False}
        async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.status == 200


async def test_ready_metrics_and_own_routes() -> None:
    async def explain(_: web.Request) -> web.Response:
        return web.Response(text="because")

    routes = [web.get("/explain", explain)]
    service = http.serve(0, {"a": yes}, routes, host="127.0.0.1")
    async with service as port, aiohttp.ClientSession() as session:
        for path, words in (("readyz", '"a": true'), ("metrics", "process_"), ("explain", "because")):
            async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                assert answer.status == 200
                assert words in await answer.text()
