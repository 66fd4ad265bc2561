"""The engine `directory` beyond what all engines do: whose content pods read, and what it refuses."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.contract.engines.suite import THREADS, EngineUnderTest, Node
from tests.integration.cache_runtime.mounted_pods import unmount_below

from cache_runtime.domain.own_files import OwnFiles
from cache_runtime.engines.directory import copies
from cache_runtime.engines.directory import mount as directory_mount
from cache_runtime.engines.directory.shared import MARKER
from cache_runtime.listing import listed
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.wait import eventually


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "shared" / "set"
    path.mkdir(parents=True)
    (path / os.fsdecode(MARKER)).touch()
    return path


@pytest.fixture
async def node(tmp_path: Path, volume: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(directory_mount, "SWEEP_EVERY", 0.2)
    settings = {"shared_volumes": (str(volume.parent),), "mount_options": {"free-space-ratio": "0.01"}}
    node = Node(tmp_path, EngineUnderTest("directory", {"bucket": f"file://{volume}"}, settings))
    try:
        yield node
    finally:
        await node.engine.transfer.close()
        unmount_below(tmp_path)


def copies_of(node: Node) -> dict[str, Path]:
    """By their paths in the data set. Raises LookupError when a directory is removed meanwhile."""
    layers = [layer for cache in node.caches for layer in Path(cache).glob("*/raw")]
    try:
        found = [(layer, path) for layer in layers for path in layer.rglob("*") if path.is_file()]
    except FileNotFoundError as error:
        raise LookupError(error.filename) from error
    return {str(path.relative_to(layer)): path for layer, path in found}


def replace_copy(node: Node, name: str, content: bytes, mtime: int) -> None:
    """At once, with the time: a sweep in between would see another time than the file's, and remove it."""
    copy, new = copies_of(node)[name], node.top / "new-copy"
    new.write_bytes(content)
    shutil.copystat(copy, new)
    os.utime(new, ns=(mtime, mtime))
    new.replace(copy)


async def warm(node: Node, *names: str) -> None:
    await node.engine.cache.warm(await node.found(*names), THREADS)


async def test_pods_read_the_copy_of_the_node(node: Node, volume: Path) -> None:
    """Told apart by a copy that has another content, and the size and time of the file."""
    async with node.mounted():
        await node.fill({"d/a": b"remote", "d/b": b"remote"})
        assert (node.view / "d" / "a").read_bytes() == b"remote"
        await warm(node, "d/a")
        replace_copy(node, "d/a", b"copied", (volume / "d" / "a").stat().st_mtime_ns)
        await node.seen("d/a", b"copied")
        assert (node.view / "d" / "b").read_bytes() == b"remote"
        await node.engine.cache.clear(node.caches)
        await node.seen("d/a", b"remote")


async def test_what_another_node_changes_is_seen(node: Node, volume: Path) -> None:
    async with node.mounted():
        await node.fill({"changed": b"old", "gone": b"1", "d/gone": b"1"})
        await warm(node, "changed", "gone", "d/gone")
        await node.seen("changed", b"old")
        assert not (node.view / "new").exists()
        (volume / "changed.new").write_bytes(b"another")
        (volume / "changed.new").rename(volume / "changed")
        (volume / "gone").unlink()
        shutil.rmtree(volume / "d")
        (volume / "new").write_bytes(b"new")
        await node.seen("changed", b"another")
        await node.seen("new", b"new")
        await eventually(lambda: not (node.view / "gone").exists())
        await eventually(lambda: not (node.view / "d").exists())
        await eventually(lambda: copies_of(node) == {})


async def test_pods_only_read(node: Node) -> None:
    async with node.mounted():
        await node.fill({"a": b"1"})
        for attempt in ((node.view / "b").touch, (node.view / "a").unlink):
            with pytest.raises(OSError, match="Read-only"):
                attempt()


async def test_a_directory_where_nothing_is_mounted_is_refused_and_nothing_written(
    node: Node, volume: Path
) -> None:
    """As on a node without the export: the directory is there, and empty."""
    (volume / os.fsdecode(MARKER)).unlink()
    node.put({"a": b"1"})
    async with node.running():
        await eventually(lambda: node.engine.mount.ailment)
        assert node.engine.mount.ailment is not None
        assert node.engine.mount.ailment.reason == "WrongVolume"
        assert "mount the shared file system on this node" in node.engine.mount.message
        with pytest.raises(Permanent, match="mount the shared file system"):
            await node.copy("a")
        assert list(volume.iterdir()) == []
        assert not node.view.exists()


def is_hidden(path: Path) -> bool:
    """Soon after the loss is told: what is being shown then is shown first."""
    try:
        path.read_bytes()
    except OSError as error:
        return error.errno == errno.ENOTCONN
    return False


async def test_a_shared_file_system_that_goes_away_fails_and_costs_no_copy(node: Node, volume: Path) -> None:
    async with node.mounted():
        await node.fill({"a": b"1"})
        await warm(node, "a")
        (volume / os.fsdecode(MARKER)).rename(volume.parent / "aside")
        await eventually(lambda: is_hidden(node.view / "a"))
        assert node.told[1:]
        assert set(copies_of(node)) == {"a"}
        (volume.parent / "aside").rename(volume / os.fsdecode(MARKER))
        await node.seen("a", b"1")


async def test_what_cannot_be_removed_from_a_cache_is_shown_to_nobody(
    node: Node, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a copy on a bad block. What pods have stays mounted, and the next process mounts as well."""

    def fail(layer: bytes, path: bytes) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def ailment() -> str:
        found = node.engine.mount.ailment
        return found.reason if found else ""

    async with node.mounted():
        await node.fill({"a": b"old", "b": b"1"})
        await warm(node, "a", "b")
        with (node.view / "b").open("rb") as opened, monkeypatch.context() as patched:
            patched.setattr(copies, "remove", fail)
            (volume / "a").write_bytes(b"another")
            await node.seen("a", b"another")
            await eventually(lambda: ailment() == "CacheDiskFailed")
            assert opened.read() == b"1"
        await eventually(lambda: ailment() == "")
        await warm(node, "a")
        replace_copy(node, "a", b"of node", (volume / "a").stat().st_mtime_ns)
        await node.seen("a", b"of node")
        assert node.told == [""]
    (volume / "a").write_bytes(b"new")
    monkeypatch.setattr(copies, "remove", fail)
    node.next_process()
    async with node.mounted():
        assert (node.view / "a").read_bytes() == b"new"
        await eventually(lambda: ailment() == "CacheDiskFailed")


async def test_without_any_cache_directory_pods_read_the_shared_one(node: Node, volume: Path) -> None:
    for cache in node.caches:
        Path(cache).touch()
    volume.chmod(0o750)
    async with node.mounted():
        await node.fill({"d/a": b"1"})
        await node.seen("d/a", b"1")
        assert node.view.stat().st_mode & 0o7777 == 0o750
        files = await node.found("d/a")
        await node.engine.cache.warm(files, THREADS)
        assert (await node.engine.cache.check(files, THREADS)).missing == 1


@contextmanager
def mounted_over(path: Path, content: dict[str, bytes]) -> Iterator[None]:
    """A file system in place of what is there, which is there again afterwards."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=True)
    try:
        for name, data in content.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


async def test_pods_keep_what_they_have_while_the_export_is_not_mounted(node: Node, volume: Path) -> None:
    async with node.mounted():
        await node.fill({"a": b"1"})
        await warm(node, "a")
        node.put({"b": b"1"})
        with mounted_over(volume.parent, {"set/stray": b""}):
            with pytest.raises(Permanent, match="mount the shared file system"):
                await node.copy("b")
            await asyncio.to_thread(node.engine.mount._sweep)  # type: ignore[attr-defined]
            assert set(copies_of(node)) == {"a"}
            assert (node.view / "a").read_bytes() == b"1"
            assert sorted(path.name for path in (volume.parent / "set").iterdir()) == ["stray"]
        assert await node.copy("b") == {}
        await node.seen("b", b"1")
        assert node.told == [""]


@contextmanager
def read_all_the_while(path: Path) -> Iterator[None]:
    """A pod reads it, and gets no error."""
    ends = threading.Event()

    def read() -> None:
        while not ends.wait(0.005):
            path.read_bytes()

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            yield
        finally:
            ends.set()
        reading.result()


@contextmanager
def sweeps_that_take_long(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """As with a million copies: until the event, or the end."""
    ends, sweep = threading.Event(), copies.Copies.sweep

    def wait(swept: copies.Copies) -> Mapping[str, OSError]:
        ends.wait()
        return sweep(swept)

    monkeypatch.setattr(copies.Copies, "sweep", wait)
    try:
        yield ends
    finally:
        ends.set()


async def test_pods_see_the_export_that_is_mounted_in_place_of_the_former(
    node: Node, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and without an error, however long the copies are compared."""
    content = {f"set/{os.fsdecode(MARKER)}": b"", "set/a": b"another", "set/new": b"1"}
    async with node.mounted():
        await node.fill({"a": b"former"})
        await warm(node, "a")
        with (
            sweeps_that_take_long(monkeypatch) as ends,
            mounted_over(volume.parent, content),
            read_all_the_while(node.view / "a"),
        ):
            await node.seen("new", b"1")
            node.put({"b": b"1"})
            assert await node.copy("b") == {}
            await node.seen("b", b"1")
            ends.set()
            await node.seen("a", b"another")
        assert node.told == [""]


@pytest.mark.parametrize(
    "bucket", ["file:///etc", "file://{top}/shared/../secrets", "{top}/shared/set", "s3://a"]
)
async def test_a_volume_that_is_not_lent_is_refused(node: Node, tmp_path: Path, bucket: str) -> None:
    (node.settings.secrets_dir / "engine.bucket").write_text(bucket.format(top=tmp_path))
    async with node.running():
        await eventually(lambda: node.engine.mount.ailment)
        assert "engine Secret: bucket" in node.engine.mount.message
        assert not node.view.exists()


async def test_a_link_in_the_data_set_leads_nowhere(node: Node, volume: Path, tmp_path: Path) -> None:
    """Whoever writes to the shared file system may put links there, also while a copy runs."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_bytes(b"secret")
    async with node.mounted():
        (volume / "d").symlink_to(outside)
        (volume / "link").symlink_to(outside / "key")
        node.put({"d/planted": b"1", "d/key": b"1"})
        assert set(await node.copy("d/planted", "d/key")) == {"d/planted", "d/key"}
        assert [path.name for path in outside.iterdir()] == ["key"]
        assert (outside / "key").read_bytes() == b"secret"
        assert await node.tree.stat([b"link", b"d/key"]) == [None, None]
        node.put({"link": b"new"})
        assert await node.copy("link", force_update=True) == {}
        assert (outside / "key").read_bytes() == b"secret"
        assert (volume / "link").read_bytes() == b"new"


@pytest.mark.parametrize("options", [{"include": ["*.jpg"]}, {"exclude": ["*.jpg"]}])
async def test_filters_that_it_does_not_know_are_refused(node: Node, options: dict[str, object]) -> None:
    async with node.mounted():
        node.put({"a": b"1"})
        with pytest.raises(Permanent, match="knows no include and exclude"):
            await node.listed(**options)
        with pytest.raises(Permanent, match="knows no include and exclude"):
            await node.delete_extra(**options)


async def test_what_marks_the_volume_stays(node: Node, volume: Path) -> None:
    async with node.mounted():
        node.put({os.fsdecode(MARKER): b"other", "a": b"1"})
        assert set(await node.copy(os.fsdecode(MARKER), "a")) == {os.fsdecode(MARKER)}
        (node.lent / os.fsdecode(MARKER)).unlink()
        await node.delete_extra()
        assert (volume / os.fsdecode(MARKER)).read_bytes() == b""
        assert await node.tree.is_own(MARKER)


@contextmanager
def overlay(path: Path, layers: list[Path]) -> Iterator[None]:
    """In place of what is there."""
    joined = ":".join(map(str, layers))
    subprocess.run(["mount", "-t", "overlay", "-o", f"lowerdir={joined}", "overlay", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


async def test_what_marks_a_volume_of_several_file_systems_is_its_own(
    node: Node, volume: Path, tmp_path: Path
) -> None:
    """In an overlayfs, files have other devices than its root."""
    layers = [tmp_path / "upper", tmp_path / "lower"]
    for layer in layers:
        layer.mkdir()
    with (
        mounted_over(layers[0], {"set/a": b"1", f"set/{os.fsdecode(MARKER)}": b""}),
        overlay(volume.parent, layers),
    ):
        assert (volume / os.fsdecode(MARKER)).stat().st_dev != volume.stat().st_dev, "what is tested"
        async with node.mounted():
            assert await node.content() == {"a": b"1"}
            assert await node.tree.is_own(MARKER)


def test_a_directory_of_another_file_system_with_the_number_of_the_mark_is_listed(tmp_path: Path) -> None:
    """New file systems begin with the same numbers."""
    top = tmp_path / "volume"
    top.mkdir()
    with (
        mounted_over(top, {os.fsdecode(MARKER): b"", "below/x": b""}),
        mounted_over(top / "below", {"train/1": b"1", "val/1": b"1"}),
    ):
        marker = (top / os.fsdecode(MARKER)).stat()
        assert marker.st_ino in {(top / "below" / name).stat().st_ino for name in ("train", "val")}
        own = OwnFiles(range(marker.st_ino, marker.st_ino + 1), marker.st_dev)
        found = {file.path for file in listed(os.fsencode(top), b"", THREADS, own)}
    assert found == {"below/train/1", "below/val/1"}


async def test_a_data_set_is_not_copied_into_itself(node: Node, volume: Path) -> None:
    settings = node.settings.model_copy(update={"local_sources": (str(volume.parent),)})
    node.settings = settings
    node.next_process()
    async with node.mounted():
        for source in (volume.parent, volume, volume / "d"):
            (volume / "d").mkdir(exist_ok=True)
            with pytest.raises(Permanent, match="part of the data set, or contains it"):
                await node.listed(source=f"file://{source}")


async def test_a_warmup_that_is_cancelled_ends(node: Node) -> None:
    async with node.mounted():
        await node.fill({f"f{number}": b"1" * 1000 for number in range(50)})
        files = await node.found(*(f"f{number}" for number in range(50)))
        warming = asyncio.create_task(node.engine.cache.warm(files, 1))
        await asyncio.sleep(0)
        warming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await warming
        await node.engine.cache.warm(files, THREADS)
        assert (await node.engine.cache.check(files, THREADS)).missing == 0
