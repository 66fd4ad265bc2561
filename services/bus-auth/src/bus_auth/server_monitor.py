"""The part of the NATS server's HTTP monitor that every pod may read.

The monitor needs no login and lists all clients with their addresses and subjects, so it listens on loopback.
The container beside the server answers the probes of the kubelet, and reports to the services whether
acknowledged messages are on disk and whether the server has loaded its configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aiohttp import web

from paddlewheel.bus.nats.monitor import CONFIG_LOADED, ask_monitor

_ALIVE, _READY = "healthz?js-enabled-only=true", "healthz?js-server-only=true"
_PUBLIC = ("sync_always", "sync_interval")
"""Fields of the server's state: whether acknowledged messages are on disk."""


def routes(monitor: str, is_loaded: Callable[[], bool]) -> Iterable[web.RouteDef]:
    """`/healthz` and `/readyz` of the server, and `/varz` with the public fields only.

    Args:
        monitor: address of the server's monitor.
        is_loaded: whether the server has loaded its configuration.
    """

    async def healthz(_: web.Request) -> web.Response:
        return await _health(monitor, _ALIVE)

    async def readyz(_: web.Request) -> web.Response:
        return await _health(monitor, _READY)

    async def varz(_: web.Request) -> web.Response:
        config = ((await ask_monitor(monitor) or {}).get("jetstream") or {}).get("config") or {}
        public = {name: config[name] for name in _PUBLIC if name in config}
        return web.json_response({"jetstream": {"config": public}, CONFIG_LOADED: is_loaded()})

    return [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/varz", varz)]


async def _health(monitor: str, path: str) -> web.Response:
    if await ask_monitor(monitor, path) is None:
        return web.Response(status=503, text="the NATS server is not healthy, or does not answer\n")
    return web.Response(text="ok\n")
