"""Awaiting many calls, few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 16
"""Calls under way at the same time."""


async def gather_bounded(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Results in the order of the calls; all calls are awaited before the first error is raised."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(call: Awaitable[T]) -> T:
        async with slots:
            return await call

    answers = await asyncio.gather(*(one(call) for call in calls), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [a for a in answers if not isinstance(a, BaseException)]
