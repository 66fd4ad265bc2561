"""The gateway's own figures, read from the Prometheus endpoints of all its proxies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry
from serving_controller.domain.judge import Counts
from serving_controller.domain.traefik import SERIES, Sample, growth, of_revision, read, total
from serving_controller.timing import (
    FIGURES_IDLE_GRACE_SECONDS,
    FIGURES_INTERVAL_SECONDS,
    FIGURES_TIMEOUT_SECONDS,
)

NO_FIGURES = "NoFigures"
NOT_SET = "no address of the gateway's figures is set: set servingController.figures of the chart"

Wanted = tuple[Key, str]
"""A service and one of its revisions."""
Totals = Mapping[str, Mapping[Wanted, Counts]]
"""What has come since a proxy began, by proxy."""


@dataclass
class _Window:
    """One stretch of time of one service: by revision, what came so far; by proxy and revision, the totals
    last read."""

    name: str
    wanted: tuple[Wanted, ...]
    asked_at: float = 0.0
    grown: dict[Wanted, Counts] = field(default_factory=dict)
    last: dict[tuple[str, Wanted], Counts] = field(default_factory=dict)


class GatewayFigures:
    """Figures over HTTP: `run` reads the proxies, and whoever asks gets the last answer.

    Windows live in this process only: after a restart, or when the service has fallen to another replica, a
    step is measured anew, so that it always rests on as many requests as it asks for.

    Args:
        endpoints: URLs; a host name stands for all its addresses.
    """

    def __init__(self, endpoints: Collection[str], clock: Clock) -> None:
        self._endpoints = tuple(endpoints)
        self._clock = clock
        self._windows: dict[Key, _Window] = {}
        self._trouble: Retry | None = None

    async def read(self, service: Key, revisions: Collection[str], window: str) -> Mapping[str, Counts]:
        wanted = tuple((service, revision) for revision in revisions)
        known = self._windows.get(service)
        if known is None or (known.name, known.wanted) != (window, wanted):
            known = self._windows[service] = _Window(window, wanted)
        known.asked_at = self._clock.monotonic()
        if not self._endpoints:
            raise Retry(NO_FIGURES, NOT_SET)
        if self._trouble:
            raise Retry(self._trouble.reason, self._trouble.message)
        return {revision: known.grown.get((service, revision), Counts()) for _, revision in wanted}

    def forget(self, service: Key) -> None:
        self._windows.pop(service, None)

    async def run(self) -> None:
        """Keep the figures up to date until cancelled: a proxy that hangs holds up nobody else."""
        while True:
            await self.refresh()
            await self._clock.sleep(FIGURES_INTERVAL_SECONDS)

    async def refresh(self) -> None:
        """Read all proxies, unless nobody asks."""
        now = self._clock.monotonic()
        windows = [
            window for window in self._windows.values() if now - window.asked_at < FIGURES_IDLE_GRACE_SECONDS
        ]
        self._trouble = self._trouble if windows else None
        if not windows or not self._endpoints:
            return
        try:
            totals, self._trouble = await self._scrape({w for window in windows for w in window.wanted}), None
        except Retry as error:
            # Figures of the other proxies alone would be wrong.
            self._trouble = error
            return
        for window in windows:
            _take_in(window, totals)

    async def _scrape(self, wanted: Collection[Wanted]) -> Totals:
        urls = [url for endpoint in self._endpoints for url in await _addresses(endpoint)]
        timeout = aiohttp.ClientTimeout(total=FIGURES_TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            texts = await asyncio.gather(*(_fetch(session, url) for url in urls))
        # A proxy of many services answers megabytes.
        return {
            url: await asyncio.to_thread(_count, url, text, wanted)
            for url, text in zip(urls, texts, strict=True)
        }


def _take_in(window: _Window, totals: Totals) -> None:
    """What a proxy counted before it was read first in this window is none of the window's."""
    for wanted in window.wanted:
        parts = [window.grown.get(wanted, Counts())]
        for url, proxy in totals.items():
            parts.append(growth(window.last.get((url, wanted), proxy[wanted]), proxy[wanted]))
            window.last[url, wanted] = proxy[wanted]
        window.grown[wanted] = total(parts)


def _count(url: str, text: str, wanted: Collection[Wanted]) -> dict[Wanted, Counts]:
    """Raises Retry for what is no answer of Traefik."""
    try:
        readings = read(_samples(text, {revision for _, revision in wanted}))
    except (ArithmeticError, LookupError, ValueError) as error:
        raise Retry(NO_FIGURES, f"{url} answers what cannot be read: {error}") from error
    return {(service, revision): of_revision(readings, service, revision) for service, revision in wanted}


def _samples(text: str, revisions: Collection[str]) -> Iterator[Sample]:
    """Of the series that matter, about these revisions: the parser would take long for all."""
    lines = "\n".join(_lines(text, revisions))
    for family in text_string_to_metric_families(f"{lines}\n"):
        for sample in family.samples:
            yield Sample(sample.name, sample.labels, sample.value)


def _lines(text: str, revisions: Collection[str]) -> Iterator[str]:
    is_wanted: dict[str, bool] = {}
    for line in text.splitlines():
        if line.startswith(SERIES):
            backend = line.partition('service="')[2].partition('"')[0]
            if backend not in is_wanted:
                is_wanted[backend] = any(revision in backend for revision in revisions)
            if is_wanted[backend]:
                yield line


async def _addresses(endpoint: str) -> list[str]:
    """The endpoint at each address of its host: behind one name there may be several proxies."""
    parts = urlsplit(endpoint)
    port = parts.port or 80
    try:
        async with asyncio.timeout(FIGURES_TIMEOUT_SECONDS):
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
