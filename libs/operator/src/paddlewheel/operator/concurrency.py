"""Awaits many calls, with a limit on how many run at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")

MAX_CONCURRENT_CALLS = 16
"""Maximum number of calls that run at the same time."""


async def gather_bounded(calls: Iterable[Awaitable[T]]) -> list[T]:
    """The results in the order of the calls. The first error is raised after all calls have ended."""
    slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

    async def one(call: Awaitable[T]) -> T:
        async with slots:
            return await call

    answers = await asyncio.gather(*(one(call) for call in calls), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [a for a in answers if not isinstance(a, BaseException)]
