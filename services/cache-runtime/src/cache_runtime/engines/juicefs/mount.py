"""Keeping the volume mounted: format it when new, mount, probe, mount again after a loss."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import structlog

from cache_runtime.engines.base import BaseMount, in_time, pause, wait, words
from cache_runtime.engines.juicefs import commands
from cache_runtime.engines.juicefs.addresses import EngineSecret
from cache_runtime.engines.juicefs.care import Care, Surroundings, free_ratio
from cache_runtime.engines.juicefs.client import JuiceFsClient, has_ended, kill_session
from cache_runtime.engines.juicefs.heart import Heart
from cache_runtime.engines.juicefs.mount_point import abort_connection, find_connections, is_juicefs
from cache_runtime.engines.juicefs.output import cause_of, problem_of
from cache_runtime.engines.juicefs.secret import read_engine_secret
from cache_runtime.engines.juicefs.volumes import Volumes
from cache_runtime.engines.mounts import mounts_at, unmount
from cache_runtime.engines.ports import MountListener
from cache_runtime.engines.view import View
from cache_runtime.secret_files import SecretFiles
from cache_runtime.threads import in_own_thread
from cache_runtime.timing import (
    CLIENT_FLUSH_TIMEOUT_SECONDS,
    CLIENT_KILL_TIMEOUT_SECONDS,
    CLIENT_LEAVE_TIMEOUT_SECONDS,
    DISK_TIMEOUT_SECONDS,
    MOUNT_CHECK_INTERVAL_SECONDS,
    MOUNT_PROBE_INTERVAL_SECONDS,
    MOUNT_READY_TIMEOUT_SECONDS,
    SHORT_MOUNT_GRACE_SECONDS,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end

log = structlog.get_logger(__name__)

T = TypeVar("T")

_NOT_READY = "the client does not say why: see whether database and object store answer"


@dataclass(frozen=True)
class MountPlan:
    """What to mount where.

    Args:
        path: where the pods of the node find it.
        state: directory of this process.
    """

    path: Path
    state: Path
    cache_dirs: list[str]
    cache_mib: int
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def volume(self) -> Path:
        """Where the client mounts; what is mounted there is shown at `path`."""
        return self.state / "volume"


class JuiceFsMount(BaseMount):
    """Implements `Mount`; owns one mount point. `run` returns after `stop`, with the client ended."""

    def __init__(
        self,
        plan: MountPlan,
        client: JuiceFsClient,
        volumes: Volumes,
        secrets: SecretFiles,
        clock: Clock,
        on_change: MountListener,
    ) -> None:
        super().__init__(View(plan.path, plan.state), clock, on_change)
        self._plan, self._client, self._volumes, self._secrets = plan, client, volumes, secrets
        self.volume_id = ""
        """UUID of the volume: the name of its directory in each cache directory."""
        self._is_ending = False
        self._survivors: list[_Client] = []
        """Clients of mounts that pods have seen, which could not be ended."""

    @property
    def is_ending(self) -> bool:
        return self._is_ending or any(not client.has_ended for client in self._survivors)

    @property
    def path(self) -> Path:
        return self._plan.path

    async def run(self, stop: asyncio.Event) -> None:
        """Mount and stay mounted until `stop`."""
        failures = 0
        while not stop.is_set():
            began = self._clock.monotonic()
            try:
                async with self._telling():
                    await self._mount_once(stop)
            except (Retry, Permanent, OSError) as error:
                has_lasted = self._clock.monotonic() - began > SHORT_MOUNT_GRACE_SECONDS
                failures = 1 if has_lasted else failures + 1
                await self._set_lost(*words(error))
                await pause(stop, failures)
        if self._is_leaving(stop):
            await self._take_away()

    async def _mount_once(self, stop: asyncio.Event) -> None:
        """Mount until `stop`. Raises Retry or Permanent when the mount fails or is lost."""
        self._step = "the engine's Secret is not there"
        engine = await read_engine_secret(self._secrets)
        self._step = "a disk of its cache, or a former mount, does not answer"
        await self._prepare()
        self._step = "the database in metaurl, or the object store, does not answer"
        self.volume_id = await self._volumes.ensure_formatted(engine)
        plan = self._plan
        command = commands.mount(engine, str(plan.volume), plan.cache_dirs, plan.cache_mib, plan.options)
        process = await self._client.spawn(command, stdout=asyncio.subprocess.DEVNULL)
        output = _Output()
        client = _Client(process, asyncio.create_task(output.follow(process)))
        heart: Heart | None = None
        caring: asyncio.Task[None] | None = None
        try:
            heart = await self._wait_ready(process, output, stop)
            self._volumes.keep(self.volume_id)
            await in_time(self._view.show(plan.volume), f"the client of {plan.volume}", Reason.MOUNT_FAILED)
            await self._set_mounted()
            caring = asyncio.create_task(self._care(engine))
            await self._monitor(process, output, heart, stop)
        except (Retry, OSError) as error:
            # Told before the client is ended, which may take a while.
            self._is_ending = self.is_mounted
            await self._set_lost(*words(error))
            raise
        finally:
            if caring is not None:
                await end(caring)
            if stop.is_set():
                self._is_ending = self._is_ending or self.is_mounted
                await self._set_lost(Reason.STOPPED, "stopped")
            try:
                await self._end(client, heart, stop)
            finally:
                self._forget(client)

    def _forget(self, client: _Client) -> None:
        """As far as it has ended: what else has failed at its end says nothing of the next mount."""
        if self._is_ending:
            self._survivors = [each for each in (*self._survivors, client) if not each.has_ended]
        else:
            client.reading.cancel()
        self._is_ending = False

    async def _wait_ready(self, process: Process, output: _Output, stop: asyncio.Event) -> Heart:
        """Raises Retry when the client does not mount, or is silent once it has."""
        self._step = _NOT_READY
        deadline = self._clock.monotonic() + MOUNT_READY_TIMEOUT_SECONDS
        while not await self._is_ready():
            self._step = output.problem or _NOT_READY
            if process.returncode is not None:
                raise Retry(
                    "MountFailed", output.problem or f"juicefs mount ended with code {process.returncode}"
                )
            if self._clock.monotonic() > deadline or stop.is_set():
                raise Retry("MountFailed", f"not mounted within {MOUNT_READY_TIMEOUT_SECONDS:.0f} s")
            await wait(stop, 0.1)
        return await self._of_client(Heart.of)

    async def _is_ready(self) -> bool:
        return await self._of_client(is_juicefs)

    async def _of_client(self, ask: Callable[[Path], T]) -> T:
        """Raises Retry when its file system is silent; where nothing is mounted yet there is an answer."""
        volume = self._plan.volume
        return await in_time(
            in_own_thread(lambda: ask(volume)), f"the client of {volume}", Reason.MOUNT_FAILED
        )

    async def _monitor(self, process: Process, output: _Output, heart: Heart, stop: asyncio.Event) -> None:
        ended = asyncio.create_task(process.wait())
        try:
            while not stop.is_set():
                if ended.done():
                    raise Retry(
                        "MountLost", output.problem or f"juicefs mount ended with code {process.returncode}"
                    )
                await self._check(heart)
                await wait(stop, MOUNT_PROBE_INTERVAL_SECONDS, ended)
        finally:
            ended.cancel()

    async def _care(self, engine: EngineSecret) -> None:
        """Until cancelled."""
        plan = self._plan
        around = Surroundings(plan.volume, plan.cache_dirs, free_ratio(plan.options))
        care = Care(around, engine, self._clock)
        try:
            while True:
                try:
                    self._ailment = await care.look()
                except (OSError, ValueError) as error:
                    log.warning("could not look after the mount", problem=str(error))
                await self._clock.sleep(MOUNT_CHECK_INTERVAL_SECONDS)
        finally:
            care.close()

    async def _check(self, heart: Heart) -> None:
        """Raises Retry when the file system is gone, or not the set's."""
        self._check_view(heart.device)
        self._volumes.confirm(self.volume_id)
        try:
            await self._ask(heart.beat, f"the client of {self._plan.path}")
        except OSError as error:
            raise Retry("MountLost", f"{self._plan.path}: {error.strerror}") from error

    async def _prepare(self) -> None:
        """Directories that the client needs, and nothing mounted where it mounts."""
        for directory in self._plan.cache_dirs:
            await _make_cache_directory(directory)
        await find_connections(self._plan.state)
        await self._end_former()
        await asyncio.to_thread(os.makedirs, self._plan.volume, exist_ok=True)

    async def _end_former(self) -> None:
        """A client of an earlier process may live on where no container ended with that."""
        self._abort()
        await unmount(self._plan.volume)

    def _abort(self) -> None:
        for entry in (*mounts_at(self._plan.volume), *mounts_at(self._plan.path)):
            if entry.type.startswith("fuse"):
                abort_connection(entry.device, self._plan.state)

    async def _end(self, client: _Client, heart: Heart | None, stop: asyncio.Event) -> None:
        """Let the client flush and end, or kill it. Raises Retry when it cannot be killed."""
        process = client.process
        if self._is_leaving(stop):
            await self._take_away()
        if process.returncode is None:
            process.terminate()
            if not await has_ended(process, CLIENT_LEAVE_TIMEOUT_SECONDS):
                self._abort()
            if not await has_ended(process, CLIENT_FLUSH_TIMEOUT_SECONDS):
                log.warning("juicefs did not exit and was killed", pid=process.pid)
        is_gone = await client.kill()
        if heart is not None:
            heart.close()
        await unmount(self._plan.volume)
        if not is_gone:
            stuck = f"juicefs (pid {process.pid}) was killed and does not end: look for a disk that hangs"
            raise Retry("MountFailed", f"{stuck}, or restart the node")


@dataclass(frozen=True)
class _Client:
    """A client that was started for a mount.

    Args:
        process: its watchdog, which a signal ends while the process that serves files waits for a disk.
        reading: of their output, to its end: when it ends, so have all that write to it.
    """

    process: Process
    reading: asyncio.Task[None]

    @property
    def has_ended(self) -> bool:
        """With all that it has started."""
        return self.process.returncode is not None and self.reading.done()

    async def kill(self) -> bool:
        """Whether it has ended within `CLIENT_KILL_TIMEOUT_SECONDS`."""
        output = asyncio.wait({self.reading}, timeout=CLIENT_KILL_TIMEOUT_SECONDS)
        await asyncio.gather(kill_session(self.process), output)
        return self.has_ended


async def _make_cache_directory(directory: str) -> None:
    try:
        async with asyncio.timeout(DISK_TIMEOUT_SECONDS):
            await in_own_thread(lambda: Path(directory).mkdir(parents=True, exist_ok=True))
    except TimeoutError as error:
        raise Retry("CacheDiskFailed", f"cache directory {directory}: the disk does not answer") from error
    except OSError as error:
        raise Retry("CacheDiskFailed", f"cache directory {directory}: {error.strerror}") from error


class _Output:
    """The output of a mounted client, and its last message of level ERROR or FATAL."""

    def __init__(self) -> None:
        self.problem = ""

    async def follow(self, process: Process) -> None:
        """Until the client and its watchdog have ended."""
        assert process.stderr is not None
        while line := await _read_line(process.stderr):
            text = line.decode(errors="replace")
            if problem := problem_of(text):
                self.problem = cause_of([problem])
                log.warning("juicefs mount reported a problem", problem=self.problem)


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:  # longer than the reader's buffer; the rest is not needed
        return b"?"
