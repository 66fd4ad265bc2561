"""Keeping the volume mounted: format it when new, mount, probe, mount again after a loss."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from cache_runtime.engines.juicefs import commands
from cache_runtime.engines.juicefs.client import JuiceFsClient, kill
from cache_runtime.engines.juicefs.mount_point import is_juicefs, is_mount_point, lazy_unmount
from cache_runtime.engines.juicefs.output import last_problem
from cache_runtime.engines.juicefs.secret import read_engine_secret
from cache_runtime.engines.juicefs.volumes import Volumes
from cache_runtime.engines.ports import MountListener
from cache_runtime.secret_files import SecretFiles
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry

log = structlog.get_logger(__name__)

READY_TIMEOUT = 60.0
PROBE_TIMEOUT = 10.0
PROBE_EVERY = 2.0
UNMOUNT_TIMEOUT = 15.0
"""Seconds for the client to flush and unmount by itself; it waits while processes use the mount."""
_BACKOFF_CAP = 30.0


@dataclass(frozen=True)
class MountPlan:
    """What to mount where."""

    path: Path
    cache_dirs: list[str]
    cache_mib: int
    options: Mapping[str, str] = field(default_factory=dict)


class JuiceFsMount:
    """Implements `Mount`; owns one mount point. `run` returns after `stop`, with everything unmounted."""

    def __init__(
        self,
        plan: MountPlan,
        client: JuiceFsClient,
        volumes: Volumes,
        secrets: SecretFiles,
        clock: Clock,
        on_change: MountListener,
    ) -> None:
        self._plan, self._client, self._volumes, self._secrets = plan, client, volumes, secrets
        self._clock, self._on_change = clock, on_change
        self._mounted = asyncio.Event()
        self.message = "not mounted yet"
        self.volume_id = ""
        """UUID of the volume: the name of its directory in each cache directory."""

    @property
    def is_mounted(self) -> bool:
        return self._mounted.is_set()

    @property
    def path(self) -> Path:
        return self._plan.path

    async def wait_mounted(self) -> None:
        await self._mounted.wait()

    async def run(self, stop: asyncio.Event) -> None:
        """Mount and stay mounted until `stop`."""
        failures = 0
        while not stop.is_set():
            try:
                await self._mount_once(stop)
                failures = 0
            except (Retry, Permanent) as error:
                failures = 1 if self.is_mounted else failures + 1
                await self._set_lost(error.message or error.reason)
                await _wait(stop, min(_BACKOFF_CAP, 0.5 * 2**failures))

    async def _mount_once(self, stop: asyncio.Event) -> None:
        """Mount until `stop`. Raises Retry or Permanent when the mount fails or is lost."""
        engine = await read_engine_secret(self._secrets)
        await self._clear_mount_point()
        self.volume_id = await self._volumes.ensure_formatted(engine)
        command = commands.mount(
            engine, str(self._plan.path), self._plan.cache_dirs, self._plan.cache_mib, self._plan.options
        )
        process = await self._client.spawn(command, stdout=asyncio.subprocess.DEVNULL)
        output = _Output()
        reading = asyncio.create_task(output.follow(process))
        try:
            await self._wait_ready(process, output, stop)
            await self._set_mounted()
            await self._monitor(process, output, stop)
        finally:
            if stop.is_set():
                await self._set_lost("stopped")
            await self._unmount(process)
            reading.cancel()

    async def _wait_ready(self, process: Process, output: _Output, stop: asyncio.Event) -> None:
        deadline = self._clock.monotonic() + READY_TIMEOUT
        while not await self._probe():
            if process.returncode is not None:
                raise Retry(
                    "MountFailed", output.problem or f"juicefs mount ended with code {process.returncode}"
                )
            if self._clock.monotonic() > deadline or stop.is_set():
                raise Retry("MountFailed", f"not mounted within {READY_TIMEOUT:.0f} s")
            await _wait(stop, 0.1)

    async def _monitor(self, process: Process, output: _Output, stop: asyncio.Event) -> None:
        ended = asyncio.create_task(process.wait())
        try:
            while not stop.is_set():
                if ended.done():
                    raise Retry(
                        "MountLost", output.problem or f"juicefs mount ended with code {process.returncode}"
                    )
                if not await self._probe():
                    raise Retry("MountLost", f"{self._plan.path} does not answer")
                await _wait(stop, PROBE_EVERY, ended)
        finally:
            ended.cancel()

    async def _probe(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                return await asyncio.to_thread(is_juicefs, self._plan.path)
        except TimeoutError:
            return False

    async def _set_mounted(self) -> None:
        self.message = ""
        self._mounted.set()
        log.info("mounted", path=str(self._plan.path))
        await self._on_change("")

    async def _set_lost(self, message: str) -> None:
        was_mounted = self.is_mounted
        self._mounted.clear()
        self.message = message
        log.warning("not mounted", path=str(self._plan.path), problem=message)
        if was_mounted:
            await self._on_change(message)

    async def _clear_mount_point(self) -> None:
        """Unmount whatever an earlier process left there, dead or alive."""
        for directory in (*self._plan.cache_dirs, str(self._plan.path.parent)):
            await asyncio.to_thread(os.makedirs, directory, exist_ok=True)
        while is_mount_point(self._plan.path):
            await lazy_unmount(self._plan.path)
        await asyncio.to_thread(os.makedirs, self._plan.path, exist_ok=True)

    async def _unmount(self, process: Process) -> None:
        """Let the client flush and unmount; kill it when it does not."""
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(UNMOUNT_TIMEOUT):
                    await process.wait()
            except TimeoutError:
                log.warning("juicefs did not exit and was killed", pid=process.pid)
                await kill(process)
        while is_mount_point(self._plan.path):
            await lazy_unmount(self._plan.path)


class _Output:
    """The output of a mounted client, and its last message of level ERROR or FATAL."""

    def __init__(self) -> None:
        self.problem = ""

    async def follow(self, process: Process) -> None:
        """Until the client and its watchdog have ended."""
        assert process.stderr is not None
        while line := await _read_line(process.stderr):
            text = line.decode(errors="replace")
            if "<FATAL>: " in text or "<ERROR>: " in text:
                self.problem = last_problem(text)
                log.warning("juicefs mount reported a problem", problem=self.problem)


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:  # longer than the reader's buffer; the rest is not needed
        return b"?"


async def _wait(stop: asyncio.Event, seconds: float, *others: asyncio.Task[int]) -> None:
    """Until `stop`, one of the others, or the time."""
    waiter = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({waiter, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()
