"""Cancels tasks reliably, and lets some work finish all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_AGAIN = 0.5


async def end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel the tasks and wait for them; their results and errors are dropped.

    Cancels repeatedly until each task is done: `asyncio.wait_for` of Python 3.11, used by nats-py, swallows a
    cancellation that arrives together with its result. Cancellation of the caller is propagated.
    """
    live = {task for task in tasks if task is not None and not task.done()}
    while live:
        for task in live:
            task.cancel()
        _, live = await asyncio.wait(live, timeout=_AGAIN)


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Wait for the work however often the caller is cancelled, and raise the cancellation afterwards.

    The work must end by itself, and soon: `end` waits for it.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # Or asyncio complains that nobody looked at it.
        _ = task.cancelled() or task.exception()
        raise cancelled
    return task.result()
