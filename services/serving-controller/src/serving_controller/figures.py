"""The gateway's own figures, read from the Prometheus endpoints of all its proxies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry
from serving_controller.domain.judge import Counts
from serving_controller.domain.traefik import SERIES, Readings, Sample, growth, of_revision, read, total

TIMEOUT = 5.0
"""Seconds for one proxy's answer."""
MAX_AGE = 2.0
"""Seconds for which a reading serves all services."""
NO_FIGURES = "NoFigures"
NOT_SET = "no address of the gateway's figures is set: set servingController.figures of the chart"


@dataclass
class _Window:
    """One stretch of time of one service: by revision, what came so far; by proxy and revision, the totals
    last read."""

    name: str
    grown: dict[str, Counts] = field(default_factory=dict)
    last: dict[tuple[str, str], Counts] = field(default_factory=dict)


class GatewayFigures:
    """Figures over HTTP.

    Windows live in this process only: after a restart, or when the service has fallen to another replica, a
    step is measured anew, so that it always rests on as many requests as it asks for.

    Args:
        endpoints: URLs; a host name stands for all its addresses.
    """

    def __init__(self, endpoints: Collection[str], clock: Clock) -> None:
        self._endpoints = tuple(endpoints)
        self._clock = clock
        self._windows: dict[Key, _Window] = {}
        self._read_at = float("-inf")
        self._readings: dict[str, Readings] = {}
        self._trouble: Retry | None = None
        self._lock = asyncio.Lock()

    async def read(self, service: Key, revisions: Collection[str], window: str) -> Mapping[str, Counts]:
        readings = await self._all()
        known = self._windows.get(service)
        if known is None or known.name != window:
            known = self._windows[service] = _Window(window)
        for revision in revisions:
            _take_in(known, service, revision, readings)
        return dict(known.grown)

    def forget(self, service: Key) -> None:
        self._windows.pop(service, None)

    async def _all(self) -> dict[str, Readings]:
        """By proxy. Raises Retry when one cannot be read: figures of the others alone would be wrong.

        That holds as long as a reading does: otherwise every service would wait for the same proxy in turn.
        """
        async with self._lock:
            if self._clock.monotonic() - self._read_at >= MAX_AGE:
                await self._renew()
            if self._trouble:
                raise Retry(self._trouble.reason, self._trouble.message)
            return self._readings

    async def _renew(self) -> None:
        try:
            self._readings, self._trouble = await self._scrape(), None
        except Retry as error:
            self._trouble = error
        self._read_at = self._clock.monotonic()

    async def _scrape(self) -> dict[str, Readings]:
        if not self._endpoints:
            raise Retry(NO_FIGURES, NOT_SET)
        urls = [url for endpoint in self._endpoints for url in await _addresses(endpoint)]
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            texts = await asyncio.gather(*(_fetch(session, url) for url in urls))
        return {url: read(_samples(text)) for url, text in zip(urls, texts, strict=True)}


def _take_in(window: _Window, service: Key, revision: str, readings: Mapping[str, Readings]) -> None:
    """What a proxy counted before it was read first in this window is none of the window's."""
    parts = [window.grown.get(revision, Counts())]
    for url, proxy in readings.items():
        now = of_revision(proxy, service, revision)
        parts.append(growth(window.last.get((url, revision), now), now))
        window.last[url, revision] = now
    window.grown[revision] = total(parts)


def _samples(text: str) -> Iterable[Sample]:
    """Of the series that matter; the parser would take long for all."""
    lines = "\n".join(line for line in text.splitlines() if line.startswith(SERIES))
    for family in text_string_to_metric_families(f"{lines}\n"):
        for sample in family.samples:
            yield Sample(sample.name, sample.labels, sample.value)


async def _addresses(endpoint: str) -> list[str]:
    """The endpoint at each address of its host: behind one name there may be several proxies."""
    parts = urlsplit(endpoint)
    port = parts.port or 80
    try:
        async with asyncio.timeout(TIMEOUT):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        raise Retry(NO_FIGURES, f"the name {parts.hostname} of the gateway's figures is not known") from error
    hosts = sorted({str(address[4][0]) for address in found})
    bracketed = [f"[{host}]" if ":" in host else host for host in hosts]
    return [urlunsplit((parts.scheme, f"{host}:{port}", parts.path, parts.query, "")) for host in bracketed]


async def _fetch(session: aiohttp.ClientSession, url: str) -> str:
    try:
        async with session.get(url) as answer:
            if answer.status != 200:
                raise Retry(NO_FIGURES, f"{url} answers {answer.status}")
            return await answer.text()
    except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError) as error:
        raise Retry(NO_FIGURES, f"{url} cannot be read: {type(error).__name__}") from error
