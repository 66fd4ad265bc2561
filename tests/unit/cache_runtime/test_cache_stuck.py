"""What hangs in the kernel is given up, with a reason, and not waited for."""

from __future__ import annotations

import asyncio
import threading
from asyncio.subprocess import Process
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cache_runtime import app, threads
from cache_runtime.config import CacheRuntimeSettings
from cache_runtime.engines import mounts
from cache_runtime.engines.juicefs import client, mount
from cache_runtime.engines.ports import Engine
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end


async def _forever(*_: object) -> None:
    await asyncio.Event().wait()


async def test_a_process_that_cannot_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "KILL_TIMEOUT", 0.0)
    monkeypatch.setattr("os.killpg", lambda *_: None)
    stuck = cast(Process, SimpleNamespace(pid=1, returncode=None, kill=lambda: None, wait=_forever))
    assert not await client.kill_session(stuck)
    await client.kill(stuck)


async def test_an_unmount_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def spawn(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(communicate=_forever, kill=lambda: None, returncode=None)

    monkeypatch.setattr(mounts, "MOUNT_TIMEOUT", 0.0)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn)
    with pytest.raises(Retry, match="umount -l /mnt took more than 0 s"):
        await mounts.run_mount("umount", "-l", "/mnt")


async def test_a_cache_disk_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mount, "DISK_TIMEOUT", 0.0)
    monkeypatch.setattr(mount, "in_own_thread", _forever)
    with pytest.raises(Retry, match="the disk does not answer"):
        await mount._make_cache_directory(str(tmp_path))


async def test_a_call_that_does_not_end_when_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a write to a file server that is away; its caller is cancelled again and again."""
    monkeypatch.setattr(threads, "ENDS_WITHIN", 0.0)
    stop, began, answered = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        answered.wait()

    caller = asyncio.create_task(threads.in_own_thread_until(stop, hang))
    try:
        await asyncio.to_thread(began.wait)
        caller.cancel()
        await asyncio.sleep(0)
        await end(caller)
        assert caller.cancelled()
        assert stop.is_set()
    finally:
        answered.set()


async def test_a_mount_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "UNMOUNT_TIMEOUT", 0.0)
    stuck = asyncio.create_task(_forever())
    await app._end_of(stuck)
    await end(stuck)


async def test_a_long_flush_is_looked_at_ever_less() -> None:
    pauses: list[float] = []

    class _Clock(ManualClock):
        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)

    async def staged() -> int:
        return 6 - len(pauses)

    cache, mounted = SimpleNamespace(staged_bytes=staged), SimpleNamespace(is_mounted=True)
    flushing = object.__new__(app.App)
    flushing._clock = _Clock()  # type: ignore[assignment]
    flushing._settings = cast(CacheRuntimeSettings, SimpleNamespace(flush_wait=60.0))
    flushing._engine = cast(Engine, SimpleNamespace(mount=mounted, cache=cache))
    await flushing._flush()
    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
