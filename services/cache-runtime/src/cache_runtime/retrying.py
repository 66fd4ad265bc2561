"""Retrying until success, for effects that must not be lost while the bus is unreachable."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import structlog

from cache_runtime.timing import BUS_RETRY_INTERVAL_SECONDS, LONGEST_BUS_RETRY_INTERVAL_SECONDS
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry

log = structlog.get_logger(__name__)

T = TypeVar("T")

Tell = Callable[[Retry | None], Awaitable[None]]
"""Told why a call is repeated, and None when it has succeeded after that."""


_LASTING = (errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENAMETOOLONG, errno.ELOOP)
"""What the kernel says again however often it is asked."""


def as_failure(error: Retry | OSError) -> Retry | Permanent:
    """A file system or a disk that fails is no bug, and may answer later."""
    if isinstance(error, Retry):
        return error
    if error.errno in _LASTING:
        return Permanent(Reason.FILE_SYSTEM_FAILED, described(error))
    return Retry(Reason.FILE_SYSTEM_FAILED, described(error))


def described(error: OSError) -> str:
    """Path, what is wrong with it, and the name of the error: `'a/b': Input/output error (EIO)`."""
    number = error.errno or 0
    text = error.strerror or os.strerror(number) if number else str(error) or type(error).__name__
    name = f" ({errno.errorcode[number]})" if number in errno.errorcode else ""
    path = error.filename
    where = f"{os.fsdecode(path)!r}: " if isinstance(path, (str, bytes)) else ""
    return f"{where}{text}{name}"


def disks_failed(problems: Mapping[str, OSError]) -> Retry:
    """By cache directory."""
    told = (f"cache directory {directory}: {described(error)}" for directory, error in problems.items())
    return Retry(Reason.CACHE_DISK_FAILED, "; ".join(told))


async def persistently(call: Callable[[], Awaitable[T]], clock: Clock, tell: Tell | None = None) -> T:
    """Repeat with backoff while the call raises Retry, or a file system fails and may not later.

    Raises:
        Permanent: the call does, or a file system fails for good.
    """
    pause, refused = BUS_RETRY_INTERVAL_SECONDS, False
    while True:
        try:
            result = await call()
        except (Retry, OSError) as failure:
            error = as_failure(failure)
            if isinstance(error, Permanent):
                raise error from failure
            log.warning("retrying", problem=str(error), after=error.after or pause)
            refused = True
            if tell:
                await tell(error)
            await clock.sleep(error.after or pause)
            pause = min(LONGEST_BUS_RETRY_INTERVAL_SECONDS, pause * 2)
        else:
            if tell and refused:
                await tell(None)
            return result


@asynccontextmanager
async def at_most(seconds: float | None, reason: str, what: str) -> AsyncIterator[None]:
    """Raises Retry with the reason when the block takes longer; None = it may."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():  # a file system says so itself: ETIMEDOUT
            raise
        raise Retry(reason, f"{what} took more than {seconds:.0f} s") from error
