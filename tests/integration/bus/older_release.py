"""A consumer of the last release, as a process: it knows only facts of `protos/released`. Prints their names.

Arguments: the bus's address, the durable.
"""

from __future__ import annotations

import asyncio
import sys

from paddlewheel.bus import connect
from paddlewheel.bus.ports import Delivery, Subscription
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.generated import registry
from paddlewheel.testkit import released


async def handle(delivery: Delivery) -> None:
    sys.stdout.write(f"{delivery.event.type.rpartition('.')[2]}\n")
    sys.stdout.flush()


async def main(url: str, durable: str) -> None:
    for lacked in registry.EVENTS.keys() - released.messages().keys():
        del registry.EVENTS[lacked]
    bus = await connect(url, name="older")
    await bus.consume(Subscription(durable, JOBS.name, JOBS.subjects), handle)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
