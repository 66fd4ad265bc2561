"""Waiting for a state with a deadline, so that no test sleeps blindly."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

from paddlewheel.core.errors import Retry

T = TypeVar("T")


@overload
async def eventually(
    probe: Callable[[], Awaitable[T | None]], *, within: float = 90.0, every: float = 0.05, what: str = ""
) -> T: ...


@overload
async def eventually(
    probe: Callable[[], T | None], *, within: float = 90.0, every: float = 0.05, what: str = ""
) -> T: ...


async def eventually(
    probe: Callable[[], Any], *, within: float = 90.0, every: float = 0.05, what: str = ""
) -> Any:
    """Return the probe's first truthy answer.

    Args:
        probe: sync or async function; it may raise AssertionError or LookupError while not there yet, and
            Retry, as calls to a server do that is away or stands still for a moment.
        within: seconds until the wait fails.
        what: named in the failure.

    Raises:
        AssertionError: the time is over; carries the last answer or error.
    """
    deadline = time.monotonic() + within
    last: object = None
    while True:
        try:
            answer = probe()
            value = await answer if inspect.isawaitable(answer) else answer
            if value:
                return value
            last = value
        except (AssertionError, LookupError, Retry) as error:
            last = error
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {within} s: {what or probe}; last: {last!r}")
        await asyncio.sleep(every)


async def patiently(call: Callable[[], Awaitable[T]], *, within: float = 90.0) -> T:
    """What services do with Retry: call again, until it is over or `within` seconds are.

    Raises:
        Retry: the last one.
    """
    deadline = time.monotonic() + within
    while True:
        try:
            return await call()
        except Retry:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(0.05)
