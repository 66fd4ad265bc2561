"""Reading events without handling them: a cursor in each stream, merged into one sequence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from paddlewheel.bus.consume.consumer import PROGRESS_REPORTS_PER_DELIVERY
from paddlewheel.bus.consume.merge import merged
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.cursors import READER_ACK_TIMEOUT_SECONDS, Cursor, CursorContext, DurableCursor
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.ports import Delivery, Reading
from paddlewheel.bus.streams import streams_under
from paddlewheel.core.clock import Clock
from paddlewheel.core.tasks import end


class NatsReader:
    """Reader over one cursor for each stream."""

    def __init__(self, connection: Connection, provision: Provision, clock: Clock) -> None:
        self._context = CursorContext(connection, provision, clock)

    async def read(self, reading: Reading) -> AsyncGenerator[Delivery, None]:
        kind = DurableCursor if reading.durable else Cursor
        streams = streams_under(reading.subjects)
        cursors = [kind(self._context, name, filters, reading) for name, filters in streams.items()]
        marks = asyncio.create_task(_keep_in_progress(cursors, self._context.clock), name="in-progress marks")
        items = merged(cursors, reading.caught_up)
        try:
            async for item in items:
                yield item.delivery
                await item.cursor.done(item)
        finally:
            await items.aclose()
            await end(marks)
            for cursor in cursors:
                await cursor.close()


async def _keep_in_progress(cursors: Sequence[Cursor], clock: Clock) -> None:
    while True:
        await clock.sleep(READER_ACK_TIMEOUT_SECONDS / PROGRESS_REPORTS_PER_DELIVERY)
        for cursor in cursors:
            await cursor.mark()
