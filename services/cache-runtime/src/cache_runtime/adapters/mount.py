"""Keeping the volume mounted: format when new, mount, watch, mount again when it is lost."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from cache_runtime.adapters.client import JuiceFs, kill
from cache_runtime.adapters.secret_files import SecretFiles
from cache_runtime.domain import juicefs as commands
from cache_runtime.domain.control import INTERNAL_INODE
from cache_runtime.domain.juicefs import Engine
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry

log = structlog.get_logger(__name__)

META_TIMEOUT = 30.0
READY_TIMEOUT = 60.0
PROBE_TIMEOUT = 10.0
PROBE_EVERY = 2.0
UNMOUNT_TIMEOUT = 15.0
"""Seconds for the client to flush and unmount by itself; it lingers while others hold the mount."""
_BACKOFF_CAP = 30.0
_ROOT_INODE = 1

Announce = Callable[[str], Awaitable[None]]
"""Called with "" after mounting and with a message after losing the mount."""


@dataclass(frozen=True)
class MountPlan:
    """What is to be mounted where."""

    path: Path
    cache_dirs: list[str]
    cache_mib: int
    options: Mapping[str, str] = field(default_factory=dict)


class MountSupervisor:
    """Owns one mount point. `run` returns after `stop`, with everything unmounted."""

    def __init__(
        self, plan: MountPlan, client: JuiceFs, secrets: SecretFiles, clock: Clock, announce: Announce
    ) -> None:
        self._plan, self._client, self._secrets = plan, client, secrets
        self._clock, self._announce = clock, announce
        self._mounted = asyncio.Event()
        self.message = "not mounted yet"
        self.volume_id = ""
        """UUID of the volume: the name of its folder in each cache directory."""

    @property
    def is_mounted(self) -> bool:
        return self._mounted.is_set()

    @property
    def path(self) -> Path:
        """The mount point."""
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
                await self._lost(error.message or error.reason)
                await _wait(stop, min(_BACKOFF_CAP, 0.5 * 2**failures))

    async def _mount_once(self, stop: asyncio.Event) -> None:
        """One life of the mount. Raises Retry or Permanent when it ends unasked."""
        engine = await self._secrets.engine()
        await self._clear_mount_point()
        self.volume_id = await self._ensure_formatted(engine)
        command = commands.mount(
            engine, str(self._plan.path), self._plan.cache_dirs, self._plan.cache_mib, self._plan.options
        )
        process = await self._client.spawn(command, stdout=asyncio.subprocess.DEVNULL)
        life = _Log()
        reading = asyncio.create_task(life.follow(process))
        try:
            await self._wait_ready(process, life, stop)
            await self._found()
            await self._watch(process, life, stop)
        finally:
            if stop.is_set():
                await self._lost("stopped")
            await self._unmount(process)
            reading.cancel()

    async def _ensure_formatted(self, engine: Engine) -> str:
        """The volume's UUID. Raises Permanent when the database holds another volume."""
        status = await self._client.run(commands.status(engine), timeout=META_TIMEOUT)
        if status.code and commands.is_unformatted(status.stderr):
            log.info("formatting volume", volume=engine.name, storage=engine.storage)
            made = await self._client.run(commands.format_volume(engine), timeout=2 * META_TIMEOUT)
            if made.code:
                raise Retry("FormatFailed", made.problem)
            status = await self._client.run(commands.status(engine), timeout=META_TIMEOUT)
        if status.code:
            raise Retry("EngineUnreachable", status.problem)
        setting = json.loads(status.stdout)["Setting"]
        if setting["Name"] != engine.name:
            text = f"metaurl holds volume {setting['Name']!r}, the secret's name is {engine.name!r}"
            raise Permanent("WrongVolume", text)
        return str(setting["UUID"])

    async def _wait_ready(self, process: Process, life: _Log, stop: asyncio.Event) -> None:
        deadline = self._clock.monotonic() + READY_TIMEOUT
        while not await self._probe():
            if process.returncode is not None:
                raise Retry(
                    "MountFailed", life.problem or f"juicefs mount ended with code {process.returncode}"
                )
            if self._clock.monotonic() > deadline or stop.is_set():
                raise Retry("MountFailed", f"not mounted within {READY_TIMEOUT:.0f} s")
            await _wait(stop, 0.1)

    async def _watch(self, process: Process, life: _Log, stop: asyncio.Event) -> None:
        ended = asyncio.create_task(process.wait())
        try:
            while not stop.is_set():
                if ended.done():
                    raise Retry(
                        "MountLost", life.problem or f"juicefs mount ended with code {process.returncode}"
                    )
                if not await self._probe():
                    raise Retry("MountLost", f"{self._plan.path} does not answer")
                await _wait(stop, PROBE_EVERY, ended)
        finally:
            ended.cancel()

    async def _probe(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                return await asyncio.to_thread(_is_juicefs, self._plan.path)
        except TimeoutError:
            return False

    async def _found(self) -> None:
        self.message = ""
        self._mounted.set()
        log.info("mounted", path=str(self._plan.path))
        await self._announce("")

    async def _lost(self, message: str) -> None:
        was_mounted = self.is_mounted
        self._mounted.clear()
        self.message = message
        log.warning("not mounted", path=str(self._plan.path), problem=message)
        if was_mounted:
            await self._announce(message)

    async def _clear_mount_point(self) -> None:
        """Take away whatever an earlier life left there, dead or alive."""
        for directory in (*self._plan.cache_dirs, str(self._plan.path.parent)):
            await asyncio.to_thread(os.makedirs, directory, exist_ok=True)
        while _is_mount_point(self._plan.path):
            await lazy_unmount(self._plan.path)
        await asyncio.to_thread(os.makedirs, self._plan.path, exist_ok=True)

    async def _unmount(self, process: Process) -> None:
        """Let the client flush and unmount; by force when it does not."""
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(UNMOUNT_TIMEOUT):
                    await process.wait()
            except TimeoutError:
                log.warning("juicefs does not end, killed", pid=process.pid)
                await kill(process)
        while _is_mount_point(self._plan.path):
            await lazy_unmount(self._plan.path)


def _is_juicefs(path: Path) -> bool:
    """Is a live JuiceFS mounted there? Blocks as long as the file system does."""
    try:
        return path.stat().st_ino == _ROOT_INODE and (path / ".stats").stat().st_ino >= INTERNAL_INODE
    except OSError:
        return False


def _is_mount_point(path: Path) -> bool:
    """From the kernel's list, which also knows dead mounts."""
    wanted = str(path).replace("\\", "\\134").replace(" ", "\\040")
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split(" ")[4] == wanted for line in lines)


async def lazy_unmount(path: Path) -> None:
    """Detach now; open files live on. Raises Retry when the kernel refuses."""
    process = await asyncio.create_subprocess_exec(
        "umount", "-l", str(path), stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    _, stderr = await process.communicate()
    if process.returncode and _is_mount_point(path):
        raise Retry("UnmountFailed", stderr.decode(errors="replace").strip())


class _Log:
    """The client's log of one life, and what it said last of level ERROR or FATAL."""

    def __init__(self) -> None:
        self.problem = ""

    async def follow(self, process: Process) -> None:
        """Until the client and its watchdog have ended."""
        assert process.stderr is not None
        while line := await _read_line(process.stderr):
            text = line.decode(errors="replace")
            if "<FATAL>: " in text or "<ERROR>: " in text:
                self.problem = commands.last_problem(text)
                log.warning("juicefs mount reports", problem=self.problem)


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:  # longer than the reader's buffer: cut, nobody needs the rest
        return b"?"


async def _wait(stop: asyncio.Event, seconds: float, *others: asyncio.Task[int]) -> None:
    """Until `stop`, one of the others, or the time."""
    waiter = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({waiter, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()
