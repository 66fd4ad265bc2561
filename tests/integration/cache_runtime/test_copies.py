"""Copies with the real client, apart from agents: what they may reach, what counts as done, what goes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from cache_runtime.cell import Cell
from cache_runtime.engines.juicefs.addresses import EngineSecret
from cache_runtime.engines.juicefs.client import JuiceFsClient
from cache_runtime.engines.juicefs.transfer import JuiceFsTransfer
from cache_runtime.engines.juicefs.volumes import Volumes
from cache_runtime.engines.ports import Copied
from cache_runtime.local_sources import LocalSources
from cache_runtime.secret_files import SecretFiles
from cache_runtime.volume_record import VolumeRecord
from paddlewheel.bus.streams import NODES_BUCKET
from paddlewheel.contracts.generated.cache_v1 import SyncOperation
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.commands import tool
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.storage import JuiceFsVolume, ObjectStore, run_juicefs

SECRET = b"-----BEGIN PRIVATE KEY-----"
OLD, NEW = 1_500_000_000, 1_700_000_000


class Copies:
    """The engine's transfer on a new volume. Sources are below `lent`."""

    def __init__(self, top: Path, volume: JuiceFsVolume) -> None:
        self.top, self.volume, self.lent = top, volume, top / "lent"
        self.lent.mkdir()
        self._write_secret("engine", volume.secret())
        self.cell = Cell(top / "cell")
        client = JuiceFsClient(tool("juicefs"), self.cell)
        self.local = LocalSources([str(self.lent)], self.cell.path)
        record = VolumeRecord(MemoryBus().key_value(NODES_BUCKET), "uid")
        secrets = SecretFiles(top / "secrets", SystemClock(), 1)
        self.transfer = JuiceFsTransfer(client, Volumes(client, record), secrets, {}, self.local, self.cell)

    def sync(self, **options: object) -> SyncOperation:
        return SyncOperation.model_validate({"source": f"file://{self.lent}", **options})

    async def delete_extra(self, **options: object) -> None:
        await (await self.transfer.read_source(self.sync(**options))).delete_extra()

    def put(self, name: str, content: bytes, mtime: int = NEW) -> None:
        """Write a file of the source."""
        write(self.lent / name, content, mtime)

    def fill(self, content: dict[str, bytes]) -> None:
        """Write files into the volume, of an old time."""
        for name, data in content.items():
            write(self.top / "fill" / name, data, OLD)
        self._juicefs("sync", "--force-update", f"{self.top / 'fill'}/", "jfs://pwset/")

    def written(self) -> dict[str, bytes]:
        """All files of the volume."""
        target = self.top / "written"
        subprocess.run(["rm", "-rf", target], check=True)
        target.mkdir()
        self._juicefs("sync", "jfs://pwset/", f"{target}/")
        return files_of(target)

    def _juicefs(self, command: str, *args: str) -> None:
        run_juicefs(command, "--metrics", "127.0.0.1:0", *args, env={"pwset": self.volume.metaurl})

    def use_store(self, store: ObjectStore) -> None:
        self._write_secret("source", {"access-key": store.access_key, "secret-key": store.secret_key})

    def _write_secret(self, prefix: str, values: dict[str, str]) -> None:
        (self.top / "secrets").mkdir(exist_ok=True)
        for name, value in values.items():
            (self.top / "secrets" / f"{prefix}.{name}").write_text(value)


def write(path: Path, content: bytes, mtime: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (mtime, mtime))


def files_of(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


@pytest.fixture
async def copies(tmp_path: Path, new_volume: Callable[[], JuiceFsVolume]) -> AsyncIterator[Copies]:
    """A formatted, empty volume."""
    volume = new_volume()
    made = Copies(tmp_path, volume)
    run_juicefs(
        "format", "--storage", volume.storage, "--bucket", volume.bucket, volume.metaurl, volume.name,
        env={"ACCESS_KEY": volume.access_key, "SECRET_KEY": volume.secret_key},
    )  # fmt: skip
    yield made
    await made.transfer.close()


async def test_attack_the_database_names_a_directory_after_it_was_checked(
    copies: Copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The author changes it between our look and the client's."""
    stolen = tmp_path / "stolen"
    stolen.mkdir()
    original = Volumes.identify

    async def identify(volumes: Volumes, engine: EngineSecret) -> str:
        checked = await original(volumes, engine)
        redis = ["redis-cli", "-u", copies.volume.metaurl]
        found = subprocess.run([*redis, "get", "setting"], check=True, capture_output=True).stdout
        changed = {**json.loads(found), "Storage": "file", "Bucket": f"{stolen}/"}
        subprocess.run([*redis, "-x", "set", "setting"], input=json.dumps(changed).encode(), check=True)
        return checked

    monkeypatch.setattr(Volumes, "identify", identify)
    copies.put("a", b"a" * 5000)
    await copies.transfer.copy(copies.sync(), [b"a"], 0, set())
    assert list(stolen.rglob("*")) == []


def test_a_client_in_the_cell_finds_no_file_of_the_node(tmp_path: Path) -> None:
    """By the client itself: it copies what it can read."""
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "tls.key").write_bytes(SECRET)
    cell = Cell(tmp_path / "cell")
    cell.prepare()
    target = cell.tmp / "out"
    target.mkdir()
    (cell.tmp / "link").symlink_to(keys)
    for source in (f"{keys}/", "/tmp/link/", "/proc/1/root/etc/", "/dev/", "/etc/"):
        args = ("sync", "--metrics", "127.0.0.1:0", f"file://{source}", "file:///tmp/out/")
        command = cell.command(tool("juicefs"), args)
        subprocess.run(command, check=False, capture_output=True, timeout=60)
    found = files_of(target)
    assert SECRET not in found.values()
    assert found["hosts"] == Path("/etc/hosts").read_bytes()
    assert "shadow" not in found


async def test_a_file_whose_copy_fails_is_named_although_the_old_one_has_its_size(copies: Copies) -> None:
    """No link is followed in a source, so the client cannot read it."""
    copies.fill({"a": b"old", "b": b"old"})
    copies.put("b", b"new")
    write(copies.top / "elsewhere", b"new", NEW)
    (copies.lent / "a").symlink_to(copies.top / "elsewhere")
    copied = await copies.transfer.copy(copies.sync(update=True), [b"a", b"b", b"gone"], 0, set())
    failed = copied.failed
    assert set(failed) == {b"a", b"gone"}
    assert "left the source" in failed[b"gone"]
    assert "symbolic links" in failed[b"a"]
    assert copies.written() == {"a": b"old", "b": b"new"}


@pytest.mark.long
async def test_a_file_that_left_the_source_is_named_although_the_old_one_has_its_size(
    copies: Copies, object_store: ObjectStore, tmp_path: Path
) -> None:
    """The client itself ends well, whether it reads a list of keys or one key by itself."""
    copies.use_store(object_store)
    copies.fill({"a": b"old", "b": b"old", " c": b"old"})
    copies.put("b", b"new")
    write(tmp_path / "bucket" / "b", b"new", NEW)
    object_store.put_tree(tmp_path / "bucket", "left")
    stored = SyncOperation(source=object_store.uri("left"), secret="source", update=True)
    for sync in (copies.sync(update=True), stored):
        failed = (await copies.transfer.copy(sync, [b"a", b"b", b" c"], 0, set())).failed
        assert set(failed) == {b"a", b" c"}
        assert "left the source" in failed[b"a"]
    assert copies.written() == {"a": b"old", "b": b"new", " c": b"old"}


@pytest.mark.long
async def test_only_what_has_arrived_is_deleted_in_the_source(
    copies: Copies, object_store: ObjectStore, tmp_path: Path
) -> None:
    """Content decides: of the changed one the volume has another content of the same size."""
    copies.use_store(object_store)
    copies.fill({"same": b"same", "changed": b"old!"})
    for name, content in {"same": b"same", "changed": b"new!", "late": b"late"}.items():
        write(tmp_path / "bucket" / name, content, NEW)
    object_store.put_tree(tmp_path / "bucket", "moved")
    sync = SyncOperation(source=object_store.uri("moved"), secret="source")
    await copies.transfer.delete_copied(sync, 0, set())
    listed = [file.path async for files in copies.transfer.list(sync) for file in files]
    assert listed == ["changed", "late"]
    # Nothing is lost: it has been copied again, and goes with the next sync.
    assert copies.written() == {"same": b"same", "changed": b"new!"}


@pytest.mark.long
async def test_the_last_pass_deletes_and_copies_nothing(copies: Copies) -> None:
    """Else it would overwrite files of the destination that are newer, without any limit."""
    copies.fill({"a": b"edited by hand", "extra": b"x", "dt=2023/kept": b"x"})
    copies.put("a", b"a", OLD - 1)
    copies.put("late", b"late")
    copies.put("dt=2023/other", b"x")
    await copies.delete_extra(update=True, delete_dst=True, exclude=["dt=2023"])
    assert copies.written() == {"a": b"edited by hand", "dt=2023/kept": b"x"}


@pytest.mark.long
async def test_a_filter_may_contain_an_equals_sign_or_begin_with_a_dash(copies: Copies) -> None:
    for name in ("dt=2023/a", "dt=2024/b", "-x", "x"):
        copies.put(name, b"1")
    sync = copies.sync(exclude=["dt=2023", "-x"])
    assert [file.path async for files in copies.transfer.list(sync) for file in files] == ["dt=2024/b", "x"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("filters", "listed"),
    [
        ({"include": ["*.jpg"]}, ["a.jpg", "d/e/b.jpg"]),
        ({"include": ["d/e/c.txt"]}, ["d/e/c.txt"]),
        ({"include": ["d/**"]}, ["d/e/b.jpg", "d/e/c.txt"]),
        ({"include": ["none"]}, []),
        ({"include": ["a.jpg"], "exclude": ["*.jpg"]}, ["a.jpg", "d/e/c.txt"]),
        ({"exclude": ["*.jpg"]}, ["d/e/c.txt"]),
    ],
)
async def test_an_include_alone_means_only_these_and_comes_before_an_exclude(
    copies: Copies,
    object_store: ObjectStore,
    tmp_path: Path,
    filters: dict[str, list[str]],
    listed: list[str],
) -> None:
    copies.use_store(object_store)
    for name in ("a.jpg", "d/e/b.jpg", "d/e/c.txt"):
        copies.put(name, b"1")
        write(tmp_path / "bucket" / name, b"1", NEW)
    object_store.put_tree(tmp_path / "bucket", "filtered")
    stored = SyncOperation(source=object_store.uri("filtered"), secret="source", **filters)
    for sync in (copies.sync(**filters), stored):
        assert [file.path async for files in copies.transfer.list(sync) for file in files] == listed


@pytest.mark.long
async def test_what_is_not_included_is_not_deleted(copies: Copies) -> None:
    copies.fill({"d/kept.txt": b"1", "d/gone.jpg": b"1", "d/a.jpg": b"1"})
    copies.put("d/a.jpg", b"1", OLD)
    await copies.delete_extra(include=["*.jpg"], delete_dst=True)
    assert set(copies.written()) == {"d/kept.txt", "d/a.jpg"}


@pytest.mark.long
@pytest.mark.parametrize("option", ["include", "exclude"])
async def test_a_filter_that_the_client_cannot_read_is_refused(copies: Copies, option: str) -> None:
    """It goes on without the filter, and delete-dst would delete what the filter was to keep."""
    copies.put("a", b"1")
    with pytest.raises(Permanent, match=f'syncOptions.{option}: "tmp\\[" is no pattern') as caught:
        async for _ in copies.transfer.list(copies.sync(**{option: ["tmp["]})):
            pass
    assert caught.value.reason == "InvalidFilter"


@pytest.mark.long
async def test_names_that_end_in_white_space_of_any_kind_arrive(
    copies: Copies, object_store: ObjectStore, tmp_path: Path
) -> None:
    copies.use_store(object_store)
    names = ["a", "a\u3000", "b\u00a0", " c", "dt=1/d\u2003"]
    for name in names:
        write(tmp_path / "bucket" / name, name.encode(), NEW)
    object_store.put_tree(tmp_path / "bucket", "spaces")
    sync = SyncOperation(source=object_store.uri("spaces"), secret="source")
    assert await copies.transfer.copy(sync, [name.encode() for name in names], 0, set()) == Copied({})
    assert copies.written() == {name: name.encode() for name in names}
