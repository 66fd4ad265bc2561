"""Calls that may block for long, each in a thread of its own.

The event loop's shared executor has a handful of threads. Warmups of hours, or a file system that hangs,
would occupy all of them. The probe of the mount, a Secret or a report would wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def in_own_thread(call: Callable[[], T]) -> T:
    """The result of a blocking call, or what it raises.

    A caller that is cancelled does not wait for the thread, and neither does the end of the process: a system
    call on a file system that hangs cannot be interrupted.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(how: Callable[[Any], None], value: object) -> None:
        if not done.done():
            how(value)

    def report(how: Callable[[Any], None], value: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, how, value)

    def work() -> None:
        try:
            result = call()
        except Exception as error:
            report(done.set_exception, error)
        else:
            report(done.set_result, result)

    threading.Thread(target=work, name="blocking-call", daemon=True).start()
    return await done


class Answers:
    """Answers of file systems that may hang. An abandoned call stays in the kernel, so a second call about
    the same thing waits for it: repeated calls would use up all threads."""

    def __init__(self) -> None:
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}

    async def of(self, about: Hashable, call: Callable[[], T]) -> T:
        """As `in_own_thread`, once the call before has ended."""
        while before := self._asked.get(about):
            await asyncio.wait((before,))
        asked = self._asked[about] = asyncio.create_task(in_own_thread(call))
        asked.add_done_callback(lambda _: self._forget(about))
        return await asyncio.shield(asked)

    def _forget(self, about: Hashable) -> None:
        asked = self._asked.pop(about)
        if not asked.cancelled():
            asked.exception()  # else asyncio logs an exception that was never retrieved
