"""A subscriber as another team would write it, as a process: the effect, once per fact, in a database.

`python -m tests.chaos.subscriber` with CHAOS_NATS_URL and CHAOS_EFFECTS (path of the database).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from pathlib import Path

from paddlewheel import bus as bus_library
from paddlewheel.bus import streams
from paddlewheel.bus.ports import Delivery, Subscription
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.run import run_service

SUBSCRIPTIONS = (
    Subscription("chaos-jobs", streams.JOBS.name, (event_filter("jobs"),)),
    Subscription("chaos-datasets", streams.DATASETS.name, (event_filter("datasets"),)),
)
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS effects (id TEXT);
    CREATE INDEX IF NOT EXISTS by_id ON effects (id);
    CREATE TABLE IF NOT EXISTS deliveries (id TEXT);
"""


class Effects:
    """One row per effect, another per delivery; both written before the message is acknowledged."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.executescript(_SCHEMA)

    async def handle(self, delivery: Delivery) -> None:
        """Do the effect unless it is done already, in one transaction."""
        fact = delivery.event.id
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO deliveries VALUES (?)", (fact,))
        if self._connection.execute("SELECT 1 FROM effects WHERE id = ?", (fact,)).fetchone() is None:
            self._connection.execute("INSERT INTO effects VALUES (?)", (fact,))
        self._connection.execute("COMMIT")


def read(path: Path, table: str) -> list[str]:
    """Ids of all effects, or of all deliveries."""
    with sqlite3.connect(path) as connection:
        return [str(row[0]) for row in connection.execute(f"SELECT id FROM {table}")]


async def main(stop: asyncio.Event) -> None:
    """Consume until stopped."""
    bus = await bus_library.connect(os.environ["CHAOS_NATS_URL"], name="chaos-subscriber")
    effects = Effects(Path(os.environ["CHAOS_EFFECTS"]))
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(bus.consume(s, effects.handle)) for s in SUBSCRIPTIONS]
            await stop.wait()
            for task in tasks:
                task.cancel()
    finally:
        await bus.close()


if __name__ == "__main__":
    sys.exit(run_service(main))
