"""A consumer of an older release, as a process: its contracts lack a fact. Prints the names of facts.

Arguments: the bus's address, the durable, the type that it lacks.
"""

from __future__ import annotations

import asyncio
import sys

from paddlewheel.bus import connect
from paddlewheel.bus.ports import Delivery, Subscription
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.generated import registry


async def handle(delivery: Delivery) -> None:
    sys.stdout.write(f"{delivery.event.type.rpartition('.')[2]}\n")
    sys.stdout.flush()


async def main(url: str, durable: str, lacked: str) -> None:
    del registry.EVENTS[lacked]
    bus = await connect(url, name="older")
    await bus.consume(Subscription(durable, JOBS.name, JOBS.subjects), handle)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
