"""Where pods look at the data set: the copies of this node, and below them the shared directory, read-only.

The kernel joins them (overlayfs). It remembers what it has looked up once, so it is told to look again when
there are new copies, and from time to time because other nodes change the shared directory. A cache directory
that fails is left out: what is stale in it cannot be removed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import structlog

from cache_runtime.engines.base import BaseMount, in_time, pause, wait, words
from cache_runtime.engines.directory.copies import Copies
from cache_runtime.engines.directory.shared import SharedDirectory
from cache_runtime.engines.directory.standstill import Standstill
from cache_runtime.engines.mounts import mounts_at, run_mount, unmount
from cache_runtime.engines.ports import Ailment, MountListener
from cache_runtime.engines.view import View
from cache_runtime.retrying import described
from cache_runtime.threads import in_own_thread
from cache_runtime.timing import MOUNT_PROBE_INTERVAL_SECONDS
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end, finish

log = structlog.get_logger(__name__)

SWEEP_EVERY = 30.0
"""Seconds after which nodes see what others have changed."""
COMPARED_WITHIN = 10.0
"""Seconds after which a warmup is told what it waits for."""
SWEEP_SHARE = 10
"""A sweep is followed by a pause of so many times its own length, if that is longer."""
_OPTIONS = "ro,nosuid,nodev,redirect_dir=nofollow"


class DirectoryMount(BaseMount):
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
        super().__init__(View(view, state), clock, on_change)
        self._state, self._shared, self._copies = state, shared, copies
        self._standstill = Standstill(lambda: copies.step, clock)
        self._showing = asyncio.Lock()
        self._compared = asyncio.Event()
        """Since it was mounted, as far as disks answer."""
        self._device = ""
        """Of the joined file system that pods see."""
        self._shown: list[bytes] | None = None
        """The copies in it; None while another one is being joined, and where that has failed."""

    @property
    def path(self) -> Path:
        return self._shared.path

    async def run(self, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            try:
                async with self._telling():
                    await self._mount_once(stop)
            except (Retry, Permanent, OSError) as error:
                failures = 1 if self.is_mounted else failures + 1
                await self._set_lost(*words(error))
                await self._hide(stop)
                await pause(stop, failures)
        await self._set_lost(Reason.STOPPED, "stopped")
        await self._hide(stop)

    async def refresh(self) -> None:
        """Have the kernel look again, at the copies that are sound by now. Raises Retry."""
        async with self._showing:
            if self.is_mounted:
                if self._shown == self._copies.sound:
                    await run_mount("mount", "-o", "remount", str(self._joined))
                else:  # not broken off with the run: what pods see would not be what is known of it
                    await finish(self._show())

    async def wait_compared(self, within: float | None = None) -> None:
        """Until it is known which copies on this node are what the files are: before, none counts. Raises
        Retry while it is not mounted, and when that takes long, as with millions.

        Args:
            within: so many seconds; None = as many as a warmup waits.
        """
        if not self.is_mounted:
            raise Retry("MountLost", self.message)
        try:
            async with asyncio.timeout(COMPARED_WITHIN if within is None else within):
                await self._compared.wait()
        except TimeoutError as error:
            told = self.ailment or Ailment("MountLost", "copies on this node are compared with the data set")
            raise Retry(told.reason, told.message) from error

    @property
    def _joined(self) -> Path:
        return self._state / "volume"

    async def _mount_once(self, stop: asyncio.Event) -> None:
        """Mount until `stop`. Raises Retry, Permanent or OSError when the mount fails or is lost."""
        await in_own_thread(lambda: self._joined.mkdir(parents=True, exist_ok=True))
        await self._shared.open()
        self._copies.open(self._shared.volume_id)
        self._compared.clear()
        async with self._showing:
            await self._show()  # without copies: pods wait for no comparison of millions
        await self._set_mounted()
        while await self._keep(stop):
            await self._follow()

    async def _keep(self, stop: asyncio.Event) -> bool:
        """Until `stop`, or until another volume is at the address. Returns whether there is one, and raises
        Retry, Permanent or OSError when the mount is lost, and what has ended the sweeps: without them pods
        would see what once was.
        """
        sweeping = asyncio.create_task(self._sweep_for_ever())
        removing = asyncio.create_task(in_own_thread(self._copies.remove_numbered))
        try:
            while not stop.is_set():
                await self._check()
                if await self._has_moved():
                    return True
                await self._look_after_sweep()
                await wait(stop, MOUNT_PROBE_INTERVAL_SECONDS, sweeping)
                if sweeping.done():
                    await sweeping
        finally:
            await end(sweeping, removing)
        return False

    async def _look_after_sweep(self) -> None:
        """Show what it has compared by now, also while the disk of another cache directory hangs."""
        if ailment := self._standstill.look():
            self._ailment = ailment
            self._compared.set()
        if self._shown not in (None, self._copies.sound):
            try:
                await self.refresh()
            except (Retry, OSError) as error:
                self._note(error)

    async def _follow(self) -> None:
        """To the volume that is at the address now. Raises as `_keep`.

        Pods get it at once, on top and with the copies as they are: the next sweep compares them, as after
        every other change of the shared directory.
        """
        log.info("moving to what is mounted there now", path=self._shared.address)
        await self._shared.open()
        self._note_change()  # at once: what is listed from here on is of the one that is there now
        async with self._showing:
            await self._show()

    async def _show(self) -> None:
        """To pods, on top of what they have: files that are open there stay so. Raises Retry."""
        layers, self._shown = self._copies.sound, None
        device = await self._join(layers)
        await self._view.show(self._joined)
        self._device, self._shown = device, layers

    async def _join(self, copies: list[bytes]) -> str:
        """Returns the device of the joined file system."""
        await unmount(self._joined)
        self._nothing.mkdir(exist_ok=True)
        below = [str(self._shared.path), *([] if copies else [str(self._nothing)])]
        layers = self._linked([*map(os.fsdecode, copies), *below])
        options = f"{_OPTIONS},lowerdir={':'.join(layers)}"
        await run_mount("mount", "-t", "overlay", "-o", options, "paddlewheel", str(self._joined))
        return "".join(entry.device for entry in mounts_at(self._joined)[-1:])

    @property
    def _nothing(self) -> Path:
        """The kernel joins two directories at least."""
        return self._state / "nothing"

    def _linked(self, directories: list[str]) -> list[str]:
        """By names without commas and colons, which separate options."""
        links = [self._state / f"layer-{number}" for number in range(len(directories))]
        for link, directory in zip(links, directories, strict=True):
            link.unlink(missing_ok=True)
            link.symlink_to(directory)
        return [str(link) for link in links]

    async def _check(self) -> None:
        """Raises Retry or Permanent when pods no longer see it, or it is gone or not the set's."""
        async with self._showing:
            self._check_view(self._device)
        await self._check_shared()

    async def _check_shared(self) -> None:
        """Raises Retry or Permanent when it is gone, silent, or not the set's."""
        self._shared.confirm()
        shared = self._shared.address
        try:
            await self._ask(self._shared.check, shared)
        except OSError as error:
            raise Retry("MountLost", f"{shared}: {error.strerror}") from error

    async def _has_moved(self) -> bool:
        """Only for another volume pods are moved: until there is one, what they have is as good as ever."""
        try:
            return await in_time(self._shared.has_moved(), self._shared.address)
        except (Retry, Permanent, OSError):
            return False

    async def _sweep_for_ever(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                with self._standstill.noticed():
                    await in_own_thread(self._sweep)
                self._ailment = _ailment(self._copies.problems)
                self._compared.set()
                await self.refresh()
            except (Retry, Permanent, OSError) as error:
                self._note(error)
            took = self._clock.monotonic() - began
            await self._clock.sleep(max(SWEEP_EVERY, SWEEP_SHARE * took))

    def _note(self, error: Retry | Permanent | OSError) -> None:
        """Pods may see stale copies, or none."""
        self._ailment = Ailment(*words(error))
        log.warning("copies not compared with the data set, or not shown", problem=str(error))

    def _sweep(self) -> None:
        self._shared.check()  # else every copy would seem to have gone
        self._copies.sweep()

    async def _hide(self, stop: asyncio.Event) -> None:
        """From pods that have it mounted, too, on top of what is being shown. What the kernel does not take
        in time is tried again later."""
        try:
            async with self._showing:
                if self._is_leaving(stop):
                    await self._take_away()
                else:
                    await self._view.fail()
                await unmount(self._joined)
        except (Retry, OSError) as error:
            log.warning("the former mount is not hidden", path=str(self._view.path), problem=str(error))


def _ailment(problems: Mapping[str, OSError]) -> Ailment | None:
    """Of the first cache directory that fails: its files are read from the shared directory."""
    for directory, error in problems.items():
        return Ailment(Reason.CACHE_DISK_FAILED, f"cache directory {directory}: {described(error)}")
    return None
