"""Work that is ended once something else has happened."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from paddlewheel.core.tasks import end

T = TypeVar("T")


class BrokenOffError(Exception):
    """The work was ended before it was done."""


async def unless(stop: Coroutine[Any, Any, None], work: Coroutine[Any, Any, T]) -> T:
    """The result of the work. Raises BrokenOffError when `stop` returns first, after the work has ended."""
    execution, guard = asyncio.create_task(work), asyncio.create_task(stop)
    try:
        await asyncio.wait((execution, guard), return_when=asyncio.FIRST_COMPLETED)
        if execution.done():
            return execution.result()
        guard.result()
        raise BrokenOffError
    finally:
        await end(execution, guard)
