"""The subscription of the demo to the bus: keeps every fact, and waits for the facts that a stage needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel

from paddlewheel.bus import Access, connect
from paddlewheel.bus.ports import Delivery, Reader, Reading
from paddlewheel.core.errors import Permanent
from paddlewheel.core.tasks import end

M = TypeVar("M", bound=BaseModel)
Listener = Callable[[Delivery], None]


class Facts:
    """Facts received since a time, by event id: a fact that is delivered twice counts once."""

    def __init__(self, bus: Reader, since: datetime, listener: Listener) -> None:
        self._bus = bus
        self._reading = Reading(("pw.evt.>",), since)
        self._received: dict[str, Delivery] = {}
        self._listener = listener
        self._news = asyncio.Condition()

    async def listen(self) -> None:
        """Follow the bus until cancelled."""
        async for delivery in self._bus.read(self._reading):
            await self._take(delivery)

    async def compare(self, announced: set[str], *, within: float) -> tuple[int, int]:
        """Count the facts that were published, and the facts that were received within some seconds.

        Args:
            announced: ids of facts that must have been published, in addition to those in the streams.
        """
        async with aclosing(self._bus.read(replace(self._reading, follow=False))) as stored:
            published = announced | {delivery.event.id async for delivery in stored}
        with suppress(TimeoutError):
            async with asyncio.timeout(within), self._news:
                await self._news.wait_for(lambda: published <= self._received.keys())
        published |= self._received.keys()
        return len(published), len(self._received)

    async def _take(self, delivery: Delivery) -> None:
        if delivery.event.id in self._received:
            return
        async with self._news:
            self._received[delivery.event.id] = delivery
            self._news.notify_all()
        self._listener(delivery)

    def find(self, model: type[M], wanted: Callable[[M], bool]) -> M | None:
        """The newest wanted fact of that type."""
        for delivery in reversed(self._received.values()):
            data = delivery.event.data
            if isinstance(data, model) and wanted(data):
                return data
        return None

    async def expect(
        self, model: type[M], wanted: Callable[[M], bool], *, within: float, unless: Callable[[], str | None]
    ) -> M:
        """Wait for a fact.

        Args:
            within: seconds.
            unless: called at each new fact; it returns the reason why the fact cannot come, or None.

        Raises:
            Permanent: the fact cannot come, or did not come in time.
        """
        try:
            async with asyncio.timeout(within), self._news:
                while True:
                    if found := self.find(model, wanted):
                        return found
                    if why := unless():
                        raise Permanent("DemoFailed", why)
                    await self._news.wait()
        except TimeoutError:
            raise Permanent("FactMissing", f"no {model.__name__} within {within:.0f} s") from None


@asynccontextmanager
async def listening(access: Access, since: datetime, listener: Listener) -> AsyncIterator[Facts]:
    """Yield a `Facts` that follows the bus while the block runs."""
    bus = await connect(access, name="paddlewheel-demo")
    facts = Facts(bus, since, listener)
    task = asyncio.create_task(facts.listen())
    try:
        yield facts
    finally:
        await end(task)
        await bus.close()
