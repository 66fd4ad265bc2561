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
        probe: sync or async function. Until the condition holds, it may raise AssertionError or LookupError,
            or Retry if a server does not answer at present.
        within: seconds until the wait fails.
        what: the condition, for the error message.

    Raises:
        AssertionError: the time is over. The message has the last answer or error.
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
    """Call again after Retry, as services do, for at most `within` seconds.

    Raises:
        Retry: the last error, when the time is over.
    """
    deadline = time.monotonic() + within
    while True:
        try:
            return await call()
        except Retry:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(0.05)
