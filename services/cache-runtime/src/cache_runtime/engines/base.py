"""State and waiting that the mounts of all engines share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, TypeVar

import structlog

from cache_runtime.engines.ports import Ailment, MountListener
from cache_runtime.engines.view import View
from cache_runtime.threads import in_own_thread
from cache_runtime.timing import (
    FIRST_MOUNT_REPORT_INTERVAL_SECONDS,
    LONGEST_MOUNT_RETRY_INTERVAL_SECONDS,
    LOST_MOUNT_TIMEOUT_SECONDS,
    MOUNT_PROBE_STEP_INTERVAL_SECONDS,
    MOUNT_RETRY_INTERVAL_SECONDS,
    PARTITION_LEAVE_TIMEOUT_SECONDS,
    SLOW_MOUNT_GRACE_SECONDS,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end

log = structlog.get_logger(__name__)

T = TypeVar("T")

_DOUBLINGS = 6


class BaseMount:
    """The state of a mount. Engines subclass it, mount, and record the result.

    Args:
        view: where pods find the data.
    """

    def __init__(self, view: View, clock: Clock, on_change: MountListener) -> None:
        self._view, self._clock, self._on_change = view, clock, on_change
        self._mounted = asyncio.Event()
        self.changes, self._changed = 0, asyncio.Event()
        self._left_at: float | None = None
        self.message = "not mounted yet"
        self._step = ""
        """What a mount in progress waits for, for the message when it takes long."""
        self._ailment: Ailment | None = None
        self._silence: Ailment | None = None
        self._heard = asyncio.Event()
        """Set when the file system stops answering, or answers again."""
        self.changed_at: datetime | None = None

    @property
    def is_ending(self) -> bool:
        """Engines whose client ends later than the mount override it."""
        return False

    @property
    def is_mounted(self) -> bool:
        return self._mounted.is_set()

    @property
    def ailment(self) -> Ailment | None:
        return self._silence or self._ailment

    @property
    def is_silent(self) -> bool:
        return self._silence is not None

    def leave(self) -> None:
        self._left_at = self._clock.monotonic()

    async def wait_mounted(self) -> None:
        await self._mounted.wait()

    async def wait_changed(self, changes: int) -> None:
        while self.changes == changes:
            await self._changed.wait()

    async def wait_silent(self, *, is_silent: bool) -> None:
        while self.is_silent != is_silent:
            await self._heard.wait()

    def _note_change(self) -> None:
        self.changes += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def _set_mounted(self) -> None:
        self.message, self._ailment, self.changed_at = "", None, self._clock.now()
        self._mounted.set()
        self._note_change()
        log.info("mounted", path=str(self._view.path))
        await self._on_change("")

    @asynccontextmanager
    async def _telling(self) -> AsyncIterator[None]:
        """Report what a mount waits for while it is made, unless a problem is known already."""
        telling = asyncio.create_task(self._tell_late())
        try:
            yield
        finally:
            await end(telling)

    async def _tell_late(self) -> None:
        """Report again when the mount waits for something else. A known problem is not replaced."""
        began, told = self._clock.monotonic(), ""
        while True:
            await self._clock.sleep(FIRST_MOUNT_REPORT_INTERVAL_SECONDS)
            if self.is_mounted or (self._ailment is not None and not told):
                return
            if self._step != told:
                told, waited = self._step, self._clock.monotonic() - began
                await self._set_lost(Reason.MOUNT_FAILED, f"not mounted after {waited:.0f} s: {told}")

    async def _set_lost(self, reason: str, message: str) -> None:
        was_mounted = self.is_mounted
        self._mounted.clear()
        self.message, self._ailment = message, Ailment(reason, message)
        self._set_silence(None)
        if was_mounted or self.changed_at is None:
            self.changed_at = self._clock.now()
            self._note_change()
        log.warning("not mounted", path=str(self._view.path), problem=message)
        if was_mounted:
            await self._on_change(message)

    def _set_silence(self, silence: Ailment | None) -> None:
        if silence != self._silence:
            self._silence = silence
            self._heard.set()
            self._heard = asyncio.Event()
            what = "file system does not answer" if silence else "file system answers again"
            log.warning(what, path=str(self._view.path))

    async def _ask(self, call: Callable[[], T], what: str) -> T:
        """The answer of the mounted file system. Reports a late answer. Raises Retry when there is none."""
        asked = asyncio.create_task(in_own_thread(call))
        try:
            if not await _is_answered(asked, min(SLOW_MOUNT_GRACE_SECONDS, LOST_MOUNT_TIMEOUT_SECONDS)):
                self._set_silence(Ailment(Reason.MOUNT_SILENT, _silent(what, SLOW_MOUNT_GRACE_SECONDS)))
                if not await _is_answered(asked, LOST_MOUNT_TIMEOUT_SECONDS - SLOW_MOUNT_GRACE_SECONDS):
                    raise Retry("MountLost", _silent(what, LOST_MOUNT_TIMEOUT_SECONDS))
            answer = await asked
        finally:
            asked.cancel()
        self._set_silence(None)
        return answer

    def _is_leaving(self, stop: asyncio.Event) -> bool:
        """Whether to remove the view, which happens at the end only: pods need it while a mount is lost."""
        is_recent = (
            self._left_at is not None
            and self._clock.monotonic() - self._left_at < PARTITION_LEAVE_TIMEOUT_SECONDS
        )
        return stop.is_set() and is_recent

    async def _take_away(self) -> None:
        """Remove the view. A kernel that refuses, or takes too long, delays nothing else."""
        try:
            await self._view.remove()
        except (Retry, OSError) as error:
            log.warning("the view is not removed", path=str(self._view.path), problem=str(error))

    def _check_view(self, device: str) -> None:
        """Raises Retry unless pods see this device."""
        if not self._view.shows(device):
            raise Retry("MountLost", f"{self._view.path} was unmounted, or something was mounted on it")


async def in_time(work: Awaitable[T], what: str, reason: str = "MountLost") -> T:
    """The result. Raises Retry with the reason when there is no answer in time."""
    asked = asyncio.ensure_future(work)
    try:
        if not await _is_answered(asked, LOST_MOUNT_TIMEOUT_SECONDS):
            raise Retry(reason, _silent(what, LOST_MOUNT_TIMEOUT_SECONDS))
        return await asked
    finally:
        asked.cancel()


async def _is_answered(asked: asyncio.Future[Any], seconds: float) -> bool:
    """Time during which this process was stopped counts as one step: there may be an answer already."""
    while seconds > 0:
        done, _ = await asyncio.wait({asked}, timeout=min(MOUNT_PROBE_STEP_INTERVAL_SECONDS, seconds))
        if done:
            return True
        seconds -= MOUNT_PROBE_STEP_INTERVAL_SECONDS
    return False


def _silent(what: str, seconds: float) -> str:
    return f"{what} did not answer for {seconds:g} s"


async def wait(stop: asyncio.Event, seconds: float, *others: asyncio.Task[Any]) -> None:
    """Until `stop`, one of the others, or the time."""
    waiter = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({waiter, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()


async def pause(stop: asyncio.Event, failures: int) -> None:
    """Before mounting again, after so many failures in a row: 1, 2 ... 30 seconds."""
    await wait(
        stop,
        min(
            LONGEST_MOUNT_RETRY_INTERVAL_SECONDS,
            MOUNT_RETRY_INTERVAL_SECONDS * 2.0 ** min(failures, _DOUBLINGS),
        ),
    )


def words(error: Retry | Permanent | OSError) -> tuple[str, str]:
    """Reason and message."""
    if isinstance(error, OSError):
        return "MountFailed", str(error)
    return error.reason, error.message or error.reason
