"""What the author of a data set, or a pod that uses it, must not get from its privileged agents.

Each test is a row of the threat list: what is tried, on real agents, and that nothing of the node comes out.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, fill, running
from tests.integration.cache_runtime.runtimes import RuntimeSet

from cache_runtime.engines.juicefs.control import INTERNAL_INODES
from cache_runtime.tree import Tree
from cache_runtime.walk import walk
from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    RemoveOperation,
    RunPhase,
    RunState,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.storage import JuiceFsVolume, run_juicefs
from paddlewheel.testkit.wait import eventually

NONE = range(0)
KEY = b"-----BEGIN PRIVATE KEY----- of the bus"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    """As the key with which agents connect to the bus."""
    path = tmp_path / "bus" / "tls.key"
    path.parent.mkdir()
    path.write_bytes(KEY)
    return path


@pytest.fixture
def lent(tmp_path: Path) -> Path:
    """The directory that the operator lends for `file://` sources, with two files."""
    path = tmp_path / "lent"
    fill(path / "set", 2)
    return path


@pytest.fixture
async def harness(
    tmp_path: Path, nats_url: str, juicefs_volume: JuiceFsVolume, lent: Path
) -> AsyncIterator[CacheHarness]:
    """Two mounted agents that lend one directory."""
    runtimes = RuntimeSet(tmp_path, nats_url, juicefs_volume, {"LOCAL_SOURCES": json.dumps([str(lent)])})
    async with running(runtimes, 0, 1) as harness:
        yield harness


def contents(harness: CacheHarness) -> list[bytes]:
    """Of all files in the data set but the engine's own, some of which never end."""
    paths = list(harness.runtimes.mount_path(0).rglob("*"))
    return [path.read_bytes() for path in paths if is_own_file(path.lstat())]


def is_own_file(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_ino not in INTERNAL_INODES


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_attack_sync_reads_a_directory_of_the_node(harness: CacheHarness, secret_file: Path) -> None:
    """By its own path, by `..`, by an encoded `..` that only the client decodes, and as another store."""
    lent = secret_file.parents[1] / "lent"
    attempts = {
        "own": f"file://{secret_file.parent}",
        "dots": f"file://{lent}/../bus",
        "encoded": f"file://{lent}/%2e%2e/bus",
        "slash": f"file://{lent}%2f..%2fbus",
        "prefix": f"file://{lent}-not",
        "host": f"file://localhost{secret_file.parent}",
        "volume": "jfs://pwset/",
        "database": f"sqlite3://{secret_file}",
    }
    for run, source in attempts.items():
        state = await harness.run(run, SyncOperation(source=source))
        assert state.phase is RunPhase.FAILED, source
        assert state.reason in ("SourceNotAllowed", "InvalidSource"), state
    assert KEY not in contents(harness)


async def test_attack_sync_follows_a_link_out_of_a_lent_directory(
    harness: CacheHarness, secret_file: Path, lent: Path
) -> None:
    """To a file, to a directory, as a part of the address, and to what is inside."""
    (lent / "set" / "key").symlink_to(secret_file)
    (lent / "set" / "directory").symlink_to(secret_file.parent)
    (lent / "climb").symlink_to("../bus")

    linked = await harness.run("linked", SyncOperation(source=f"file://{lent}/set"))
    assert (linked.phase, linked.reason, linked.files_done) == (RunPhase.FAILED, "FilesFailed", 2)
    assert "symbolic links" in linked.message
    climbed = await harness.run("climbed", SyncOperation(source=f"file://{lent}/climb"))
    assert (climbed.phase, climbed.reason) == (RunPhase.FAILED, "SourceNotAllowed")
    assert "symbolic link" in climbed.message
    assert KEY not in contents(harness)
    assert len(contents(harness)) == 2


async def test_attack_a_link_replaces_a_file_between_listing_and_copying(
    harness: CacheHarness, secret_file: Path, lent: Path
) -> None:
    """Somebody who may write into the lent directory swaps them as fast as the machine can."""
    victim, spare = lent / "set" / "d0" / "0.bin", lent / "set" / "link"
    other = (lent / "set" / "d1" / "1.bin").read_bytes()
    stop, swaps = threading.Event(), 0

    def swap() -> None:
        nonlocal swaps
        while not stop.is_set():
            spare.symlink_to(secret_file)
            spare.replace(victim)
            spare.write_bytes(b"x" * len(KEY))
            spare.replace(victim)
            swaps += 1

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(3):
            target = SyncOperation(source=f"file://{lent}/set", destination=str(number), force_update=True)
            await harness.run(f"swap-{number}", target)
    finally:
        stop.set()
        await asyncio.to_thread(swapping.join)
    copied = contents(harness)
    assert KEY not in copied
    assert swaps
    assert copied.count(other) == 3, "each run copies the file beside it"


async def test_a_lent_directory_is_synced_and_stays_as_it_is(harness: CacheHarness, lent: Path) -> None:
    """The rule refuses nothing that is allowed; the deletion of the source is."""
    (lent / "set" / "a b%20").mkdir()
    (lent / "set" / "a b%20" / "f").write_bytes(b"odd")
    good = await harness.run("good", SyncOperation(source=f"file://{lent}/set"))
    assert (good.phase, good.files_done) == (RunPhase.SUCCEEDED, 3)
    await harness.run("bad", SyncOperation(source=f"file://{lent}/set", destination="x", delete_src=True))
    assert len([path for path in lent.rglob("*") if path.is_file()]) == 3


async def test_attack_a_run_names_keys_or_state_of_the_agent(
    harness: CacheHarness, secret_file: Path
) -> None:
    """As destination, as list of a warmup, as path, as what is removed, as a cache; by text and by a link."""
    top, keys = harness.runtimes.mount_path(0), harness.runtimes.directory / "secrets"
    (top / "out").symlink_to(keys)
    (top / "list").symlink_to(keys / "engine.metaurl")
    lent = secret_file.parents[1] / "lent" / "set"
    attempts: dict[str, SyncOperation | WarmupOperation | RemoveOperation | ClearOperation] = {
        "destination": SyncOperation(source=f"file://{lent}", destination=f"../..{keys}"),
        "list": WarmupOperation(file="list"),
        "absolute": WarmupOperation(paths=[str(keys)]),
        "linked": WarmupOperation(paths=["out"]),
        "removed": RemoveOperation(paths=["out/engine.metaurl"]),
        "cache": ClearOperation(paths=[str(keys)]),
    }
    before = names_in(keys)
    states: list[RunState] = [await harness.run(run, operation) for run, operation in attempts.items()]
    assert [state.phase for state in states] == [RunPhase.FAILED] * len(attempts)
    metaurl = harness.runtimes.volume.metaurl
    assert not any(metaurl in state.model_dump_json() for state in states)
    assert names_in(keys) == before


def test_attack_a_link_replaces_a_directory_of_the_set_while_it_is_resolved(tmp_path: Path) -> None:
    """Pods write into the set. Checking a path and opening it afterwards would lose this race."""
    top, outside = tmp_path / "set", tmp_path / "outside"
    (top / "real").mkdir(parents=True)
    (top / "real" / "list").write_bytes(b"inside\n")
    outside.mkdir()
    (outside / "list").write_bytes(b"outside\n")
    (outside / "only-outside").touch()
    tree, stop, seen = Tree(top, NONE, 1), threading.Event(), set[bytes]()
    (top / "link").symlink_to(outside)
    (top / "d").symlink_to("real")

    def swap() -> None:
        while not stop.is_set():
            for target in ("real", str(outside)):
                (top / "next").symlink_to(target)
                (top / "next").replace(top / "d")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(20_000):
            try:
                seen |= set(tree.lines("d/list", "f"))
                seen |= {frame.path + b"/" + frame.block for frame in walk(os.fsencode(top), b"d", 1, NONE)}
                tree._make_directory(b"d", b"made", "f")
            except Permanent as refused:
                seen.add(refused.reason.encode())
            except BlockingIOError:
                continue
    finally:
        stop.set()
        swapping.join()
    assert seen == {b"inside", b"d/list\x007", b"InvalidPath"}
    assert names_in(outside) == ["list", "only-outside"]


BAD_ENGINES: dict[str, Callable[[JuiceFsVolume, Path], JuiceFsVolume]] = {
    "store-on-the-node": lambda volume, top: replace(volume, storage="file", bucket=f"{top}/"),
    "database-on-the-node": lambda volume, top: replace(volume, metaurl=f"sqlite3://{top}/x.db"),
    "option-as-name": lambda volume, top: replace(volume, name=f"--log={top}/x"),
    "option-as-database": lambda volume, top: replace(volume, metaurl=f"--log={top}/x"),
    "option-as-bucket": lambda volume, top: replace(volume, bucket=f"--log={top}/x"),
    "key-of-the-bus": lambda volume, top: replace(volume, metaurl=f"{volume.metaurl}?tls-key-file={top}/k"),
}


@pytest.mark.parametrize("name", BAD_ENGINES)
async def test_attack_an_engine_secret_names_files_of_the_node(
    name: str, tmp_path: Path, nats_url: str, juicefs_volume: JuiceFsVolume
) -> None:
    stolen = tmp_path / "stolen"
    stolen.mkdir()
    await never_mounts(BAD_ENGINES[name](juicefs_volume, stolen), tmp_path, nats_url, "engine Secret")
    assert list(stolen.iterdir()) == []


async def test_attack_the_database_of_a_volume_names_a_directory_of_the_node(
    tmp_path: Path, nats_url: str, juicefs_volume: JuiceFsVolume
) -> None:
    """The author formats the volume on a machine of its own; the Secret itself looks harmless."""
    stolen = tmp_path / "stolen"
    stolen.mkdir()
    metaurl, name = juicefs_volume.metaurl, juicefs_volume.name
    run_juicefs("format", "--storage", "file", "--bucket", f"{stolen}/", metaurl, name)
    before = sorted(stolen.rglob("*"))
    await never_mounts(juicefs_volume, tmp_path, nats_url, "metaurl holds a volume on 'file'")
    assert sorted(stolen.rglob("*")) == before


async def never_mounts(volume: JuiceFsVolume, top: Path, nats_url: str, problem: str) -> None:
    """The agent says why in its report, and nothing is mounted."""
    runtimes = RuntimeSet(top, nats_url, volume)
    async with running(runtimes) as harness:
        runtimes.start(0)

        async def reported() -> bool:
            return problem in (await harness.node_status(0)).message

        await eventually(reported)
        assert not runtimes.is_mounted(0)


async def test_attack_the_client_inherits_the_environment_of_the_agent(harness: CacheHarness) -> None:
    """Where the bus, its keys and the Secrets are is nothing that a tenant's client has to know."""

    def both() -> list[bytes] | None:
        found = client_environments(harness.runtimes.mount_processes(0))
        return found if len(found) == 2 else None

    watchdog, server = await eventually(both, what="the client's two processes")
    assert b"CACHE_RUNTIME_" not in watchdog + server


def client_environments(pids: Sequence[int]) -> list[bytes]:
    """Of those that have one: what has just been started, or has just ended, has none."""
    environments = []
    for pid in pids:
        with suppress(OSError):
            environments.append(Path(f"/proc/{pid}/environ").read_bytes())
    return [each for each in environments if b"PATH=" in each]


BAD_PLACES = {
    "a cache that is not lent": {"CACHE_DIRS": "/var/cache/x"},
    "a cache that climbs": {"CACHE_DIRS": "{top}/cache/../../x"},
    "a cache by a link": {"CACHE_DIRS": "{top}/link/x"},
    "a cache among the keys": {"CACHE_DIRS": "{top}/secrets/x"},
    "a cache above the keys": {"CACHE_DIRS": "{top}"},
    "a source among the keys": {"LOCAL_SOURCES": '["{top}/secrets"]'},
    "a source above the keys": {"LOCAL_SOURCES": '["{top}"]'},
    "a source in the state": {"LOCAL_SOURCES": '["{top}/state-0/x"]'},
}


@pytest.mark.parametrize("name", BAD_PLACES)
async def test_attack_a_place_of_the_node_is_a_cache_or_source(
    name: str, tmp_path: Path, juicefs_volume: JuiceFsVolume
) -> None:
    """The agent itself refuses to start, whoever wrote its pod."""
    (tmp_path / "link").symlink_to("/var")
    settings = {key: value.replace("{top}", str(tmp_path)) for key, value in BAD_PLACES[name].items()}
    runtimes = RuntimeSet(tmp_path, "nats://127.0.0.1:1", juicefs_volume, settings)
    runtimes.write_secret("engine", {})
    try:
        runtimes.start(0)
        ended: subprocess.Popen[bytes] = runtimes.process(0)
        assert await asyncio.to_thread(ended.wait, 90) == 2
        assert "must be absolute" in runtimes.log(0) or "is not below" in runtimes.log(0)
    finally:
        await asyncio.to_thread(runtimes.close)
