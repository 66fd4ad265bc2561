"""Limits for each client host, so that a flood of connections from one host keeps no other host out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from paddlewheel.core.errors import Retry


@dataclass(frozen=True)
class Limits:
    """Requests at the same time. A request beyond `waiting` gets no answer, and its client tries again.

    Args:
        of_host: requests of one host that are processed.
        waiting: further requests of the same host, which wait for one of these to end.
        of_all: requests of all hosts that call the API server. The others wait in a queue, first in, first
            out, in which each host has at most `of_host` requests.
    """

    of_host: int = 16
    waiting: int = 512
    of_all: int = 32


class Hosts:
    """The requests of one replica. A host without requests takes no memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._present: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._places = asyncio.Semaphore(limits.of_all)

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """One of the `of_host` turns of the host. Raises Retry when too many of its requests wait."""
        if self._present[host] >= self._limits.of_host + self._limits.waiting:
            raise Retry("Busy", f"{host} sends too many requests at once")
        turns = self._turns.setdefault(host, asyncio.Semaphore(self._limits.of_host))
        self._present[host] += 1
        try:
            async with turns:
                yield
        finally:
            self._present[host] -= 1
            if not self._present[host]:
                del self._present[host], self._turns[host]

    def place(self) -> AbstractAsyncContextManager[None]:
        """One of the places at the API server."""
        return self._places
