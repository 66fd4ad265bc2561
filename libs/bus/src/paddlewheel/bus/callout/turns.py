"""Whose request is worked on when: every client host has turns of its own, so that none takes all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from paddlewheel.core.errors import Retry
from paddlewheel.core.library_logging import LibraryLogger

log = LibraryLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """Requests at the same time. Further ones get no answer, and their clients try again.

    Args:
        at_work: of one host, a refusal that is held back included. The others of that host wait.
        waiting: of one host.
        all_at_work: of all hosts.
        all_waiting: of all hosts; a host with nothing at work does not wait.
    """

    at_work: int = 16
    waiting: int = 512
    all_at_work: int = 1024
    all_waiting: int = 8192


@dataclass
class _Host:
    turns: asyncio.Semaphore
    present: int = 0
    told: bool = False


@dataclass
class Turns:
    """One replica's. A host is forgotten when nothing of it is left."""

    limits: Limits
    _hosts: dict[str, _Host] = field(default_factory=dict)
    _at_work: int = 0
    _waiting: int = 0

    @asynccontextmanager
    async def taken(self, name: str) -> AsyncIterator[None]:
        """A turn of the host while the block runs. Raises Retry at once when it has too many requests."""
        host = self._hosts.get(name) or _Host(asyncio.Semaphore(self.limits.at_work))
        if self._is_full(host):
            self._tell(name, host)
            raise Retry("Busy")
        self._hosts[name] = host
        host.present += 1
        try:
            await self._wait(host)
            self._at_work += 1
            try:
                yield
            finally:
                self._at_work -= 1
                host.turns.release()
        finally:
            host.present -= 1
            if not host.present:
                del self._hosts[name]

    def _is_full(self, host: _Host) -> bool:
        if host.present < self.limits.at_work:
            return self._at_work >= self.limits.all_at_work
        most = self.limits.at_work + self.limits.waiting
        return host.present >= most or self._waiting >= self.limits.all_waiting

    async def _wait(self, host: _Host) -> None:
        self._waiting += 1
        try:
            await host.turns.acquire()
        finally:
            self._waiting -= 1

    def _tell(self, name: str, host: _Host) -> None:
        """Once for each flood."""
        if host.present and not host.told:
            host.told = True
            log.warning("a host's clients connect faster than they are checked", host=name)
