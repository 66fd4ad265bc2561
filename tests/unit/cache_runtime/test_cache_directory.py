"""The engine `directory`: what is listed, copied and kept, in plain directories."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast
from unittest.mock import AsyncMock

import pytest

from cache_runtime.beneath import opened_beneath
from cache_runtime.domain.model import CacheReport, File, FileName
from cache_runtime.domain.own_files import OwnFiles
from cache_runtime.engines import base
from cache_runtime.engines.directory import copies as copies_module
from cache_runtime.engines.directory import copying, transfer
from cache_runtime.engines.directory import layers as layers_module
from cache_runtime.engines.directory import mount as mount_module
from cache_runtime.engines.directory import shared as shared_module
from cache_runtime.engines.directory import volume as volume_module
from cache_runtime.engines.directory.cache import DirectoryCache
from cache_runtime.engines.directory.copies import Copies
from cache_runtime.engines.directory.copying import (
    CopyError,
    Pace,
    Place,
    copy_file,
    make_directories,
    opened_file,
    remove,
    remove_empty,
)
from cache_runtime.engines.directory.entries import Entry, entries, look_up
from cache_runtime.engines.directory.layers import Layer
from cache_runtime.engines.directory.mount import DirectoryMount
from cache_runtime.engines.directory.shared import MARKER, SharedDirectory
from cache_runtime.engines.directory.transfer import DirectoryTransfer
from cache_runtime.engines.directory.volume import DirectoryVolume
from cache_runtime.engines.ports import Ailment, Copied, SourceReading
from cache_runtime.listing import Walker
from cache_runtime.local_sources import LocalSources
from cache_runtime.operations.base import Node
from cache_runtime.operations.warmup import Warmup
from cache_runtime.secret_files import SecretFiles
from cache_runtime.threads import in_own_thread
from cache_runtime.tree import Tree
from cache_runtime.volume_record import ReportedVolume
from cache_runtime.walk import temporary_name
from paddlewheel.bus.memory import MemoryBus
from paddlewheel.bus.ports import Entry as KeyValueEntry
from paddlewheel.bus.streams import NODES_BUCKET
from paddlewheel.contracts.generated.cache_v1 import NodeStatus, RunSpec, SyncOperation, WarmupOperation
from paddlewheel.contracts.wire import to_json
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.wait import eventually

ODD = {b"a": b"1", b"a.b": b"", b"a-/c": b"333", b"d/\xff\ny": b"22", b"d.txt": b"4444"}


def write(top: Path, files: dict[bytes, bytes]) -> bytes:
    for name, content in files.items():
        path = top / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return os.fsencode(top)


def content(top: Path) -> dict[bytes, bytes]:
    files = (path for path in top.rglob("*") if path.is_file() and not path.is_symlink())
    return {os.fsencode(path.relative_to(top)): path.read_bytes() for path in files}


def copy(source: Place, target: Place) -> None:
    with opened_file(source) as (handle, found):
        copy_file(handle, found, target, Pace())


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


@pytest.fixture
def caches(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "cache-a"), str(tmp_path / "cache-b")]


def opened(shared: Path, caches: list[str], *, limit: int = 1 << 30) -> Copies:
    copies = Copies(os.fsencode(shared), caches, limit, 0.0)
    reopen(copies)
    return copies


def reopen(copies: Copies) -> Mapping[str, OSError]:
    """As a mount that is made: what is there is used once it has been compared."""
    copies.open("volume")
    return copies.sweep()


def has(copies: Copies, shared: Path, path: bytes) -> bool:
    found = look_up(os.fsencode(shared), path)
    return found is not None and copies.has(path, found)


async def test_a_set_stays_with_the_directory_that_it_was_mounted_from(shared: Path, tmp_path: Path) -> None:
    """Also in another process, and where the other one is marked as well."""
    other, named = tmp_path / "other", {"engine.bucket": f"file://{shared}"}
    write(other, {MARKER: b""})
    write(shared, {MARKER: b""})
    nodes = MemoryBus().key_value(NODES_BUCKET)

    def process(number: int) -> SharedDirectory:
        secrets = SimpleNamespace(read=lambda name: answer(named[name]))
        lent = SimpleNamespace(locate=lambda address: answer(address.removeprefix("file://")))
        record = ReportedVolume(nodes, "uid")
        return SharedDirectory(
            cast(LocalSources, lent), cast(SecretFiles, secrets), tmp_path / f"link-{number}", record
        )

    first = process(1)
    await first.open()
    await nodes.put("uid.0", to_json(NodeStatus(volume_id=first.volume_id)))
    named["engine.bucket"] = f"file://{other}"
    for directory in (first, process(2)):
        with pytest.raises(Permanent, match="another directory than the set was mounted from") as found:
            await directory.open()
        assert found.value.reason == "VolumeLost"
    assert first.path.readlink() == shared
    named["engine.bucket"] = f"file://{shared}"
    await first.open()


async def test_a_directory_that_was_mounted_without_the_bus_is_not_the_sets_once_the_bus_says_so(
    monkeypatch: pytest.MonkeyPatch, shared: Path, tmp_path: Path
) -> None:
    write(shared, {MARKER: b""})
    nodes, is_heard = MemoryBus().key_value(NODES_BUCKET), False
    await nodes.put("uid.1", to_json(NodeStatus(partition=1, volume_id="of another directory")))
    entries_of = nodes.entries

    async def silent(pattern: str) -> list[KeyValueEntry]:
        if not is_heard:
            raise Retry("BusUnreachable", "no answer")
        return await entries_of(pattern)

    monkeypatch.setattr(nodes, "entries", silent)
    secrets = SimpleNamespace(read=lambda name: answer(f"file://{shared}"))
    lent = SimpleNamespace(locate=lambda address: answer(str(shared)))
    record = ReportedVolume(nodes, "uid")
    opened_one = SharedDirectory(
        cast(LocalSources, lent), cast(SecretFiles, secrets), tmp_path / "link", record
    )
    mount = DirectoryMount(
        tmp_path / "view", tmp_path / "state", opened_one, cast(Copies, None), ManualClock(), unheard
    )
    monkeypatch.setattr(mount, "_check_view", lambda device: None)
    await opened_one.open()
    await mount._check()
    is_heard = True
    await record.recall()
    with pytest.raises(Retry, match="another directory than the set was mounted from") as found:
        await mount._check()
    assert found.value.reason == "VolumeLost"


@dataclass
class Moving:
    """A set whose address leads to `shared` first, and its mount."""

    top: Path
    shared: Path
    caches: list[str]

    def __post_init__(self) -> None:
        self.leads_to = self.shared
        secrets = SimpleNamespace(read=lambda name: answer("file:///srv/set"))
        self.lent = cast(LocalSources, SimpleNamespace(locate=lambda address: answer(str(self.leads_to))))
        record = ReportedVolume(MemoryBus().key_value(NODES_BUCKET), "uid")
        link = self.top / "link"
        self.directory = SharedDirectory(self.lent, cast(SecretFiles, secrets), link, record)
        self.copies = Copies(self.directory.root, self.caches, 1 << 30, 0.0)
        state = self.top / "state"
        self.mount = DirectoryMount(
            self.top / "view", state, self.directory, self.copies, ManualClock(), unheard
        )

    async def sync(self) -> None:
        """What looks whether the data set is there, before it copies."""
        transfer = DirectoryTransfer(self.directory, self.lent, self.lent)
        await transfer.copy(SyncOperation(source="file:///srv/import"), [], 0, set())


@pytest.fixture
async def moving(monkeypatch: pytest.MonkeyPatch, shared: Path, tmp_path: Path, caches: list[str]) -> Moving:
    write(shared, {MARKER: b"", b"a": b"1"})
    moving = Moving(tmp_path, shared, caches)
    monkeypatch.setattr(moving.mount, "_check_view", lambda device: None)
    await moving.directory.open()
    moving.copies.open(moving.directory.volume_id)
    moving.copies.sweep()
    moving.copies.add(b"a", Pace())
    return moving


@pytest.mark.parametrize("there", ["empty", "absent"])
async def test_an_export_that_is_not_mounted_moves_nothing(
    moving: Moving, tmp_path: Path, there: str
) -> None:
    """For a moment, in which a sync looks: no sweep may take the copies for those of files that are gone."""
    moving.leads_to = tmp_path / "mount-point"
    if there == "empty":
        moving.leads_to.mkdir()
    for attempt in (moving.sync, moving.directory.open):
        with pytest.raises((Permanent, OSError), match=r"mount the shared file system|No such file"):
            await attempt()
    assert moving.directory.path.readlink() == moving.shared
    moving.mount._sweep()
    assert moving.copies.used == 1
    await moving.mount._check()
    assert not await moving.mount._has_moved()


async def test_another_export_is_used_by_nobody_before_it_is_mounted_for_pods(
    moving: Moving, tmp_path: Path
) -> None:
    """Else a sync would succeed, and pods would not see its files."""
    moving.leads_to = tmp_path / "other"
    write(moving.leads_to, {MARKER: b""})
    with pytest.raises(Retry, match=r"MountLost: .*another file system"):
        await moving.sync()
    assert moving.directory.path.readlink() == moving.shared
    assert await moving.mount._has_moved()
    await moving.directory.open()
    assert moving.directory.path.readlink() == moving.leads_to
    assert not await moving.mount._has_moved()
    await moving.mount._check()


async def test_a_file_server_that_has_gone_keeps_no_sync_from_its_successor(
    moving: Moving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call on its file system never ends, and another one is mounted in its place."""
    answers, stat = threading.Event(), os.stat

    def silent(path: str | Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if str(path) == str(moving.shared):
            answers.wait()
        return stat(path, follow_symlinks=follow_symlinks)

    moving.leads_to = tmp_path / "other"
    write(moving.leads_to, {MARKER: b""})
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", silent)
        try:
            async with asyncio.timeout(20):
                with pytest.raises(Retry, match=r"MountLost: .*another file system"):
                    await moving.sync()
        finally:
            answers.set()


async def test_what_is_listed_while_the_mount_follows_is_not_complete(
    monkeypatch: pytest.MonkeyPatch, moving: Moving, tmp_path: Path
) -> None:
    """A part of it would be of the former volume, and of the other one what that has not is missing."""
    monkeypatch.setattr(moving.mount, "_show", AsyncMock())
    for top in (moving.shared, tmp_path / "other"):
        write(top, {MARKER: b"", b"d/1": b"", b"e/1": b""})
    moving.leads_to = tmp_path / "other"
    await moving.mount._set_mounted()
    loop, walk = asyncio.get_running_loop(), Tree.walk

    def walk_and_follow(tree: Tree, walker: Walker, path: str, name: str) -> Iterator[File]:
        yield from walk(tree, walker, path, name)
        if path == "d":
            asyncio.run_coroutine_threadsafe(moving.mount._follow(), loop).result()

    engine: Any = SimpleNamespace(mount=moving.mount, cache=None)
    tree = Tree(moving.directory.path, OwnFiles, 1)
    warmup = Warmup(Node(engine, tree, [], ManualClock()))
    spec = RunSpec(run_id="r", partitions=1, warmup=WarmupOperation(paths=["d", "e"], strategy="sequence"))
    with monkeypatch.context() as patched:
        patched.setattr(Tree, "walk", walk_and_follow)
        with pytest.raises(Retry, match="the mount was lost, or has moved"):
            _ = [batch async for batch in warmup.list(spec)]
    listed = [file.path async for batch in warmup.list(spec) for file in batch.files]
    assert listed == ["d/1", "e/1"]


async def test_whoever_reads_hears_that_the_mount_was_lost_or_is_back(moving: Moving) -> None:
    mount = moving.mount
    for change in (mount._set_mounted, lambda: mount._set_lost("MountLost", "silent")):
        waiting = asyncio.create_task(mount.wait_changed(before := mount.changes))
        await asyncio.sleep(0)
        assert not waiting.done()
        await change()
        async with asyncio.timeout(30):
            await waiting
        assert mount.changes > before


@pytest.mark.parametrize("follows", [True, False], ids=["the mount follows", "the mount stays"])
async def test_what_is_copied_or_removed_while_the_volume_moves_is_done_again(
    moving: Moving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follows: bool
) -> None:
    """It has ended in the former directory, and a file of the same size in the other one proves nothing."""
    source, other = tmp_path / "import", tmp_path / "other"
    write(source, {b"a": b"2"})
    write(other, {MARKER: b"", b"a": b"1"})
    lent = SimpleNamespace(locate=lambda address: answer(str(source)))
    engine = DirectoryTransfer(moving.directory, cast(LocalSources, lent), moving.lent)
    volume = DirectoryVolume(moving.mount, moving.directory, moving.copies)
    sync = SyncOperation(source="file:///srv/import", force_update=True)
    former = moving.directory.path.resolve() / "a"
    await engine.copy(sync, [b"a"], 0, set())
    for module, attempt in (
        (transfer, lambda: engine.copy(sync, [b"a"], 0, set())),
        (volume_module, lambda: volume.remove(moving.directory.path / "a")),
    ):
        moving.leads_to = moving.shared
        await moving.directory.open()
        call = module.in_own_thread_until

        async def move(stop: threading.Event, work: Any, call: Any = call) -> object:
            done = await call(stop, work)
            moving.leads_to = other
            if follows:
                await moving.directory.open()
            return done

        with monkeypatch.context() as patched:
            patched.setattr(module, "in_own_thread_until", move)
            with pytest.raises(Retry, match=r"MountLost: .*another file system"):
                await attempt()
    await moving.directory.open()
    with pytest.raises(Retry, match=r"MountLost: .*another file system"):
        await volume.remove(former)
    assert (other / "a").exists()


async def test_a_volume_that_says_nothing_is_not_waited_for(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(base, "LOST_MOUNT_TIMEOUT_SECONDS", 0.1)
        patched.setattr(shared_module, "_marker", lambda directory, path: answers.wait())
        try:
            for attempt in (moving.sync, moving.directory.open):
                async with asyncio.timeout(20):
                    with pytest.raises(Retry, match=r"MountLost: /srv/set did not answer"):
                        await attempt()
        finally:
            answers.set()


async def test_nothing_is_copied_before_the_first_mount(tmp_path: Path, shared: Path) -> None:
    write(shared, {MARKER: b""})
    with pytest.raises(Retry, match=r"MountLost: .*not mounted yet"):
        await Moving(tmp_path, shared, []).sync()


@pytest.mark.parametrize("at", ["joining", "showing"])
async def test_what_fails_to_be_shown_is_shown_with_the_next_refresh(
    monkeypatch: pytest.MonkeyPatch, moving: Moving, at: str
) -> None:
    """Pods keep the former join meanwhile; it is no longer where a refresh would reach it."""
    joins, fails, joined, seen = count(1), False, "", ""

    async def join(layers: list[bytes]) -> str:
        nonlocal joined
        joined = ""
        if fails and at == "joining":
            raise Retry("MountFailed", "no answer")
        joined = f"0:{next(joins)}"
        return joined

    async def show(volume: Path) -> None:
        nonlocal seen
        if fails and at == "showing":
            raise Retry("MountFailed", "no answer")
        seen = joined

    async def remount(*command: str) -> None:
        if not joined:
            raise Retry("MountFailed", "not mounted")

    mount = moving.mount
    monkeypatch.setattr(mount, "_join", join)
    monkeypatch.setattr(mount._view, "show", show)
    monkeypatch.setattr(mount_module, "run_mount", remount)
    await mount._show()
    await mount._set_mounted()
    fails = True
    with pytest.raises(Retry, match="no answer"):
        await mount._show()
    assert (mount._device, seen) == ("0:1", "0:1")
    fails = False
    await mount.refresh()
    assert mount._device == seen == joined != "0:1"


async def test_what_is_being_shown_is_known_also_when_the_run_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, moving: Moving
) -> None:
    """Else pods would seem to see another file system than theirs, and lose it."""
    begun, ends = asyncio.Event(), asyncio.Event()

    async def join(layers: list[bytes]) -> str:
        return "0:1"

    async def show(volume: Path) -> None:
        begun.set()
        await ends.wait()

    monkeypatch.setattr(moving.mount, "_join", join)
    monkeypatch.setattr(moving.mount._view, "show", show)
    await moving.mount._set_mounted()
    refreshing = asyncio.create_task(moving.mount.refresh())
    await begun.wait()
    refreshing.cancel()
    await asyncio.sleep(0)
    ends.set()
    with pytest.raises(asyncio.CancelledError):
        await refreshing
    assert moving.mount._device == "0:1"


async def test_nothing_is_shown_on_top_of_what_hides_a_mount_that_is_lost(
    monkeypatch: pytest.MonkeyPatch, moving: Moving
) -> None:
    mount, seen = moving.mount, list[str]()

    async def join(layers: list[bytes]) -> str:
        return "0:1"

    async def show(volume: Path) -> None:
        seen.append("joined")

    async def fail() -> None:
        seen.append("dead")

    async def nothing(path: Path) -> None: ...

    monkeypatch.setattr(mount, "_join", join)
    monkeypatch.setattr(mount._view, "show", show)
    monkeypatch.setattr(mount._view, "fail", fail)
    monkeypatch.setattr(mount_module, "unmount", nothing)
    await mount._set_mounted()
    async with mount._showing:
        refreshing = asyncio.create_task(mount.refresh())
        await asyncio.sleep(0)
        await mount._set_lost("MountLost", "no answer")
        hiding = asyncio.create_task(mount._hide(asyncio.Event()))
        await asyncio.sleep(0)
    await asyncio.gather(refreshing, hiding)
    assert seen == ["dead"]


async def test_a_mount_ends_with_what_has_ended_its_sweeps(
    monkeypatch: pytest.MonkeyPatch, moving: Moving
) -> None:
    """Pods would be shown stale copies for ever, and nobody would know."""

    async def nothing(*_: object) -> bool:
        return False

    def fail() -> NoReturn:
        raise RuntimeError("a bug")

    monkeypatch.setattr(mount_module, "MOUNT_PROBE_INTERVAL_SECONDS", 3600.0)
    for name in ("_check", "_has_moved"):
        monkeypatch.setattr(moving.mount, name, nothing)
    monkeypatch.setattr(moving.mount, "_sweep", fail)
    async with asyncio.timeout(30):
        with pytest.raises(RuntimeError, match="a bug"):
            await moving.mount._keep(asyncio.Event())


@pytest.mark.parametrize("goes", ["it falls silent", "it is unmounted", "stop"])
async def test_pods_wait_for_no_comparison_and_it_hides_no_file_server_that_goes(
    monkeypatch: pytest.MonkeyPatch, moving: Moving, goes: str
) -> None:
    """After a silence of ten seconds a million copies would keep pods of all nodes waiting for minutes."""
    mount, shown, stop = moving.mount, list[list[bytes]](), asyncio.Event()
    comparing, answers, is_silent = threading.Event(), threading.Event(), threading.Event()

    async def join(layers: list[bytes]) -> str:
        shown.append(layers)
        return "0:1"

    def compare(path: bytes) -> None:
        comparing.set()
        answers.wait()

    def look() -> None:
        if is_silent.is_set():
            answers.wait()

    monkeypatch.setattr(mount_module, "MOUNT_PROBE_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(mount, "_join", join)
    monkeypatch.setattr(mount._view, "show", AsyncMock())
    monkeypatch.setattr(mount, "_sweep", moving.copies.sweep)
    monkeypatch.setattr(moving.directory, "check", look)
    monkeypatch.setattr(moving.copies, "find", compare)
    once = asyncio.create_task(mount._mount_once(stop))
    try:
        await eventually(comparing.is_set, what="copies are compared")
        assert (mount.is_mounted, shown, moving.copies.used) == (True, [[]], 0)
        with pytest.raises(Retry, match="are compared"):
            await DirectoryCache(mount, moving.copies).use()
        if goes == "it falls silent":
            # Not before: a busy machine takes as long to answer.
            monkeypatch.setattr(base, "LOST_MOUNT_TIMEOUT_SECONDS", 0.05)
            is_silent.set()
        elif goes == "it is unmounted":
            monkeypatch.setattr(moving.directory, "check", partial(shared_module._marker, "/", "/srv/set"))
        else:
            stop.set()
        problem = {"it falls silent": "did not answer", "it is unmounted": "mount the shared file system"}
        async with asyncio.timeout(10):
            with pytest.raises((Retry, Permanent), match=problem[goes]) if goes in problem else nullcontext():
                await once
        assert asyncio.all_tasks() == {asyncio.current_task()}, "nobody waits for the comparison"
    finally:
        answers.set()


async def test_layers_are_shown_once_they_have_been_compared(
    monkeypatch: pytest.MonkeyPatch, moving: Moving
) -> None:
    mount, shown, stop, fails = moving.mount, list[list[bytes]](), asyncio.Event(), True

    async def join(layers: list[bytes]) -> str:
        shown.append(layers)
        return "0:1"

    def find(path: bytes) -> os.stat_result | None:
        if fails:
            raise Retry("MountLost", "the data set: 'd': Permission denied (EACCES)")
        return real(path)

    real = moving.copies.find
    monkeypatch.setattr(mount_module, "MOUNT_PROBE_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(mount_module, "COMPARED_WITHIN", 0.01)
    monkeypatch.setattr(mount, "_join", join)
    monkeypatch.setattr(mount._view, "show", AsyncMock())
    monkeypatch.setattr(mount_module, "run_mount", AsyncMock())
    monkeypatch.setattr(moving.copies, "find", find)
    with pytest.raises(Retry, match="not mounted yet"):
        await mount.wait_compared()
    once = asyncio.create_task(mount._mount_once(stop))
    try:
        await eventually(lambda: mount.ailment, what="the comparison that fails is told")
        assert mount.ailment == Ailment("MountLost", "the data set: 'd': Permission denied (EACCES)")
        with pytest.raises(Retry, match="Permission denied"):
            await DirectoryCache(mount, moving.copies).check([], 1)
        with pytest.raises(Retry, match="Permission denied"):
            await DirectoryCache(mount, moving.copies).use()
        assert shown == [[]]
        fails = False
        await cast(ManualClock, mount._clock).advance(mount_module.SWEEP_EVERY)
        # The first may be shown before the other is compared.
        both = [layer.path for layer in moving.copies.layers]
        await eventually(lambda: mount._shown == both, what="copies are shown")
        assert shown[0] == []
        assert all(layers == both[: len(layers)] for layers in shown)
        await mount.wait_compared()
        assert mount.ailment is None
    finally:
        stop.set()
        await once


@pytest.mark.parametrize("begins", ["before the mount", "while it is mounted"])
async def test_a_cache_disk_that_hangs_keeps_no_node_from_mounting_and_is_told(
    monkeypatch: pytest.MonkeyPatch, moving: Moving, begins: str
) -> None:
    """The layers before it are used, by pods and by warmups, and it is when it answers again."""
    mount, first, second = moving.mount, *moving.copies.layers
    hangs, answers, stop = begins == "before the mount", threading.Event(), asyncio.Event()
    clock = cast(ManualClock, mount._clock)

    def hang(root: bytes) -> Iterator[Entry]:
        if hangs and root == second.path:
            answers.wait()
        yield from entries(root)

    async def is_told() -> bool:
        """More time passes than the mount needs to look."""
        await clock.advance(1)
        told = mount.ailment.message if mount.ailment else ""
        return mount.is_mounted and told.startswith(f"cache directory {second.directory}: comparing")

    async def is_well() -> bool:
        await clock.advance(1)
        return mount.ailment is None and moving.copies.sound == [first.path, second.path]

    monkeypatch.setattr(copies_module, "entries", hang)
    monkeypatch.setattr(mount_module, "MOUNT_PROBE_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(mount, "_join", AsyncMock(return_value="0:1"))
    monkeypatch.setattr(mount_module, "run_mount", AsyncMock())
    monkeypatch.setattr(mount._view, "show", AsyncMock())
    once = asyncio.create_task(mount._mount_once(stop))
    try:
        if not hangs:
            await eventually(lambda: mount.is_mounted, what="it is mounted")
            hangs = True
        await eventually(is_told, every=0.01, what="the disk that hangs is named")
        if begins == "before the mount":
            assert moving.copies.sound == [first.path]
            await eventually(lambda: mount._shown == [first.path], what="the other one is shown")
        await mount.wait_compared()
        hangs = False
        answers.set()
        await eventually(is_well, every=0.01, what="the disk is used")
    finally:
        answers.set()
        stop.set()
        await once


async def test_a_cache_disk_that_hangs_keeps_no_other_waiting(
    shared: Path, caches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a warmup looks at a copy on it. Nothing is shown that nobody has compared, either."""
    names = [b"%d" % number for number in range(20)]
    root = write(shared, dict.fromkeys(names, b"1"))
    copies, asked, answers = opened(shared, caches), threading.Event(), threading.Event()
    first, second = copies.layers
    for name in names:
        copies.add(name, Pace())

    def hang(top: bytes, path: bytes) -> os.stat_result | None:
        if top == first.path:
            asked.set()
            answers.wait()
        return look_up(top, path)

    def on(layer: Layer) -> bytes:
        return next(name for name in names if copies._layer(name) is layer)

    write(shared, dict.fromkeys(names, b"22"))
    monkeypatch.setattr(copies_module, "look_up", hang)
    calls: list[asyncio.Task[Any]] = [
        asyncio.create_task(in_own_thread(lambda: copies.add(on(first), Pace())))
    ]
    try:
        await asyncio.to_thread(asked.wait)
        async with asyncio.timeout(30):
            await in_own_thread(lambda: copies.add(on(second), Pace()))
            assert copies.has(on(second), cast(os.stat_result, look_up(root, on(second))))
            await in_own_thread(lambda: copies.open("volume"))
        assert copies.sound == []
        calls.append(asyncio.create_task(in_own_thread(copies.sweep)))
        await eventually(lambda: copies.step.directory == first.directory, what="the one that hangs is named")
    finally:
        answers.set()
        await asyncio.gather(*calls)
    assert copies.sound == [first.path, second.path]


def test_a_sweep_waits_for_what_the_one_before_has_begun_to_change(
    shared: Path, caches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its layer would be found well, and changed afterwards."""
    write(shared, {b"f": b"1"})
    copies, began, goes_on = opened(shared, caches[:1]), threading.Event(), threading.Event()
    copies.add(b"f", Pace())
    (shared / "f").unlink()

    def slow(layer: bytes, path: bytes) -> None:
        began.set()
        goes_on.wait()
        remove(layer, path)

    monkeypatch.setattr(copies_module, "remove", slow)
    with ThreadPoolExecutor(2) as pool:
        try:
            former = pool.submit(copies.sweep)
            began.wait()
            copies.open("volume")
            write(shared, {b"f": b"1"})
            later = pool.submit(copies.sweep)
            assert futures.wait([later], timeout=0.1).not_done
        finally:
            goes_on.set()
        assert (former.result(), later.result()) == ({}, {})
    assert copies.used == 0


@pytest.mark.parametrize("named", [["level/1"], ["level/1", "level/2"], ["other", "level/1"]])
def test_a_part_of_a_level_is_not_cleared_without_the_level(
    tmp_path: Path, shared: Path, named: list[str]
) -> None:
    """There is nothing in it: such a clear would succeed, and free nothing."""
    directories = [str(tmp_path / name) for name in ("other", "level", "level/1", "level/2")]
    write(shared, ODD)
    copies = opened(shared, directories)
    for path in ODD:
        copies.add(path, Pace())
    used = copies.used
    with pytest.raises(
        Permanent, match=r"^InvalidPath: clearOptions\.paths: '.*/level/1' is a part of '.*/level'"
    ):
        copies.clear([str(tmp_path / name) for name in named])
    assert copies.used == used
    assert copies.clear(directories) == {}
    assert copies.used == 0


@pytest.fixture
async def cache(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> DirectoryCache:
    """That of a node whose copies are compared."""
    monkeypatch.setattr(moving.mount, "refresh", AsyncMock())
    await moving.mount._set_mounted()
    moving.mount._compared.set()
    return DirectoryCache(moving.mount, moving.copies)


def found(top: Path, *names: str) -> list[FileName]:
    return [FileName(name, (top / name).stat().st_ino) for name in names]


async def test_each_name_of_a_file_is_cached_and_counts(moving: Moving, cache: DirectoryCache) -> None:
    """As warmups expect it, who list each of them."""
    write(moving.shared, {b"d/%d" % number: b"1" * 1000 for number in range(4)})
    for number in range(4):
        os.link(moving.shared / f"d/{number}", moving.shared / f"d/again-{number}")
    names = [f"d/{prefix}{number}" for number in range(4) for prefix in ("", "again-")]
    files = found(moving.shared, *names)
    assert await cache.check(files, 2) == CacheReport(8, 8000, 8000)
    await cache.warm(files, 2)
    assert await cache.check(files, 2) == CacheReport(8, 8000, 0)


async def test_only_what_is_asked_for_is_looked_at_however_much_of_it_has_gone(
    moving: Moving, cache: DirectoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the data set for each file of a chunk that was replaced, nor a directory that may not be read."""
    write(moving.shared, {b"public/%d" % number: b"1" for number in range(6)})
    names = [f"public/{number}" for number in range(6)]
    files, asked, real = found(moving.shared, *names), set[bytes](), moving.copies.find
    (moving.shared / "public/0").unlink()
    (moving.shared / "public/1").rename(moving.shared / "public/other")
    (moving.shared / "public/2").rename(moving.shared / "public/3")

    def find(path: bytes) -> os.stat_result | None:
        asked.add(path)
        return real(path)

    monkeypatch.setattr(moving.copies, "find", find)
    monkeypatch.setattr(copies_module, "entries", lambda *_: pytest.fail("all is listed"))
    await cache.warm(files, 2)
    assert await cache.check(files, 2) == CacheReport(2, 2, 0)
    assert asked == set(map(str.encode, names))


async def test_a_data_set_that_fails_is_not_called_a_disk_of_the_cache(
    moving: Moving, cache: DirectoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(top: bytes, path: bytes) -> os.stat_result | None:
        if top == moving.directory.root:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), "home-of-bob")
        return look_up(top, path)

    files = found(moving.shared, "a")
    monkeypatch.setattr(copies_module, "look_up", fail)
    for attempt in (cache.warm(files, 1), cache.check(files, 1)):
        with pytest.raises(
            Retry, match=r"^MountLost: the data set: 'home-of-bob': Permission denied \(EACCES\)"
        ):
            await attempt


async def test_a_check_that_is_given_up_asks_no_more(
    moving: Moving, cache: DirectoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a million files, by a run that was cancelled: each retry would leave a thread."""
    asked, begun, answers = list[bytes](), threading.Event(), threading.Event()

    def find(path: bytes) -> os.stat_result | None:
        asked.append(path)
        begun.set()
        answers.wait()
        return None

    monkeypatch.setattr(moving.copies, "find", find)
    checking = asyncio.create_task(cache.check([FileName(f"{number}", 1) for number in range(100)], 1))
    await asyncio.to_thread(begun.wait)
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    answers.set()
    for thread in threading.enumerate():
        if thread.name == "blocking-call":
            await asyncio.to_thread(thread.join)
    assert asked == [b"0"]


def test_copies_in_numbered_directories_of_a_level_are_nobodys(tmp_path: Path, shared: Path) -> None:
    """A release before has placed them there; other sets have theirs beside them."""
    write(shared, {b"f": b"1"})
    level = tmp_path / "level"
    old = {b"1/volume/raw/d/f": b"1", b"2/volume/raw/f": b"1", b"1/other/raw/f": b"1"}
    write(level, {**old, b"volume/raw/f": b"1"})
    copies = Copies(os.fsencode(shared), [str(level), f"{level}/1", f"{level}/2", f"{level}/3"], 9, 0.0)
    assert reopen(copies) == {}
    assert content(level).keys() >= old.keys(), "no mount waits for what nobody uses"
    copies.remove_numbered()
    assert set(content(level)) <= {b"1/other/raw/f", b"volume/raw/f"}
    copies.clear([str(level)])
    assert set(content(level)) == {b"1/other/raw/f"}


def test_a_copy_of_an_older_release_that_cannot_be_removed_keeps_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shared: Path
) -> None:
    level = tmp_path / "level"
    write(level, {b"1/volume/raw/f": b"1", b"2/volume/raw/f": b"1"})

    def fail(root: bytes, path: bytes) -> None:
        if root == os.fsencode(level / "2"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        remove(root, path)

    monkeypatch.setattr(layers_module, "remove", fail)
    copies = Copies(os.fsencode(shared), [str(level), f"{level}/1", f"{level}/2"], 9, 0.0)
    assert reopen(copies) == {}
    copies.remove_numbered()
    assert set(content(level)) == {b"2/volume/raw/f"}
    assert copies.sound == [os.fsencode(level / "volume/raw")]


async def test_a_mount_removes_what_an_older_release_has_placed_elsewhere(
    monkeypatch: pytest.MonkeyPatch, moving: Moving
) -> None:
    removed, loop = asyncio.Event(), asyncio.get_running_loop()
    monkeypatch.setattr(moving.copies, "remove_numbered", lambda: loop.call_soon_threadsafe(removed.set))
    keeping = asyncio.create_task(moving.mount._keep(asyncio.Event()))
    try:
        async with asyncio.timeout(30):
            await removed.wait()
    finally:
        await end(keeping)


@pytest.mark.parametrize("path", [b"f", b"d/f"])
def test_what_a_file_server_that_has_gone_answers_late_removes_no_copy(
    monkeypatch: pytest.MonkeyPatch, shared: Path, caches: list[str], path: bytes
) -> None:
    """A sweep has asked it; its successor has the file."""
    write(shared, {path: b"1"})
    copies, asked, answers = opened(shared, caches[:1]), threading.Event(), threading.Event()
    copies.add(path, Pace())
    real, root = copies.find, path.partition(b"/")[0]

    def late(name: bytes) -> os.stat_result | None:
        if name != root or threading.current_thread() is threading.main_thread():
            return real(name)
        asked.set()
        answers.wait()
        return None

    monkeypatch.setattr(copies, "find", late)
    sweeping = threading.Thread(target=copies.sweep)
    sweeping.start()
    asked.wait()
    assert reopen(copies) == {}
    answers.set()
    sweeping.join()
    assert (has(copies, shared, path), copies.used) == (True, 1)


def test_what_a_file_server_that_has_gone_answers_late_changes_no_permissions(
    monkeypatch: pytest.MonkeyPatch, shared: Path, caches: list[str]
) -> None:
    """The directory of copies hides that of the data set: its successor's would be closed to pods."""
    write(shared, {b"d/f": b"1"})
    copies = opened(shared, caches[:1])
    copies.add(b"d/f", Pace())
    directory, real = Path(caches[0], "volume/raw/d"), copies.find
    mode = directory.stat().st_mode

    def late(path: bytes) -> os.stat_result | None:
        if path == b"d":
            (shared / "d").chmod(0o700)
            found = real(path)
            (shared / "d").chmod(mode)
            monkeypatch.setattr(copies, "find", real)
            assert reopen(copies) == {}
            return found
        return real(path)

    monkeypatch.setattr(copies, "find", late)
    copies.sweep()
    assert directory.stat().st_mode == mode


def test_a_sweep_that_another_has_followed_asks_the_file_server_no_more(
    monkeypatch: pytest.MonkeyPatch, shared: Path, caches: list[str]
) -> None:
    """Each silence would add one, and all of them would ask for every file."""
    names = [b"%d" % number for number in range(20)]
    write(shared, dict.fromkeys(names, b"1"))
    copies = opened(shared, caches)
    for name in names:
        copies.add(name, Pace())
    real, former = copies.find, list[bytes]()

    def asked(path: bytes) -> os.stat_result | None:
        former.append(path)
        if len(former) == 2:
            monkeypatch.setattr(copies, "find", real)
            assert reopen(copies) == {}
            monkeypatch.setattr(copies, "find", asked)
        return real(path)

    monkeypatch.setattr(copies, "find", asked)
    copies.sweep()
    assert len(former) <= 1 + len(caches)
    assert copies.sound == [layer.path for layer in copies.layers]
    assert copies.used == len(names)


def test_copies_of_a_data_set_whose_root_is_not_found_are_counted_as_long_as_they_are_there(
    monkeypatch: pytest.MonkeyPatch, shared: Path, caches: list[str]
) -> None:
    write(shared, {b"f": b"1"})
    copies = opened(shared, caches[:1])
    copies.add(b"f", Pace())
    real = copies.find
    monkeypatch.setattr(copies, "find", lambda path: real(path) if path else None)
    monkeypatch.setattr(copies.layers[0], "settle", lambda *_: None)
    assert copies.sweep() == {}
    assert copies.used == 1


def test_a_cache_disk_that_fails_is_told_by_its_directory() -> None:
    error = OSError(errno.EIO, os.strerror(errno.EIO), "d/a")
    told = mount_module._ailment({"/ssd/a": error})
    assert told is not None
    assert (told.reason, told.message) == (
        "CacheDiskFailed",
        "cache directory /ssd/a: 'd/a': Input/output error (EIO)",
    )
    assert mount_module._ailment({}) is None


async def unheard(message: str) -> None: ...


async def answer(text: str) -> str:
    return text


class TestEntries:
    def test_in_the_order_of_their_keys(self, shared: Path) -> None:
        root = write(shared, ODD)
        keys = [entry.key for entry in entries(root)]
        assert keys == sorted([*ODD, b"a-/", b"d/"])

    def test_links_are_listed_and_not_followed(self, shared: Path, tmp_path: Path) -> None:
        write(tmp_path / "outside", {b"secret": b"1"})
        (shared / "link").symlink_to(tmp_path / "outside")
        (shared / "loop").symlink_to("loop")
        found = list(entries(os.fsencode(shared)))
        assert [entry.key for entry in found] == [b"link", b"loop"]
        assert not any(entry.is_file or entry.is_directory for entry in found)

    def test_keys_are_relative_to_the_top(self, shared: Path) -> None:
        root = write(shared, {b"d/e/f": b"1"})
        assert [entry.key for entry in entries(root, b"d")] == [b"e/", b"e/f"]

    def test_a_top_that_is_absent_or_a_link_is_an_error(self, shared: Path) -> None:
        (shared / "link").symlink_to("/etc")
        for top in (b"none", b"link"):
            with pytest.raises(OSError, match=r"."):
                list(entries(os.fsencode(shared), top))


class TestCopying:
    def test_whole_with_its_time(self, shared: Path, tmp_path: Path) -> None:
        root = write(shared, {b"a": b"x" * 3_000_000})
        os.utime(shared / "a", ns=(5, 1_700_000_000_123_456_789))
        target = write(tmp_path / "target", {b"d/other": b""})
        copy(Place(root, b"a"), Place(target, b"d/a"))
        copied = tmp_path / "target" / "d" / "a"
        assert copied.read_bytes() == (shared / "a").read_bytes()
        assert copied.stat().st_mtime_ns == 1_700_000_000_123_456_789

    @pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
    def test_only_regular_files(self, shared: Path, kind: str) -> None:
        """A pipe that nobody writes to is not waited for."""
        path = shared / "a"
        if kind == "link":
            write(shared, {b"b": b"1"})
            path.symlink_to("b")
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
        with pytest.raises((CopyError, OSError)):
            copy(Place(os.fsencode(shared), b"a"), Place(os.fsencode(shared), b"copied"))
        assert not (shared / "copied").exists()

    def test_a_file_that_grows_meanwhile_is_not_copied(
        self, shared: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root = write(shared, {b"a": b"new", b"target": b"old"})
        original = copying._copy_content

        def grow(source: int, target: int, pace: Pace) -> None:
            original(source, target, pace)
            with (shared / "a").open("ab") as file:
                file.write(b"more")

        monkeypatch.setattr(copying, "_copy_content", grow)
        with pytest.raises(CopyError, match="changed"):
            copy(Place(root, b"a"), Place(root, b"target"))
        assert content(shared) == {b"a": b"newmore", b"target": b"old"}

    def test_a_target_behind_a_link_that_leads_out_is_refused(self, shared: Path, tmp_path: Path) -> None:
        root = write(shared, {b"a": b"1"})
        (tmp_path / "outside").mkdir()
        (shared / "d").symlink_to(tmp_path / "outside")
        with pytest.raises(OSError, match=r"."):
            copy(Place(root, b"a"), Place(root, b"d/a"))
        with pytest.raises(OSError, match=r"."):
            make_directories(root, b"d/e")
        assert list((tmp_path / "outside").iterdir()) == []

    def test_a_target_that_is_a_link_is_replaced(self, shared: Path, tmp_path: Path) -> None:
        root = write(shared, {b"a": b"1"})
        write(tmp_path / "outside", {b"kept": b"kept"})
        (shared / "b").symlink_to(tmp_path / "outside" / "kept")
        copy(Place(root, b"a"), Place(root, b"b"))
        assert (shared / "b").read_bytes() == b"1"
        assert (tmp_path / "outside" / "kept").read_bytes() == b"kept"

    def test_a_cancelled_copy_leaves_nothing(self, shared: Path) -> None:
        root, pace = write(shared, {b"a": b"1"}), Pace()
        pace.stop.set()
        with opened_file(Place(root, b"a")) as (handle, found), pytest.raises(CopyError, match="cancelled"):
            copy_file(handle, found, Place(root, b"b"), pace)
        assert content(shared) == {b"a": b"1"}

    def test_the_pace_is_that_of_all_threads_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: 0.0)
        pace, waited = Pace(mbps=8), list[float]()
        monkeypatch.setattr(pace.stop, "wait", lambda pause: waited.append(pause))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(pace.spend, [1_000_000] * 4))
        assert sorted(waited) == [0, 1, 2, 3]


class TestRemoving:
    def test_what_a_link_leads_to_stays(self, shared: Path, tmp_path: Path) -> None:
        root = write(shared, {b"d/a": b"1"})
        write(tmp_path / "outside", {b"kept": b"1"})
        (shared / "d" / "link").symlink_to(tmp_path / "outside")
        (shared / "top").symlink_to(tmp_path / "outside")
        remove(root, b"d")
        remove(root, b"top")
        (shared / "way").symlink_to(tmp_path / "outside")
        with pytest.raises(OSError, match=r"."):
            remove(root, b"way/kept")
        assert content(tmp_path / "outside") == {b"kept": b"1"}
        assert content(shared) == {}

    def test_more_levels_than_python_can_remove_are_an_error(self, shared: Path) -> None:
        for _ in range(1100):
            (shared / "inner").mkdir()
            if (shared / "d").exists():
                (shared / "d").rename(shared / "inner" / "d")
            (shared / "inner").rename(shared / "d")
        with pytest.raises(OSError, match="too many directories"):
            remove(os.fsencode(shared), b"d")
        subprocess.run(["rm", "-r", shared / "d"], check=True)

    def test_a_directory_that_is_not_empty_stays(self, shared: Path) -> None:
        root = write(shared, {b"d/a": b"1", b"e/f/g": b"1"})
        remove(root, b"e/f/g")
        for path in (b"d", b"e/f", b"e", b"none"):
            remove_empty(root, path)
        assert content(shared) == {b"d/a": b"1"}
        assert not (shared / "e").exists()


class TestCopies:
    def test_what_was_added_is_there(self, shared: Path, caches: list[str]) -> None:
        write(shared, ODD)
        copies = opened(shared, caches)
        assert not any(has(copies, shared, path) for path in ODD)
        for path in ODD:
            copies.add(path, Pace())
        assert all(has(copies, shared, path) for path in ODD)
        assert copies.used == sum(map(len, ODD.values()))
        assert {**content(Path(caches[0], "volume/raw")), **content(Path(caches[1], "volume/raw"))} == ODD

    def test_the_next_process_finds_them(self, shared: Path, caches: list[str]) -> None:
        write(shared, ODD)
        for path in ODD:
            opened(shared, caches).add(path, Pace())
        again = opened(shared, caches)
        assert again.used == sum(map(len, ODD.values()))
        assert all(has(again, shared, path) for path in ODD)

    @pytest.mark.parametrize("change", ["size", "time", "mode", "gone", "link", "directory"])
    def test_what_has_changed_in_the_data_set_does_not_count_and_is_swept(
        self, shared: Path, caches: list[str], change: str
    ) -> None:
        write(shared, {b"d/a": b"1", b"d/b": b"2"})
        copies, changed = opened(shared, caches), shared / "d" / "a"
        for path in (b"d/a", b"d/b"):
            copies.add(path, Pace())
        if change == "size":
            changed.write_bytes(b"11")
        elif change == "time":
            os.utime(changed, (5, 5))
        elif change == "mode":
            changed.chmod(0o600)
        else:
            changed.unlink()
        if change == "link":
            changed.symlink_to("b")
        elif change == "directory":
            changed.mkdir()
        assert not has(copies, shared, b"d/a")
        copies.sweep()
        left = {**content(Path(caches[0], "volume/raw")), **content(Path(caches[1], "volume/raw"))}
        assert left == {b"d/b": b"2"}
        assert copies.used == 1

    def test_directories_that_have_gone_are_swept(self, shared: Path, caches: list[str]) -> None:
        root = write(shared, {b"d/e/a": b"1"})
        copies = opened(shared, caches)
        copies.add(b"d/e/a", Pace())
        remove(root, b"d")
        copies.sweep()
        assert not any((Path(cache) / "volume/raw/d").exists() for cache in caches)

    def test_copies_and_their_directories_are_no_more_open_than_the_files(
        self, shared: Path, caches: list[str]
    ) -> None:
        write(shared, {b"d/a": b"1"})
        (shared / "d").chmod(0o700)
        (shared / "d" / "a").chmod(0o640)
        os.chown(shared / "d" / "a", 1234, 4321)
        copies = opened(shared, caches)
        copies.add(b"d/a", Pace())
        layer = next(Path(cache, "volume/raw") for cache in caches if Path(cache, "volume/raw/d").exists())
        found = (layer / "d" / "a").stat()
        assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o640, 1234, 4321)
        assert (layer / "d").stat().st_mode & 0o7777 == 0o700
        (shared / "d").chmod(0o711)
        copies.sweep()
        assert (layer / "d").stat().st_mode & 0o7777 == 0o711

    def test_a_full_cache_takes_no_more_and_claims_no_more(self, shared: Path, caches: list[str]) -> None:
        write(shared, {b"a": b"1" * 60, b"b": b"2" * 60})
        copies = opened(shared, caches[:1], limit=100)
        copies.add(b"a", Pace())
        with pytest.raises(CopyError, match="full"):
            copies.add(b"b", Pace())
        assert has(copies, shared, b"a")
        assert not has(copies, shared, b"b")
        copies.clear(caches[:1])
        copies.add(b"b", Pace())
        assert copies.used == 60
        (shared / "b").write_bytes(b"3" * 90)
        copies.add(b"b", Pace())
        assert copies.used == 90, "what the file was needs no room beside it"

    def test_who_was_cancelled_takes_no_copy_away(self, shared: Path, caches: list[str]) -> None:
        """That of another thread, or of the next run."""
        write(shared, {b"a": b"1"})
        copies, pace = opened(shared, caches), Pace()
        copies.add(b"a", Pace())
        pace.stop.set()
        with pytest.raises(CopyError, match="cancelled"):
            copies.add(b"a", pace)
        assert has(copies, shared, b"a")

    @pytest.mark.parametrize("limited_by", ["its size", "its disk"])
    def test_a_cache_that_is_filled_by_many_at_once_takes_no_more_than_one_at_a_time(
        self, shared: Path, caches: list[str], monkeypatch: pytest.MonkeyPatch, limited_by: str
    ) -> None:
        names = [b"%d" % number for number in range(8)]
        write(shared, dict.fromkeys(names, b"1" * 30))
        copies = opened(shared, caches[:1], limit=100 if limited_by == "its size" else 1 << 30)
        if limited_by == "its disk":
            disk = SimpleNamespace(f_bavail=140, f_frsize=1, f_blocks=400)
            monkeypatch.setattr(os, "statvfs", lambda path: disk)
            copies.layers[0]._free_ratio = 0.1
        all_begun, copied = threading.Barrier(len(names), timeout=30), copying.copy_file

        def copy_together(*args: Any) -> None:
            all_begun.wait()
            copied(*args)

        def add(name: bytes) -> bool:
            try:
                copies.add(name, Pace())
            except CopyError:
                all_begun.wait()
                return False
            return True

        monkeypatch.setattr(copies_module, "copy_file", copy_together)
        with ThreadPoolExecutor(len(names)) as pool:
            assert sum(pool.map(add, names)) == 3
        assert copies.used == 90

    def test_the_limit_of_a_level_is_for_that_level(self, shared: Path, caches: list[str]) -> None:
        """Its directories are those of one level, however many a client of blocks would be given."""
        small, large = caches
        directories = [small, large, f"{large}/1", f"{large}/2"]
        copies = opened(shared, directories, limit=400)
        assert [layer.directory for layer in copies.layers] == caches
        names = [b"%d" % number for number in range(20)]
        write(shared, dict.fromkeys(names, b"1" * 150))
        for name in names:
            with suppress(CopyError):
                copies.add(name, Pace())
        assert [layer.used for layer in copies.layers] == [0, 300]
        write(shared, dict.fromkeys(names, b"1" * 50))
        copies.sweep()
        for name in names:
            with suppress(CopyError):
                copies.add(name, Pace())
        assert [layer.used for layer in copies.layers] == [100, 300]

    def test_a_directory_that_is_deep_is_opened_and_swept(
        self, shared: Path, caches: list[str], request: pytest.FixtureRequest
    ) -> None:
        path = b"/".join([b"a"] * 1000)
        # What Python removes at the end of the tests it removes by recursion.
        request.addfinalizer(lambda: subprocess.run(["rm", "-rf", shared, *caches], check=True))
        make_directories(os.fsencode(shared), path)
        with opened_beneath(os.fsencode(shared), path, os.O_PATH) as handle:
            os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
        copies = opened(shared, caches)
        copies.add(path + b"/f", Pace())
        for again in (copies, Copies(os.fsencode(shared), caches, 1 << 30, 0.0)):
            assert reopen(again) == {}
            assert has(again, shared, path + b"/f")

    def test_a_mount_that_is_made_again_breaks_no_copy_that_goes_on(
        self, shared: Path, caches: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(shared, {b"d/a": b"1"})
        copies = opened(shared, caches)
        spend = Pace.spend

        def mount_again(pace: Pace, size: int) -> None:
            reopen(copies)
            spend(pace, size)

        monkeypatch.setattr(Pace, "spend", mount_again)
        copies.add(b"d/a", Pace())
        assert has(copies, shared, b"d/a")

    def test_what_a_process_that_was_killed_has_left_is_removed(
        self, shared: Path, caches: list[str]
    ) -> None:
        write(shared, {b"d/a": b"1"})
        opened(shared, caches).add(b"d/a", Pace())
        [copy] = [path for cache in caches for path in Path(cache).rglob("a")]
        left = copy.with_name(os.fsdecode(temporary_name(b"a", 7)))
        left.write_bytes(b"half")
        opened(shared, caches)
        assert copy.exists()
        assert not left.exists()

    def test_a_sweep_that_began_before_another_says_nothing(
        self, shared: Path, caches: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As one on a file server that has gone: by then a layer may fail that it has found well."""
        write(shared, {b"a": b"1"})
        copies = opened(shared, caches)
        copies.add(b"a", Pace())
        look_up_now, newer = copies.find, list[object]()

        def wait(path: bytes) -> os.stat_result | None:
            if not newer:
                newer.append(path)
                remove(os.fsencode(caches[0]), b"volume")
                newer[:] = [copies.sweep()]
                Path(caches[0], "volume/raw").mkdir(parents=True)
            return look_up_now(path)

        monkeypatch.setattr(copies, "find", wait)
        copies.sweep()
        assert [list(copies.problems), copies.sound] == [caches[:1], [copies.layers[1].path]]

    def test_a_copy_that_fails_keeps_no_other_from_being_swept(
        self, shared: Path, caches: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = [b"d/%d" % number for number in range(8)]
        write(shared, dict.fromkeys(names, b"1"))
        copies = opened(shared, caches)
        for name in names:
            copies.add(name, Pace())
        for name in names:
            (shared / os.fsdecode(name)).write_bytes(b"22")
        stuck = next(path for path in Path(caches[0], "volume/raw/d").iterdir()).name

        def fail(layer: bytes, path: bytes) -> None:
            if os.fsdecode(path) == f"d/{stuck}":
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            remove(layer, path)

        monkeypatch.setattr(copies_module, "remove", fail)
        problems = copies.sweep()
        assert [(directory, error.errno) for directory, error in problems.items()] == [(caches[0], errno.EIO)]
        assert set(content(Path(caches[0], "volume/raw"))) == {f"d/{stuck}".encode()}
        assert content(Path(caches[1], "volume/raw")) == {}
        changed = f"d/{stuck}".encode()
        for opened_again in (copies, Copies(os.fsencode(shared), caches, 1 << 30, 0.0)):
            assert list(reopen(opened_again)) == [caches[0]]
            assert opened_again.sound == [os.fsencode(f"{caches[1]}/volume/raw")]
        os.utime(shared / "d" / stuck, ns=(0, Path(caches[0], "volume/raw/d", stuck).stat().st_mtime_ns))
        (shared / "d" / stuck).write_bytes(b"1")
        assert not has(copies, shared, changed)
        with pytest.raises(CopyError, match="its cache directory fails"):
            copies.add(changed, Pace())
        copies.drop(changed)
        assert copies.used == 0
        monkeypatch.undo()
        (shared / "d" / stuck).write_bytes(b"333")
        assert copies.sweep() == {}
        assert copies.sound == [layer.path for layer in copies.layers]
        assert copies.used == 0

    def test_a_cache_directory_that_cannot_be_made_is_left_out_until_it_can(
        self, shared: Path, caches: list[str]
    ) -> None:
        write(shared, ODD)
        Path(caches[0]).touch()
        copies = Copies(os.fsencode(shared), caches, 1 << 30, 0.0)
        for found in (reopen(copies), copies.sweep()):
            assert [(directory, error.errno) for directory, error in found.items()] == [
                (caches[0], errno.ENOTDIR)
            ]
        assert copies.sound == [layer.path for layer in copies.layers[1:]]
        for path in ODD:
            with suppress(CopyError):
                copies.add(path, Pace())
        assert copies.used > 0
        assert 0 < sum(has(copies, shared, path) for path in ODD) < len(ODD)
        assert [(name, each.errno) for name, each in copies.clear(caches).items()] == [
            (caches[0], errno.ENOTDIR)
        ]
        assert copies.used == 0, "the other one is empty all the same"
        assert copies.clear(caches[1:]) == {}
        Path(caches[0]).unlink()
        assert copies.sweep() == {}
        assert copies.sound == [layer.path for layer in copies.layers]
        for path in ODD:
            copies.add(path, Pace())
        assert all(has(copies, shared, path) for path in ODD)

    def test_a_cache_directory_that_has_gone_is_used_again(self, shared: Path, caches: list[str]) -> None:
        """As where its disk is replaced by an empty one."""
        copies = opened(shared, caches)
        remove(os.fsencode(caches[0]), b"volume")
        assert list(copies.sweep()) == [caches[0]]
        assert copies.sweep() == {}
        assert copies.sound == [layer.path for layer in copies.layers]

    def test_a_data_set_that_fails_is_no_disk_that_fails(
        self, shared: Path, caches: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root = write(shared, {b"a": b"1"})
        copies = opened(shared, caches)
        copies.add(b"a", Pace())

        def fail(top: bytes, path: bytes) -> os.stat_result | None:
            if top == root:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return look_up(top, path)

        monkeypatch.setattr(copies_module, "look_up", fail)
        with pytest.raises(Retry, match="the data set: "):
            copies.sweep()
        monkeypatch.undo()
        assert has(copies, shared, b"a")

    def test_a_copy_that_cannot_be_removed_keeps_no_other_from_being_cleared(
        self, shared: Path, caches: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = [b"%d" % number for number in range(8)]
        write(shared, dict.fromkeys(names, b"1"))
        copies = opened(shared, caches)
        for name in names:
            copies.add(name, Pace())
        stuck = next(path for path in Path(caches[0], "volume/raw").iterdir()).name

        def fail(layer: bytes, path: bytes) -> None:
            if os.fsdecode(path) == stuck:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            remove(layer, path)

        monkeypatch.setattr(copies_module, "remove", fail)
        assert list(copies.clear(caches)) == [caches[0]]
        left = [content(Path(cache, "volume/raw")) for cache in caches]
        assert left == [{os.fsencode(stuck): b"1"}, {}]

    async def test_a_sweep_that_waits_for_the_file_server_keeps_no_copy_waiting(
        self, shared: Path, caches: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And removes none that has taken the place of the one that it has found stale."""
        root = write(shared, {b"a": b"1"})
        copies = opened(shared, caches)
        copies.add(b"a", Pace())
        write(shared, {b"a": b"new", b"b": b"2"})
        asked, answers, sweeping = threading.Event(), threading.Event(), list[int]()

        def silent(top: bytes, path: bytes) -> os.stat_result | None:
            found = look_up(top, path)
            if top == root and path == b"a" and threading.get_ident() in sweeping:
                asked.set()
                answers.wait()
            return found

        def sweep() -> None:
            sweeping.append(threading.get_ident())
            copies.sweep()

        monkeypatch.setattr(copies_module, "look_up", silent)
        swept = asyncio.create_task(in_own_thread(sweep))
        await asyncio.to_thread(asked.wait)
        try:
            async with asyncio.timeout(20):
                for path in (b"a", b"b"):
                    await in_own_thread(lambda path=path: copies.add(path, Pace()))  # type: ignore[misc]
        finally:
            answers.set()
            await swept
        assert all(has(copies, shared, path) for path in (b"a", b"b"))

    async def test_a_sweep_that_ends_late_does_not_replace_what_a_later_one_has_found(
        self, shared: Path, caches: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As one that had asked a file server which was away."""
        root = write(shared, {b"a": b"1", b"b": b"22"})
        copies = opened(shared, caches[:1])
        copies.add(b"a", Pace())
        asked, answers, failing = threading.Event(), threading.Event(), OSError(errno.EIO, "failed")

        def silent(top: bytes, path: bytes) -> os.stat_result | None:
            if top == root and path == b"a" and not asked.is_set():
                asked.set()
                answers.wait()
            return look_up(top, path)

        def fail(layer: bytes, entry: Entry, number: int) -> int:
            raise failing

        monkeypatch.setattr(copies_module, "look_up", silent)
        late = asyncio.create_task(in_own_thread(copies.sweep))
        await asyncio.to_thread(asked.wait)
        try:
            with monkeypatch.context() as patched:
                patched.setattr(copies, "_sweep_entry", fail)
                assert copies.sweep() == {caches[0]: failing}
        finally:
            answers.set()
        assert await late == {}
        assert copies.sound == []
        assert copies.sweep() == {}
        assert copies.sound == [layer.path for layer in copies.layers]

    @pytest.mark.parametrize(("dropped", "left"), [(b"d", 2), (b"d/a", 3), (b"none", 4)])
    def test_what_is_removed_is_dropped_and_nothing_else_is_looked_at(
        self, shared: Path, caches: list[str], monkeypatch: pytest.MonkeyPatch, dropped: bytes, left: int
    ) -> None:
        files = {b"d/a": b"1", b"d/b": b"1", b"e": b"11"}
        write(shared, files)
        copies = opened(shared, caches)
        for path in files:
            copies.add(path, Pace())
        monkeypatch.setattr(copies, "sweep", lambda: pytest.fail("all copies are looked at"))
        copies.drop(dropped)
        kept = {**content(Path(caches[0], "volume/raw")), **content(Path(caches[1], "volume/raw"))}
        assert set(kept) == {path for path in files if not (path + b"/").startswith(dropped + b"/")}
        assert copies.used == left == sum(map(len, kept.values()))

    def test_what_a_killed_process_has_left_is_removed(self, shared: Path, caches: list[str]) -> None:
        opened(shared, caches)
        left = Path(caches[0], "volume/raw/.jfs.copy.tmp.1")
        left.write_bytes(b"1")
        opened(shared, caches)
        assert not left.exists()


async def test_a_clear_says_which_cache_directories_fail(
    moving: Moving, caches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {caches[1]: OSError(errno.EIO, os.strerror(errno.EIO))}
    monkeypatch.setattr(moving.copies, "clear", lambda directories: failed)
    await moving.mount._set_mounted()
    monkeypatch.setattr(moving.mount, "refresh", lambda: answer(""))
    cache = DirectoryCache(moving.mount, moving.copies)
    problem = rf"^CacheDiskFailed: cache directory {caches[1]}: Input/output error \(EIO\)$"
    with pytest.raises(Retry, match=problem):
        await cache.clear(caches)


async def test_a_removal_that_is_cancelled_removes_nothing_after_it_has_ended(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been begun by mistake."""
    write(moving.shared, {b"d/%d/f" % number: b"" for number in range(100)})
    began, goes_on, unlink = threading.Event(), threading.Event(), os.unlink

    def slow(name: bytes | str, *, dir_fd: int | None = None) -> None:
        began.set()
        goes_on.wait()
        unlink(name, dir_fd=dir_fd)

    volume = DirectoryVolume(moving.mount, moving.directory, moving.copies)
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", slow)
        removing = asyncio.create_task(volume.remove(moving.directory.path / "d"))
        await asyncio.to_thread(began.wait)
        removing.cancel()
        await asyncio.sleep(0)
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await removing
        for thread in threading.enumerate():
            if thread.name == "blocking-call":
                await asyncio.to_thread(thread.join)
    assert len(content(moving.shared / "d")) == 99
    assert await volume.remove(moving.directory.path / "d") == ""
    assert not (moving.shared / "d").exists()


@dataclass
class Deletion:
    """Of what the source lacks, by the engine's transfer."""

    transfer: DirectoryTransfer
    sync: SyncOperation = field(
        default_factory=lambda: SyncOperation(source="file:///srv/import", delete_dst=True)
    )

    async def read(self) -> SourceReading:
        return await self.transfer.read_source(self.sync)


@pytest.fixture
def deletion(monkeypatch: pytest.MonkeyPatch, shared: Path, tmp_path: Path) -> Deletion:
    """Of `d/extra` in the data set: the source has `a` only."""
    source = write(tmp_path / "source", {b"a": b"1"})
    write(shared, {b"a": b"1", b"d/extra": b"2"})

    async def located(sync: SyncOperation) -> bytes:
        return source

    directory = cast(SharedDirectory, SimpleNamespace(root=os.fsencode(shared), kept_open=nullcontext))
    made = DirectoryTransfer(directory, cast(LocalSources, None), cast(LocalSources, None))
    monkeypatch.setattr(made, "_source", located)
    return Deletion(made)


@pytest.mark.parametrize("fails", ["listing", "deleting"])
@pytest.mark.parametrize(
    ("problem", "kind", "reason"),
    [
        (errno.EIO, Retry, "FileSystemFailed"),
        (errno.EROFS, Permanent, "DeleteFailed"),
        (errno.EACCES, Permanent, "DeleteFailed"),
        (errno.EPERM, Permanent, "DeleteFailed"),
    ],
)
async def test_what_is_refused_is_not_deleted_later_and_what_fails_is(
    monkeypatch: pytest.MonkeyPatch,
    shared: Path,
    deletion: Deletion,
    problem: int,
    kind: type[Retry | Permanent],
    reason: str,
    fails: str,
) -> None:
    """An NFS server refuses root (root_squash), or is restarted."""
    reading = await deletion.read()

    def fail(root: bytes, path: bytes = b"") -> NoReturn:
        raise OSError(problem, os.strerror(problem), "extra")

    with monkeypatch.context() as patched:
        patched.setattr(transfer, "entries" if fails == "listing" else "remove", fail)
        named = "'d/extra'" if fails == "deleting" else "'extra'"
        with pytest.raises(kind, match=f"^{reason}: .*{named}: "):
            await reading.delete_extra()
    assert set(content(shared)) == {b"a", b"d/extra"}
    await reading.delete_extra()
    assert set(content(shared)) == {b"a"}


@pytest.mark.parametrize(("problem", "kind"), [(errno.EIO, Retry), (errno.EACCES, Permanent)])
async def test_a_source_that_refuses_to_be_read_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, deletion: Deletion, problem: int, kind: type[Retry | Permanent]
) -> None:
    def fail(root: bytes) -> Iterator[Entry]:
        raise OSError(problem, os.strerror(problem), "d")
        yield

    monkeypatch.setattr(transfer, "entries", fail)
    with pytest.raises(kind, match=r"^ListingFailed: source\.uri: .*'d': "):
        await deletion.read()


async def test_names_are_on_disk_before_a_copy_counts(
    monkeypatch: pytest.MonkeyPatch, shared: Path, deletion: Deletion, tmp_path: Path
) -> None:
    """Each directory once, when it has all of them: a crash would take those of files that were written. Also
    of what was there: who has copied it may have been killed."""
    keys = [b"d/e/1", b"d/e/2", b"d/3", b"4", b"there/5", b"absent/6"]
    write(tmp_path / "source", dict.fromkeys(keys[:-1], b"1"))
    write(shared, {b"into/there/5": b"1"})
    synced, fsync = list[tuple[str, list[str]]](), os.fsync

    def noted(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.is_dir():
            synced.append((str(path.relative_to(shared)), sorted(each.name for each in path.iterdir())))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    sync = SyncOperation(source="file:///srv/import", destination="into", threads=2)
    copied = await deletion.transfer.copy(sync, keys, 0, set())
    assert list(copied.failed) == [b"absent/6"]
    assert sorted(synced) == [
        (".", ["a", "d", "into"]),
        ("into", ["4", "d", "there"]),
        ("into/d", ["3", "e"]),
        ("into/d/e", ["1", "2"]),
        ("into/there", ["5"]),
    ]


@pytest.mark.parametrize(
    ("problem", "is_told"), [(errno.EINVAL, False), (errno.EACCES, False), (errno.EIO, True)]
)
async def test_a_disk_that_keeps_no_names_is_told(
    monkeypatch: pytest.MonkeyPatch, deletion: Deletion, problem: int, is_told: bool
) -> None:
    """Not where there is no such call."""
    fsync = os.fsync

    def fail(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").is_dir():
            raise OSError(problem, os.strerror(problem))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", fail)
    sync = SyncOperation(source="file:///srv/import", force_update=True)
    with pytest.raises(OSError, match="Input/output") if is_told else nullcontext():
        assert await deletion.transfer.copy(sync, [b"a"], 0, set()) == Copied({})


async def test_a_copy_that_is_cancelled_makes_nothing_after_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, shared: Path, deletion: Deletion, tmp_path: Path
) -> None:
    """Not even empty files and directories, which have no block to wait for: what a later run removes would
    come back. One file is in the middle of its copy."""
    keys = [b"%d/empty" % number for number in range(100)]
    write(tmp_path / "source", dict.fromkeys(keys, b""))
    began, before = threading.Event(), content(shared)

    def blocked(source: int, target: int, pace: Pace) -> None:
        began.set()
        pace.stop.wait()

    monkeypatch.setattr(copying, "_copy_content", blocked)
    sync = SyncOperation(source="file:///srv/import", threads=1)
    copying_all = asyncio.create_task(deletion.transfer.copy(sync, keys, 0, set()))
    await asyncio.to_thread(began.wait)
    copying_all.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying_all
    for thread in threading.enumerate():
        if thread.name == "blocking-call":
            await asyncio.to_thread(thread.join)
    assert content(shared) == before
    assert {path.name for path in shared.iterdir()} == {"a", "d", "0"}
