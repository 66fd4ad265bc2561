"""What the mounts of all engines have in common: what they say of themselves, and how they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import datetime
from typing import Any, TypeVar

import structlog

from cache_runtime.engines.ports import Ailment, MountListener
from cache_runtime.engines.view import View
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry

log = structlog.get_logger(__name__)

T = TypeVar("T")

PROBE_EVERY = 1.0
SILENT_AFTER = 10.0
"""Seconds without an answer of the file system, after which the mount is lost."""
LEAVES_WITHIN = 900.0
"""Seconds after `leave` in which a process that ends leaves nothing behind. A partition goes within a minute,
its pod within the grace period after that; if it is still there later, the user has kept it after all."""
_FIRST_PAUSE, _LONGEST_PAUSE, _DOUBLINGS = 0.5, 30.0, 6
"""Seconds; the last is a number of times."""


class BaseMount:
    """The part of `Mount` that is about what is known of it; engines mount, and say how that went.

    Args:
        view: where pods find it.
    """

    def __init__(self, view: View, clock: Clock, on_change: MountListener) -> None:
        self._view, self._clock, self._on_change = view, clock, on_change
        self._mounted = asyncio.Event()
        self.changes, self._changed = 0, asyncio.Event()
        self._left_at: float | None = None
        self.message = "not mounted yet"
        self.ailment: Ailment | None = None
        self.changed_at: datetime | None = None

    @property
    def is_ending(self) -> bool:
        """Of an engine whose client ends after the mount is lost."""
        return False

    @property
    def is_mounted(self) -> bool:
        return self._mounted.is_set()

    def leave(self) -> None:
        self._left_at = self._clock.monotonic()

    async def wait_mounted(self) -> None:
        await self._mounted.wait()

    async def wait_changed(self, changes: int) -> None:
        while self.changes == changes:
            await self._changed.wait()

    def _note_change(self) -> None:
        self.changes += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def _set_mounted(self) -> None:
        self.message, self.ailment, self.changed_at = "", None, self._clock.now()
        self._mounted.set()
        self._note_change()
        log.info("mounted", path=str(self._view.path))
        await self._on_change("")

    async def _set_lost(self, reason: str, message: str) -> None:
        was_mounted = self.is_mounted
        self._mounted.clear()
        self.message, self.ailment = message, Ailment(reason, message)
        if was_mounted or self.changed_at is None:
            self.changed_at = self._clock.now()
            self._note_change()
        log.warning("not mounted", path=str(self._view.path), problem=message)
        if was_mounted:
            await self._on_change(message)

    def _is_leaving(self, stop: asyncio.Event) -> bool:
        """Only at the end: of a mount that is lost before, pods that run need what hides it."""
        is_recent = self._left_at is not None and self._clock.monotonic() - self._left_at < LEAVES_WITHIN
        return stop.is_set() and is_recent

    async def _take_away(self) -> None:
        """The view. What the kernel refuses or does not take in time keeps nothing else from its end."""
        try:
            await self._view.remove()
        except (Retry, OSError) as error:
            log.warning("the view is not removed", path=str(self._view.path), problem=str(error))

    def _check_view(self, device: str) -> None:
        """Raises Retry when pods see something else than this device."""
        if not self._view.shows(device):
            raise Retry("MountLost", f"{self._view.path} was unmounted, or something was mounted on it")


async def in_time(work: Awaitable[T], what: str) -> T:
    """The result. Raises Retry when what it asks is silent."""
    try:
        async with asyncio.timeout(SILENT_AFTER):
            return await work
    except TimeoutError as error:
        raise Retry("MountLost", f"{what} did not answer for {SILENT_AFTER:.0f} s") from error


async def wait(stop: asyncio.Event, seconds: float, *others: asyncio.Task[Any]) -> None:
    """Until `stop`, one of the others, or the time."""
    waiter = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({waiter, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()


async def pause(stop: asyncio.Event, failures: int) -> None:
    """Before mounting again, after so many failures in a row: 1, 2 ... 30 seconds."""
    await wait(stop, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(failures, _DOUBLINGS)))


def words(error: Retry | Permanent | OSError) -> tuple[str, str]:
    """Reason and message."""
    if isinstance(error, OSError):
        return "MountFailed", str(error)
    return error.reason, error.message or error.reason
