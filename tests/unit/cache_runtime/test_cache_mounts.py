"""Mounting again, and what of former mounts is left, without a kernel that mounts anything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from cache_runtime.engines import base, view
from cache_runtime.engines.directory import mount as directory
from cache_runtime.engines.juicefs import mount as juicefs
from cache_runtime.engines.mounts import MountEntry
from cache_runtime.engines.view import View
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Retry

FAILURES = 1030
"""More than a float can be doubled."""


async def _unheard(message: str) -> None: ...


def _juicefs(top: Path) -> juicefs.JuiceFsMount:
    plan, nothing = juicefs.MountPlan(top / "view", top / "state", [], 0), cast(Any, None)
    return juicefs.JuiceFsMount(plan, nothing, nothing, nothing, ManualClock(), _unheard)


def _directory(top: Path) -> directory.DirectoryMount:
    nothing = cast(Any, None)
    return directory.DirectoryMount(top / "view", top / "state", nothing, nothing, ManualClock(), _unheard)


@pytest.mark.parametrize("make", [_juicefs, _directory])
async def test_a_mount_is_tried_again_however_often_it_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: Any
) -> None:
    pauses: list[float] = []
    mount = make(tmp_path)

    async def fail(stop: asyncio.Event) -> None:
        raise Retry("MountFailed", "no such volume")

    async def wait(stop: asyncio.Event, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == FAILURES:
            stop.set()

    monkeypatch.setattr(mount, "_mount_once", fail)
    monkeypatch.setattr(base, "wait", wait)
    await mount.run(asyncio.Event())
    assert pauses[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert pauses[6:] == [30.0] * (FAILURES - 6)


async def test_a_mount_goes_on_when_the_kernel_does_not_unmount_in_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As with a shared file system that hangs."""
    mount, stop, tries = _directory(tmp_path), asyncio.Event(), []

    async def fail(stop: asyncio.Event) -> None:
        tries.append(1)
        raise Retry("MountFailed", "no answer")

    async def hang(path: Path) -> None:
        raise Retry("MountFailed", "umount took more than 10 s")

    async def wait(stop: asyncio.Event, seconds: float) -> None:
        if len(tries) == 3:
            stop.set()

    async def nothing() -> None: ...

    monkeypatch.setattr(mount, "_mount_once", fail)
    monkeypatch.setattr(mount._view, "fail", nothing)
    monkeypatch.setattr(directory, "unmount", hang)
    monkeypatch.setattr(base, "wait", wait)
    await mount.run(stop)
    assert len(tries) == 3


TMPFS = MountEntry("0:1", "tmpfs", "paddlewheel")
DATA = MountEntry("0:2", "overlay", "paddlewheel")
DEAD = MountEntry("0:3", "fuse", "paddlewheel")
CLIENT = MountEntry("0:4", "fuse.juicefs", "JuiceFS:digits")


@pytest.mark.parametrize(
    ("layers", "wanted"),
    [
        ([DATA], [DATA, DEAD]),
        ([DATA, DEAD], [DATA, DEAD]),
        ([DATA, DEAD, DATA], [DATA, DEAD, DATA, DEAD]),
        ([CLIENT], [CLIENT, DEAD]),
    ],
)
async def test_a_view_that_fails_already_gets_no_other_layer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, layers: list[MountEntry], wanted: list[MountEntry]
) -> None:
    """Else a mount that keeps failing would pile them up."""
    path = tmp_path / "set" / "data"
    mounted = {path.parent: [TMPFS], path: [*layers]}

    async def mount_dead(at: Path) -> None:
        mounted[at].append(DEAD)

    monkeypatch.setattr(view, "mounts_at", lambda at: mounted[at])
    monkeypatch.setattr(view, "mount_dead", mount_dead)
    for _ in range(3):
        await View(path, tmp_path).fail()
    assert mounted[path] == wanted
