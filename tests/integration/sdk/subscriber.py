"""A subscriber as a process of its own, to be killed: prints every event, and stays with one if told so."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing

import paddlewheel


async def main(url: str, durable: str, stay_with: str) -> None:
    async with aclosing(paddlewheel.events(url=url, job="team-a/*", durable=durable, since="all")) as events:
        async for event in events:
            print(event.id, flush=True)
            if event.id == stay_with:
                await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
