"""The HTTP endpoints of every service: /healthz, /readyz and /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

import structlog
from aiohttp import web

from paddlewheel.core.telemetry import metrics_text

Check = Callable[[], Awaitable[bool | str]]
"""True when ready; otherwise False, or a text that says why not."""
CHECK_TIMEOUT = 2.0
"""Seconds a readiness check may take."""

log = structlog.get_logger(__name__)


@asynccontextmanager
async def serve(
    port: int,
    checks: Mapping[str, Check],
    extra_routes: Iterable[web.RouteDef] = (),
    *,
    host: str = "0.0.0.0",
) -> AsyncIterator[int]:
    """Serve while the context is open; yields the port that was bound.

    Args:
        port: 0 selects a free one.
        checks: name -> readiness check; /readyz is 200 when all are True, else 503; its body has each answer.
        extra_routes: further endpoints of the service.
    """
    app = _application(checks, extra_routes)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=2.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _application(checks: Mapping[str, Check], extra_routes: Iterable[web.RouteDef]) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        results = {name: await _is_ready(name, check) for name, check in checks.items()}
        return web.json_response(results, status=200 if _all_true(results) else 503)

    async def metrics(_: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=metrics_text(), headers=headers)

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    app.add_routes(extra_routes)
    return app


def _all_true(results: Mapping[str, bool | str]) -> bool:
    return all(result is True for result in results.values())


async def _is_ready(name: str, check: Check) -> bool | str:
    """A check that raises or hangs counts as failed: the endpoint must always answer."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            return await check()
    except Exception as error:
        log.warning("readiness check failed", check=name, error=repr(error))
        return False
