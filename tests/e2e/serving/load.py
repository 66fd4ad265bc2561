"""Steady requests to a service through the gateway, and what came of them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

TIMEOUT = 15.0
"""Seconds for one answer."""
MOST_MISSES = 50
"""Misses that are described one by one."""


@dataclass
class Answers:
    """What came of the requests so far.

    Args:
        by_text: answers by the text of the version that gave them.
        failed: answers other than 2xx, by the text of the version that gave them.
        misses: answers other than 2xx and broken connections: seconds since the start, status or error.
    """

    by_text: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    misses: list[tuple[float, str]] = field(default_factory=list)
    missed: int = 0
    began: float = field(default_factory=time.monotonic)
    first: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Requests that ended, well or not."""
        return sum(self.by_text.values()) + self.missed - sum(self.failed.values())

    def share(self, text: str) -> float:
        """Of the answers, 0 to 1."""
        return self.by_text[text] / max(1, sum(self.by_text.values()))

    def lasted(self, text: str) -> float:
        """Seconds from the first to the last answer of a version; 0 when it gave none."""
        return self.last.get(text, 0.0) - self.first.get(text, 0.0)

    def answered(self, text: str, status: int) -> None:
        now = time.monotonic() - self.began
        self.by_text[text] += 1
        self.first.setdefault(text, now)
        self.last[text] = now
        if not 200 <= status < 300:
            self.failed[text] += 1
            self.missing(str(status))

    def missing(self, what: str) -> None:
        self.missed += 1
        if len(self.misses) < MOST_MISSES:
            self.misses.append((round(time.monotonic() - self.began, 2), what))


@asynccontextmanager
async def load(
    address: str, name: str, *, kept: int = 4, new: int = 2, path: str = "/?ms=20"
) -> AsyncIterator[Answers]:
    """Ask again and again until the block ends.

    Each asker waits for its answer before it asks again, so the service's own time bounds the load.
    Requests are POSTs, which the client does not repeat by itself when a connection breaks.

    Args:
        address: of the gateway.
        name: host name of the service.
        kept: askers that keep their connections.
        new: askers that open one for each request.
    """
    answers, done = Answers(), asyncio.Event()
    askers = [
        _ask(answers, done, f"http://{address}{path}", name, close=n >= kept) for n in range(kept + new)
    ]
    async with asyncio.TaskGroup() as group:
        for asker in askers:
            group.create_task(asker)
        try:
            yield answers
        finally:
            done.set()


async def _ask(answers: Answers, done: asyncio.Event, url: str, name: str, *, close: bool) -> None:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    connector = aiohttp.TCPConnector(force_close=close)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        while not done.is_set():
            try:
                async with session.post(url, headers={"Host": name}) as answer:
                    answers.answered((await answer.text()).strip(), answer.status)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                answers.missing(f"{type(error).__name__}: {error}")
