"""What hangs in the kernel is given up, with a reason, and not waited for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from asyncio.subprocess import Process
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cache_runtime import app
from cache_runtime.config import CacheRuntimeSettings
from cache_runtime.engines import mounts
from cache_runtime.engines.juicefs import client, mount
from cache_runtime.engines.ports import Engine
from cache_runtime.node import NodeReporter
from cache_runtime.reconciler import RunReconciler
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.clock import ManualClock


async def _forever(*_: object) -> None:
    await asyncio.Event().wait()


async def _nothing() -> None: ...


async def test_a_process_that_cannot_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "CLIENT_KILL_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr("os.killpg", lambda *_: None)
    stuck = cast(Process, SimpleNamespace(pid=1, returncode=None, kill=lambda: None, wait=_forever))
    assert not await client.kill_session(stuck)
    await client.kill(stuck)


async def test_an_unmount_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def spawn(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(communicate=_forever, kill=lambda: None, returncode=None)

    monkeypatch.setattr(mounts, "KERNEL_MOUNT_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn)
    with pytest.raises(Retry, match="umount -l /mnt took more than 0 s"):
        await mounts.run_mount("umount", "-l", "/mnt")


async def test_a_cache_disk_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mount, "DISK_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(mount, "in_own_thread", _forever)
    with pytest.raises(Retry, match="the disk does not answer"):
        await mount._make_cache_directory(str(tmp_path))


HANGING = """
import threading
from concurrent.futures import ThreadPoolExecutor
from cache_runtime import __main__ as command

began = threading.Event()

def hang():
    began.set()
    threading.Event().wait()

def run(create_engine):
    ThreadPoolExecutor(1).submit(hang)
    began.wait()
    print("done")
    return 3

command.run = run
command.main()
"""


def test_threads_of_a_pool_do_not_hold_up_the_end_of_the_process() -> None:
    """As those that walk through a tree: Python waits for them, for ever on a file system that hangs."""
    ended = subprocess.run([sys.executable, "-c", HANGING], stdout=subprocess.PIPE, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (3, b"done\n")


async def test_a_mount_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "UNMOUNT_SECONDS", 0.0)
    stuck = asyncio.create_task(_forever())
    await app._end_of(stuck)
    await end(stuck)


async def test_no_report_says_that_the_mount_has_ended_while_it_ends() -> None:
    """It would be taken for the last one of an agent that is killed now: no writes were left here."""
    seen: list[str] = []

    async def regular() -> None:
        try:
            await _forever()
        finally:
            seen.append("no more regular reports")

    async def mounted(unmount: asyncio.Event) -> None:
        await unmount.wait()
        seen.append("unmounted")

    async def report_last() -> None:
        seen.append("last report")

    stop = asyncio.Event()
    stop.set()
    ending = object.__new__(app.App)
    engine = SimpleNamespace(
        mount=SimpleNamespace(run=mounted, is_mounted=False), transfer=SimpleNamespace(close=_nothing)
    )
    ending._clock, ending._engine = ManualClock(), cast(Engine, engine)  # type: ignore[assignment]
    ending._settings = cast(CacheRuntimeSettings, SimpleNamespace(flush_wait=0.0))
    ending._runs = cast(RunReconciler, SimpleNamespace(run=_forever))
    ending._node = cast(NodeReporter, SimpleNamespace(run=regular, report_last=report_last))
    await ending.run(stop)
    assert seen == ["no more regular reports", "unmounted", "last report"]


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
