"""Where pods look at the data set: the copies of this node, and below them the shared directory, read-only.

The kernel joins them (overlayfs). It remembers what it has looked up once, so it is told to look again when
there are new copies, and from time to time because other nodes change the shared directory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import structlog

from cache_runtime.engines.directory.copies import Copies
from cache_runtime.engines.directory.shared import SharedDirectory
from cache_runtime.engines.mounts import is_mount_point, lazy_unmount, pause_after, run_mount
from cache_runtime.engines.ports import Ailment, MountListener
from cache_runtime.engines.view import View
from cache_runtime.threads import in_own_thread
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end

log = structlog.get_logger(__name__)

T = TypeVar("T")

PROBE_EVERY = 1.0
SILENT_AFTER = 10.0
"""Seconds without an answer of the shared directory, after which the mount is lost."""
SWEEP_EVERY = 30.0
"""Seconds after which nodes see what others have changed."""
SWEEP_SHARE = 10
"""A sweep is followed by a pause of so many times its own length, if that is longer."""
_OPTIONS = "ro,nosuid,nodev,redirect_dir=nofollow"


class DirectoryMount:
    """Implements `Mount`.

    Args:
        view: the directory that pods mount.
        state: directory of this process.
    """

    def __init__(
        self,
        view: Path,
        state: Path,
        shared: SharedDirectory,
        copies: Copies,
        clock: Clock,
        on_change: MountListener,
    ) -> None:
        self._state, self._shared, self._copies = state, shared, copies
        self._view, self._clock, self._on_change = View(view, state), clock, on_change
        self._mounted, self._leaves = asyncio.Event(), False
        self.message = "not mounted yet"
        self.ailment: Ailment | None = None
        self.changed_at: datetime | None = None

    @property
    def path(self) -> Path:
        return self._shared.path

    @property
    def is_mounted(self) -> bool:
        return self._mounted.is_set()

    def leave(self) -> None:
        self._leaves = True

    async def wait_mounted(self) -> None:
        await self._mounted.wait()

    async def run(self, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            try:
                await self._mount_once(stop)
            except (Retry, Permanent, OSError) as error:
                failures = 1 if self.is_mounted else failures + 1
                await self._set_lost(*_words(error))
                await self._hide()
                await _wait(stop, pause_after(failures))
        await self._set_lost(Reason.STOPPED, "stopped")
        await self._hide()

    async def refresh(self) -> None:
        """Have the kernel look again. Raises Retry."""
        if self.is_mounted:
            await run_mount("mount", "-o", "remount", str(self._joined))

    @property
    def _joined(self) -> Path:
        return self._state / "volume"

    async def _mount_once(self, stop: asyncio.Event) -> None:
        """Mount until `stop`. Raises Retry, Permanent or OSError when the mount fails or is lost."""
        await in_own_thread(lambda: self._joined.mkdir(parents=True, exist_ok=True))
        await self._shared.open()
        await in_own_thread(lambda: self._copies.open(self._shared.volume_id))
        device = await self._join()
        await self._view.show(self._joined)
        await self._set_mounted()
        sweeping = asyncio.create_task(self._sweep_for_ever())
        try:
            while not stop.is_set():
                await self._check(device)
                await _wait(stop, PROBE_EVERY)
        finally:
            await end(sweeping)

    async def _join(self) -> str:
        """Returns the device of the joined file system."""
        while is_mount_point(self._joined):
            await lazy_unmount(self._joined)
        layers = self._linked([*map(os.fsdecode, self._copies.layers), str(self._shared.path)])
        options = f"{_OPTIONS},lowerdir={':'.join(layers)}"
        await run_mount("mount", "-t", "overlay", "-o", options, "paddlewheel", str(self._joined))
        device = (await in_own_thread(self._joined.stat)).st_dev
        return f"{os.major(device)}:{os.minor(device)}"

    def _linked(self, directories: list[str]) -> list[str]:
        """By names without commas and colons, which separate options."""
        links = [self._state / f"layer-{number}" for number in range(len(directories))]
        for link, directory in zip(links, directories, strict=True):
            link.unlink(missing_ok=True)
            link.symlink_to(directory)
        return [str(link) for link in links]

    async def _check(self, device: str) -> None:
        """Raises Retry or Permanent when pods no longer see it, or the shared directory is gone."""
        if not self._view.shows(device):
            raise Retry("MountLost", f"{self._view.path} was unmounted, or something was mounted on it")
        await _in_time(in_own_thread(self._shared.check), self._shared.address)

    async def _sweep_for_ever(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                await in_own_thread(self._sweep)
                await self.refresh()
            except (Retry, Permanent, OSError) as error:
                log.warning("copies not compared with the data set", problem=str(error))
            took = self._clock.monotonic() - began
            await self._clock.sleep(max(SWEEP_EVERY, SWEEP_SHARE * took))

    def _sweep(self) -> None:
        self._shared.check()  # else every copy would seem to have gone
        self._copies.sweep()

    async def _set_mounted(self) -> None:
        self.message, self.ailment, self.changed_at = "", None, self._clock.now()
        self._mounted.set()
        log.info("mounted", path=str(self._view.path))
        await self._on_change("")

    async def _set_lost(self, reason: str, message: str) -> None:
        was_mounted = self.is_mounted
        self._mounted.clear()
        self.message, self.ailment = message, Ailment(reason, message)
        if was_mounted or self.changed_at is None:
            self.changed_at = self._clock.now()
        log.warning("not mounted", path=str(self._view.path), problem=message)
        if was_mounted:
            await self._on_change(message)

    async def _hide(self) -> None:
        """From pods that have it mounted, too."""
        if self._leaves:
            await self._view.remove()
        else:
            await self._view.fail()
        while is_mount_point(self._joined):
            await lazy_unmount(self._joined)


async def _in_time(work: Awaitable[T], what: str) -> T:
    """The result. Raises Retry."""
    try:
        async with asyncio.timeout(SILENT_AFTER):
            return await work
    except TimeoutError as error:
        raise Retry("MountLost", f"{what} did not answer for {SILENT_AFTER:.0f} s") from error
    except OSError as error:
        raise Retry("MountLost", f"{what}: {error.strerror}") from error


def _words(error: Retry | Permanent | OSError) -> tuple[str, str]:
    """Reason and message."""
    if isinstance(error, OSError):
        return "MountFailed", str(error)
    return error.reason, error.message or error.reason


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
