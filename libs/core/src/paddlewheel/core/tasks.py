"""Cancels tasks reliably, and protects work that must finish from cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_CANCEL_INTERVAL_SECONDS = 0.5
"""Interval between two cancellations of a task that has not ended."""


async def end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel the tasks and wait until they end. Their results and errors are dropped.

    Each task is cancelled repeatedly until it ends: nats-py uses `asyncio.wait_for`, which in Python 3.11
    drops a cancellation that arrives together with the result. Cancellation of the caller is not caught.
    """
    live = {task for task in tasks if task is not None and not task.done()}
    while live:
        for task in live:
            task.cancel()
        _, live = await asyncio.wait(live, timeout=_CANCEL_INTERVAL_SECONDS)


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Wait until the work is done, even if the caller is cancelled. Then raise the cancellation.

    The work must end by itself, and soon, because `end` waits for it.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # Reading the exception keeps asyncio from warning that it was never retrieved.
        _ = task.cancelled() or task.exception()
        raise cancelled
    return task.result()
