"""Telling a person who waits how far a long run has come, on standard error."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from paddlewheel.core.tasks import end

EVERY = 10.0
"""Seconds between lines."""


def note(text: str) -> None:
    """A figure for information, or what begins now."""
    print(text, file=sys.stderr, flush=True)


@asynccontextmanager
async def progress(title: str, so_far: Callable[[], str]) -> AsyncIterator[None]:
    """Say every ten seconds how far the block has come."""
    began = time.monotonic()

    async def tell() -> None:
        while True:
            await asyncio.sleep(EVERY)
            note(f"{title}: {time.monotonic() - began:4.0f} s, {so_far()}")

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        await end(telling)
