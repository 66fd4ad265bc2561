"""Cancels tasks reliably."""

from __future__ import annotations

import asyncio
from typing import Any

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
