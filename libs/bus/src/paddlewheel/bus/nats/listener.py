"""A service's ear on the bus: requests that come in over a connection of its own."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager

from paddlewheel.bus.access import Access
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.consume import PAUSE
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry
from paddlewheel.core.library_logging import LibraryLogger

log = LibraryLogger(__name__)


class Listener(ABC):
    """Receives requests; reconnects for as long as it runs."""

    hears: str
    """What it is about, for log messages."""

    def __init__(self, access: Access, clock: Clock, name: str) -> None:
        self._connection = Connection(access, name)
        self._clock = clock
        self._listens = False

    @abstractmethod
    def receiving(self, client: Client, lost: asyncio.Event) -> AbstractAsyncContextManager[None]:
        """Requests come in while the block runs, which ends when `lost` is set or it is cancelled.

        Raises:
            Retry: they cannot be received now.
        """

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            while True:
                try:
                    await self._serve()
                except Retry as error:
                    log.warning(f"{self.hears} are not received for now", why=str(error))
                await self._clock.sleep(PAUSE)
        finally:
            await self.close()

    async def close(self) -> None:
        """At the end."""
        await self._connection.close()

    async def is_ready(self) -> bool | str:
        """For readiness: requests arrive here."""
        return (self._listens and self._connection.connected) or f"not connected{self._connection.trouble}"

    async def _serve(self) -> None:
        """Until the connection is lost, or this is cancelled. Raises Retry."""
        client, lost = await self._connection.client(), asyncio.Event()
        stop_listening = self._connection.on_lost(lost.set)
        try:
            async with self.receiving(client, lost):
                try:
                    self._listens = True
                    await lost.wait()
                finally:
                    self._listens = False
        finally:
            stop_listening()
