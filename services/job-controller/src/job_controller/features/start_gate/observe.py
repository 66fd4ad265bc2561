"""Notices how long gates have had nothing to wait for, and looks up where gates without DNS can ask."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from job_controller.core.model import Observed
from job_controller.features.start_gate.rules import needs_address, open_gates
from job_controller.reading import Reader
from job_controller.sightings import Sightings
from job_controller.timing import GATE_URL_INTERVAL_SECONDS, GATE_URL_TIMEOUT_SECONDS
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock


class OpenGates(Reader):
    """Remembers since when each gate could open. After a restart, these times begin again."""

    def __init__(self, clock: Clock) -> None:
        self._since = Sightings(clock)

    def cached(self, seen: Observed) -> Observed:
        at_gates = {pod.uid for pod in open_gates(seen)} if not seen.status.final else set[str]()
        return replace(seen, gates_open_since=self._since.of(seen.job.uid, at_gates))

    def forget(self, key: Key, job_uid: str) -> None:
        self._since.forget(job_uid)


class OwnAddress(Reader):
    """The address of this service without a name, for pods that resolve no names of Services.

    It is looked up again from time to time, because the Service may be made again. While there is no address,
    such pods are not created.
    """

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._found = ""
        self._due_at = 0.0

    async def read(self, seen: Observed) -> Observed:
        if not self._url or not needs_address(seen.job):
            return seen
        if self._clock.monotonic() >= self._due_at:
            self._found = await _resolved(self._url) or self._found
            self._due_at = self._clock.monotonic() + GATE_URL_INTERVAL_SECONDS
        return replace(seen, gate_url=self._found, misses_gate_url=not self._found)


async def _resolved(url: str) -> str:
    """The same URL with the first address of its host, "" when there is none."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(GATE_URL_TIMEOUT_SECONDS):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, ValueError):
        return ""
    address = str(found[0][4][0])
    host = f"[{address}]" if ":" in address else address
    return urlunsplit(parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host))
