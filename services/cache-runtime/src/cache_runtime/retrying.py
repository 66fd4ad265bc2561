"""Retrying until success, for effects that must not be lost while the bus is unreachable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import structlog

from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry

log = structlog.get_logger(__name__)

T = TypeVar("T")

Tell = Callable[[Retry | None], Awaitable[None]]
"""Told why a call is repeated, and None when it has succeeded after that."""

_FIRST, _CAP = 0.2, 5.0


async def persistently(call: Callable[[], Awaitable[T]], clock: Clock, tell: Tell | None = None) -> T:
    """Repeat with backoff while the call raises Retry; anything else is raised."""
    pause, refused = _FIRST, False
    while True:
        try:
            result = await call()
        except Retry as error:
            log.warning("retrying", problem=str(error), after=error.after or pause)
            refused = True
            if tell:
                await tell(error)
            await clock.sleep(error.after or pause)
            pause = min(_CAP, pause * 2)
        else:
            if tell and refused:
                await tell(None)
            return result


@asynccontextmanager
async def at_most(seconds: float | None, reason: str, what: str) -> AsyncIterator[None]:
    """Raises Retry with the reason when the block takes longer; None = it may."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise Retry(reason, f"{what} took more than {seconds:.0f} s") from error
