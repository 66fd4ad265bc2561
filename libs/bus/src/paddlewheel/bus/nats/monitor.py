"""The state of a server, from its HTTP monitor."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from http.client import HTTPException
from typing import Any

from paddlewheel.bus.admin.durability import ServerFacts

CONFIG_LOADED = "config_loaded"
"""The field by which the container beside a server of the chart reports on the server's configuration."""
_ANSWER_TIMEOUT_SECONDS = 2.0


async def ask_monitors(urls: str) -> tuple[ServerFacts, ...]:
    """The reports of all monitors, which are joined by commas in `urls`; "" = no monitor. Never fails."""
    found = (url.strip().rstrip("/") for url in urls.split(","))
    return tuple(await asyncio.gather(*(_ask(url) for url in found if url)))


async def ask_monitor(url: str, path: str = "varz") -> dict[str, Any] | None:
    """The JSON object at a path of a server's monitor; None without a valid answer. Never fails."""
    try:
        # The name may be that of a missing pod, and the resolver has no time-out.
        async with asyncio.timeout(_ANSWER_TIMEOUT_SECONDS + 0.5):
            reply = await asyncio.to_thread(_get, f"{url}/{path}")
    except (OSError, ValueError, HTTPException):
        return None
    return reply if isinstance(reply, dict) else None


async def _ask(url: str) -> ServerFacts:
    reply = await ask_monitor(url)
    jetstream = reply.get("jetstream") if reply else None
    loaded = reply.get(CONFIG_LOADED) if reply else None
    config = jetstream.get("config") if isinstance(jetstream, dict) else None
    if not isinstance(config, dict) or not config:
        # The server starts: its monitor answers before JetStream is up.
        return ServerFacts(url, None, config_loaded=loaded)
    # The server leaves the field out when it is false.
    return ServerFacts(url, bool(config.get("sync_always")), config.get("sync_interval", 0) / 1e9, loaded)


def _get(url: str) -> Any:
    # The address is the operator's own setting.
    with urllib.request.urlopen(url, timeout=_ANSWER_TIMEOUT_SECONDS) as answer:  # noqa: S310
        return json.load(answer)
