"""HTTP without a model: `http_floor.py PORT` serves an answer of the usual size, on aiohttp."""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop
from aiohttp import web

_OUTPUT = {"name": "fetch_name_0", "datatype": "FP32", "shape": [1, 10], "data": [0.12345678] * 10}
_ANSWER = json.dumps({"model_name": "digits", "model_version": "1", "outputs": [_OUTPUT]}).encode()


async def infer(request: web.Request) -> web.Response:
    """Read the body, and look at nothing of it."""
    await request.read()
    return web.Response(body=_ANSWER, content_type="application/json")


async def ready(_: web.Request) -> web.Response:
    """At once."""
    return web.Response()


async def main() -> None:
    """Serve until killed."""
    app = web.Application()
    app.add_routes(
        [web.post("/v2/models/digits/infer", infer), web.get("/v2/models/digits/ready", ready)],
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(sys.argv[1])).start()
    await asyncio.Event().wait()


uvloop.run(main())
