"""What a volume's database says, and clearing the cache of the volume that it names."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from cache_runtime.cell import Cell
from cache_runtime.engines.juicefs.addresses import EngineSecret
from cache_runtime.engines.juicefs.cache import JuiceFsCache
from cache_runtime.engines.juicefs.client import Completed, JuiceFsClient
from cache_runtime.engines.juicefs.command import Command
from cache_runtime.engines.juicefs.control_file import ControlFile
from cache_runtime.engines.juicefs.mount import JuiceFsMount
from cache_runtime.engines.juicefs.volumes import Volumes
from cache_runtime.volume_record import VolumeRecord
from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.bus.streams import NODES_BUCKET
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.wire import to_json
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.memory_bus import MemoryBus

ENGINE = EngineSecret("digits", "minio", "http://s3:9000/b", "redis://redis:6379/1")
SETTING = {"Name": "digits", "Storage": "minio", "Bucket": "http://s3:9000/b"}
UUID, OTHER = "0a1b2c3d-4e5f-6789-abcd-ef0123456789", "1b2c3d4e-5f60-789a-bcde-f01234567890"


class Client:
    """Answers `juicefs status` with the settings of a volume."""

    def __init__(self, **setting: Any) -> None:
        self.setting = setting

    async def run(self, command: Command, timeout: float) -> Completed:
        return Completed(0, json.dumps({"Setting": self.setting}), "")


class Control:
    """The client's control file; it has nothing to drop."""

    async def evict(self, inodes: Sequence[int], threads: int) -> None: ...

    async def check(self, inodes: Sequence[int], threads: int) -> None: ...


class Mount:
    """A mount of a volume."""

    def __init__(self, volume_id: str) -> None:
        self.volume_id = volume_id


def record_of(volume_id: str = "", nodes: KeyValue | None = None) -> VolumeRecord:
    """What a set has been mounted from by this process, "" = nothing yet."""
    record = VolumeRecord(nodes or MemoryBus().key_value(NODES_BUCKET), "uid")
    record.keep(volume_id)
    return record


async def identify(uuid: object) -> str:
    client = Client(**SETTING, UUID=uuid)
    return await Volumes(cast(JuiceFsClient, client), record_of()).identify(ENGINE)


async def test_what_the_driver_of_mysql_prints_before_the_status_is_passed_over() -> None:
    class Pinging(Client):
        async def run(self, command: Command, timeout: float) -> Completed:
            done = await super().run(command, timeout)
            ping = "[xorm] [info]  2026/11/24 19:45:34.142008 PING DATABASE mysql\n"
            return Completed(done.code, 2 * ping + done.stdout, "")

    client = cast(JuiceFsClient, Pinging(**SETTING, UUID=UUID))
    assert await Volumes(client, record_of()).identify(ENGINE) == UUID


async def test_the_volume_is_named_by_its_uuid() -> None:
    assert await identify(UUID) == UUID


@pytest.mark.parametrize(
    "uuid", ["../../../../etc", "/etc", "", ".", UUID.upper(), f"{UUID}\n", f"{UUID}/..", None, 7, [UUID]]
)
async def test_a_volume_without_a_uuid_is_refused_for_it_names_a_directory(uuid: object) -> None:
    with pytest.raises(Permanent) as found:
        await identify(uuid)
    assert found.value.reason == "WrongVolume"
    assert "UUID" in found.value.message


class Database:
    """Answers `juicefs status` and `format` as a database does that has a volume, or none."""

    def __init__(self, uuid: str = "", store: str = "") -> None:
        self.uuid, self._store = uuid, store

    async def run(self, command: Command, timeout: float) -> Completed:
        if command.args[0] == "format":
            if self._store:
                return Completed(1, "", f"<FATAL>: {self._store}")
            self.uuid = OTHER
        if not self.uuid:
            return Completed(1, "", "<FATAL>: load setting: database is not formatted")
        return Completed(0, json.dumps({"Setting": {**SETTING, "UUID": self.uuid}}), "")


async def nodes_with(*reports: NodeStatus) -> KeyValue:
    nodes = MemoryBus().key_value(NODES_BUCKET)
    for report in reports:
        await nodes.put(f"uid.{report.partition}", to_json(report))
    return nodes


async def ensure(database: Database, nodes: KeyValue) -> str:
    """As the first mount of a new process."""
    return await Volumes(cast(JuiceFsClient, database), record_of(nodes=nodes)).ensure_formatted(ENGINE)


async def test_a_set_that_was_never_mounted_gets_a_volume() -> None:
    assert await ensure(Database(), await nodes_with(NodeStatus(partition=0))) == OTHER


async def test_a_database_that_was_emptied_is_not_formatted_anew() -> None:
    """Whichever partition has mounted before."""
    nodes = await nodes_with(NodeStatus(partition=0), NodeStatus(partition=1, volume_id=UUID))
    database = Database()
    with pytest.raises(Permanent, match=f"is empty, and the set was mounted from volume {UUID}") as found:
        await ensure(database, nodes)
    assert found.value.reason == "VolumeLost"
    assert "put back what it was, else restore the database from its backup" in found.value.message
    assert not database.uuid


async def test_a_record_that_cannot_be_read_may_be_the_one_that_names_the_volume() -> None:
    nodes, database = await nodes_with(NodeStatus(partition=1)), Database()
    await nodes.put("uid.0", b'{"stagedBytes": "x"}')
    with pytest.raises(Retry, match=r"record 'uid\.0' .* cannot be read") as found:
        await ensure(database, nodes)
    assert (found.value.reason, database.uuid) == ("RecordUnreadable", "")
    await nodes.put("uid.0", to_json(NodeStatus(volume_unknown=True)))
    with pytest.raises(Retry, match=r"record 'uid\.0' .* in the place of one that could not") as found:
        await ensure(database, nodes)
    assert (found.value.reason, database.uuid) == ("RecordUnreadable", "")
    assert await ensure(Database(UUID), nodes) == UUID
    await nodes.put("uid.1", to_json(NodeStatus(partition=1, volume_id=UUID)))
    with pytest.raises(Permanent, match=f"mounted from volume {UUID}"):
        await ensure(database, nodes)


async def test_a_record_that_cannot_be_read_keeps_no_agent_that_has_mounted_from_reporting() -> None:
    """Its report replaces that one, if it is its own."""
    nodes = await nodes_with()
    await nodes.put("uid.0", b"{")
    assert await record_of(UUID, nodes).recall() == UUID


async def test_a_volume_that_was_formatted_in_its_place_is_not_mounted() -> None:
    nodes = await nodes_with(NodeStatus(partition=0, volume_id=UUID))
    with pytest.raises(Permanent, match=f"holds volume {OTHER}, and the set was mounted from") as found:
        await ensure(Database(OTHER), nodes)
    assert found.value.reason == "VolumeLost"
    assert "if metaurl was changed in the engine's Secret, put back what it was" in found.value.message
    assert "restore nothing into this database" in found.value.message
    assert await ensure(Database(UUID), nodes) == UUID


async def test_a_volume_that_was_mounted_without_the_bus_is_not_the_sets_once_the_bus_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes, answer = await nodes_with(NodeStatus(partition=1, volume_id=UUID)), asyncio.Event()
    entries = nodes.entries

    async def silent(pattern: str) -> list[Entry]:
        if not answer.is_set():
            raise Retry("BusUnreachable", "no answer")
        return await entries(pattern)

    monkeypatch.setattr(nodes, "entries", silent)
    record = record_of(nodes=nodes)
    volumes = Volumes(cast(JuiceFsClient, Database(OTHER)), record)
    volumes.keep(await volumes.ensure_formatted(ENGINE))
    volumes.confirm(OTHER)
    answer.set()
    await record.recall()
    with pytest.raises(Retry, match=f"holds volume {OTHER}") as found:
        volumes.confirm(OTHER)
    assert found.value.reason == "VolumeLost"
    volumes.confirm(UUID)


async def test_whoever_cannot_ask_the_bus_formats_nothing_and_mounts_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes, database = await nodes_with(), Database()

    async def unreachable(_: str) -> list[Entry]:
        raise Retry("BusUnreachable", "no answer")

    monkeypatch.setattr(nodes, "entries", unreachable)
    with pytest.raises(Retry, match="no answer"):
        await ensure(database, nodes)
    assert not database.uuid
    assert await ensure(Database(UUID), nodes) == UUID


async def test_a_store_with_data_of_a_volume_that_its_database_does_not_know() -> None:
    """The client's own words would have the data cleaned up."""
    database = Database(store="Storage minio://s3/b/digits/ is not empty; please clean it up")
    with pytest.raises(
        Permanent, match="is empty, and the store has objects below digits/: restore"
    ) as found:
        await ensure(database, await nodes_with())
    assert found.value.reason == "VolumeLost"
    assert "choose another `name` if they are something else" in found.value.message


async def test_nothing_is_copied_into_another_volume_than_is_mounted() -> None:
    """The Secret was changed, or the database was emptied, and perhaps formatted by somebody."""
    client = cast(JuiceFsClient, Database(OTHER))
    with pytest.raises(Permanent, match=f"holds volume {OTHER}") as found:
        await Volumes(client, record_of(UUID)).identify(ENGINE)
    assert found.value.reason == "VolumeLost"
    with pytest.raises(Retry, match="is empty, and the set was mounted from") as waits:
        await Volumes(cast(JuiceFsClient, Database()), record_of(UUID)).identify(ENGINE)
    assert waits.value.reason == "VolumeLost"


async def test_what_was_recorded_first_counts_more_than_what_was_mounted_meanwhile() -> None:
    """An agent may mount without the bus."""
    record = record_of(OTHER, await nodes_with(NodeStatus(partition=1, volume_id=UUID)))
    assert record.known == OTHER
    assert await record.recall() == record.known == UUID


def program(path: Path, script: str) -> JuiceFsClient:
    """A client that runs a script instead."""
    path.write_text(f"#!{sys.executable}\n{script}\n")
    path.chmod(0o755)
    return JuiceFsClient(str(path), Cell(path.parent / "cell"))


async def test_a_volume_is_known_however_many_sessions_follow_its_settings(tmp_path: Path) -> None:
    """A session takes some 350 bytes."""
    printed = {"Setting": {**SETTING, "UUID": UUID}, "Sessions": [{"MountPoint": "/x" * 150}] * 5000}
    (tmp_path / "status.json").write_text(json.dumps(printed, indent=2))
    client = program(tmp_path / "juicefs", f"print(open({str(tmp_path / 'status.json')!r}).read())")
    assert await Volumes(client, record_of()).identify(ENGINE) == UUID


@pytest.mark.parametrize("printed", ["", "{", "[]", "{}", '{"Setting": {}}', '{"Setting": null}'])
async def test_a_status_that_cannot_be_read_is_asked_for_again(tmp_path: Path, printed: str) -> None:
    with pytest.raises(Retry, match="cannot be read") as found:
        await Volumes(program(tmp_path / "juicefs", f"print({printed!r})"), record_of()).identify(ENGINE)
    assert found.value.reason == "EngineUnreachable"


async def clear(cache: Path, volume_id: str) -> None:
    mount, control = cast(JuiceFsMount, Mount(volume_id)), cast(ControlFile, Control())
    await JuiceFsCache(mount, control, [str(cache)]).clear([str(cache)])


def block(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "block").write_bytes(b"x")
    return directory / "block"


async def test_clearing_removes_blocks_and_keeps_what_is_staged(tmp_path: Path) -> None:
    blocks = [block(tmp_path / UUID / "raw" / "chunks" / "0"), block(tmp_path / UUID / "raw")]
    staged = block(tmp_path / UUID / "rawstaging")
    await clear(tmp_path, UUID)
    assert not any(path.exists() for path in blocks)
    assert staged.exists()


async def test_clearing_what_is_not_there_is_no_fault(tmp_path: Path) -> None:
    await clear(tmp_path, UUID)
    await clear(tmp_path / "absent", UUID)


@pytest.mark.parametrize("name", ["../other", "link"])
async def test_clearing_stays_beneath_the_cache_directory(tmp_path: Path, name: str) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    kept = block(tmp_path / "other" / "raw")
    (cache / "link").symlink_to(tmp_path / "other")
    await clear(cache, name)
    assert kept.exists()


async def test_clearing_follows_no_link_among_the_blocks(tmp_path: Path) -> None:
    kept = block(tmp_path / "other")
    raw = tmp_path / "cache" / UUID / "raw"
    raw.mkdir(parents=True)
    (raw / "chunks").symlink_to(tmp_path / "other")
    await clear(tmp_path / "cache", UUID)
    assert kept.exists()
    assert not list(raw.iterdir())


async def test_a_cache_of_which_nothing_can_be_removed_is_not_cleared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on a disk that the kernel has made read-only."""
    kept = block(tmp_path / UUID / "raw" / "chunks" / "0")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "block")

    monkeypatch.setattr("os.unlink", refuse)
    monkeypatch.setattr("os.rmdir", refuse)
    with pytest.raises(Retry, match="Read-only file system") as found:
        await clear(tmp_path, UUID)
    assert found.value.reason == "CacheDiskFailed"
    assert kept.exists()


@pytest.mark.parametrize("problem", [errno.ENOENT, errno.ENOTEMPTY])
async def test_what_the_client_does_in_its_cache_meanwhile_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: int
) -> None:
    """It removes blocks and adds others."""
    block(tmp_path / UUID / "raw" / "chunks" / "0")

    def fail(*_: object, **__: object) -> None:
        raise OSError(problem, os.strerror(problem), "0")

    monkeypatch.setattr("os.rmdir", fail)
    await clear(tmp_path, UUID)


@pytest.mark.parametrize("content", [{}, {"v/raw/a": 5}, {"v/rawstaging/chunks/0/a": 5, "w/rawstaging/b": 2}])
async def test_what_is_not_uploaded_is_counted_in_the_directories_of_all_volumes(
    tmp_path: Path, content: dict[str, int]
) -> None:
    for name, size in content.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "link").symlink_to("/")
    mount, control = cast(JuiceFsMount, Mount("v")), cast(ControlFile, Control())
    cache = JuiceFsCache(mount, control, [str(tmp_path), str(tmp_path / "none")])
    staged = [size for name, size in content.items() if "rawstaging" in name]
    assert await cache.staged_bytes() == sum(staged)


async def test_a_disk_that_cannot_be_read_has_not_nothing_to_upload(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "rawstaging").write_text("no directory, as nothing else fails for root")
    mount, control = cast(JuiceFsMount, Mount("v")), cast(ControlFile, Control())
    with pytest.raises(Retry, match="rawstaging"):
        await JuiceFsCache(mount, control, [str(tmp_path)]).staged_bytes()
