"""Doing something until it works: for effects that must not be lost while the bus is away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry

log = structlog.get_logger(__name__)

T = TypeVar("T")

_FIRST, _CAP = 0.2, 5.0


async def persistently(call: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Repeat while it raises Retry, ever more slowly; anything else passes."""
    pause = _FIRST
    while True:
        try:
            return await call()
        except Retry as error:
            log.warning("trying again", problem=str(error), after=error.after or pause)
            await clock.sleep(error.after or pause)
            pause = min(_CAP, pause * 2)
