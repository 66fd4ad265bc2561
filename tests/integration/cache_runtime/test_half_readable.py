"""Sources and sets that cannot be read completely, with loops of links and links that lead out.

The source is an export that takes root for nobody, as NFS does: agents are root, whom no other mode stops.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, fill, running
from tests.integration.cache_runtime.runtimes import RuntimeSet

from paddlewheel.contracts.generated.cache_v1 import ClearOperation, RunPhase, SyncOperation, WarmupOperation
from paddlewheel.devcluster.commands import tool
from paddlewheel.testkit.storage import JuiceFsVolume, ObjectStore, run_juicefs
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

OWNER = 1000


class Export:
    """A file system on which root may do what others may, and beside it another mount, which writes."""

    def __init__(self, top: Path, metaurl: str) -> None:
        self._top, self._metaurl = top, metaurl
        self._mounts = top / "export", top / "writer"
        self.source, self.writer = (mount / "set" for mount in self._mounts)
        objects = top / "objects"
        run_juicefs("format", "--storage", "file", "--bucket", f"{objects}/", metaurl, "export")
        self._chunks = objects / "export" / "chunks"
        export, writer = self._mounts
        self._clients = [self._mount(export, "--root-squash=65534:65534"), self._mount(writer)]

    def _mount(self, path: Path, *options: str) -> subprocess.Popen[bytes]:
        """Without a cache."""
        path.mkdir()
        caches = ("--cache-size=0", "--attr-cache=0", "--entry-cache=0", "--dir-entry-cache=0")
        others = ("--no-usage-report", "--backup-meta=0", "--metrics=127.0.0.1:0", "--io-retries=1")
        command = [tool("juicefs"), "mount", *caches, *others, *options]
        with (self._top / f"{path.name}.log").open("wb") as log:
            line = [*command, f"--cache-dir={self._top / 'unused'}", self._metaurl, str(path)]
            return subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)

    @property
    def is_mounted(self) -> bool:
        return all((path / ".stats").exists() for path in self._mounts)

    def unmount(self) -> None:
        for path, client in zip(self._mounts, self._clients, strict=True):
            subprocess.run(["umount", str(path)], check=False, capture_output=True)
            client.terminate()
            client.wait(60)

    def lose_content(self) -> None:
        """Of all files that there are: reading them is an EIO."""
        shutil.rmtree(self._chunks)

    def give_away(self, path: Path, mode: int) -> None:
        """To somebody who lets nobody read it."""
        path.chmod(mode)
        os.chown(path, OWNER, OWNER)


@pytest.fixture
async def export(tmp_path: Path, new_volume: Callable[[], JuiceFsVolume]) -> AsyncIterator[Export]:
    made = Export(tmp_path, new_volume().metaurl)
    try:
        await eventually(lambda: made.is_mounted)
        made.writer.mkdir()
        yield made
    finally:
        await asyncio.to_thread(made.unmount)


@pytest.fixture
async def harness(
    tmp_path: Path, nats_url: str, juicefs_volume: JuiceFsVolume, export: Export
) -> AsyncIterator[CacheHarness]:
    """Two mounted agents, to which the export is lent."""
    settings = {"LOCAL_SOURCES": json.dumps([str(export.source.parent)])}
    runtimes = RuntimeSet(tmp_path, nats_url, juicefs_volume, settings)
    async with running(runtimes, 0, 1) as harness:
        yield harness


def add_links(top: Path, outside: Path) -> None:
    """Loops, and links that lead out."""
    (top / "loop").symlink_to("loop")
    (top / "up").symlink_to(".")
    (top / "d0" / "round").symlink_to("..")
    (top / "out").symlink_to(outside)
    (top / "out-file").symlink_to(outside / "d0" / "0.bin")
    (top / "gone").symlink_to("nothing")


def files_below(top: Path) -> set[str]:
    """Without following links."""
    found = (Path(directory, name) for directory, _, names in os.walk(top) for name in names)
    return {str(path.relative_to(top)) for path in found if path.is_file() and not path.is_symlink()}


@pytest.mark.long  # the client tries for a while to read what is not there
async def test_a_source_that_is_half_readable_names_what_is_not_and_follows_no_link(
    harness: CacheHarness, export: Export, tmp_path: Path
) -> None:
    fill(export.writer, 3)
    export.lose_content()
    fill(export.writer / "good", 6)
    fill(tmp_path / "outside", 1)
    add_links(export.writer, tmp_path / "outside")
    export.give_away(export.writer / "good" / "d1" / "1.bin", 0o600)
    broken = {"d0/0.bin", "d1/1.bin", "d2/2.bin", "good/d1/1.bin"}

    state = await harness.run("half", SyncOperation(source=f"file://{export.source}", destination="in"))

    assert (state.phase, state.reason) == (RunPhase.FAILED, "FilesFailed")
    assert {name for name in broken if f"{name}: " not in state.message} == set(), state.message
    top = harness.runtimes.mount_path(0) / "in"
    assert files_below(top) == {f"good/d{n % 3}/{n}.bin" for n in range(6)} - broken


async def test_a_directory_that_may_not_be_read_ends_the_sync_by_its_name_and_nothing_is_deleted(
    harness: CacheHarness, export: Export
) -> None:
    """Its files would be missing from the listing."""
    fill(export.writer, 6)
    sync = SyncOperation(source=f"file://{export.source}", destination="in")
    assert (await harness.run("whole", sync)).phase is RunPhase.SUCCEEDED
    export.give_away(export.writer / "d1", 0o700)

    state = await harness.run("hole", sync.model_copy(update={"delete_dst": True}))

    assert (state.phase, state.reason) == (RunPhase.FAILED, "ListingFailed")
    assert "d1/: permission denied" in state.message
    assert len(files_below(harness.runtimes.mount_path(0) / "in")) == 6


async def test_a_set_that_is_half_readable_is_warmed_but_for_what_is_named(
    harness: CacheHarness, object_store: ObjectStore, tmp_path: Path
) -> None:
    top = harness.runtimes.mount_path(0)
    fill(top / "bad", 3)
    await asyncio.to_thread(lose_objects, object_store, harness.runtimes.volume.name)
    await harness.run("clear", ClearOperation())
    fill(top / "good", 6)
    fill(tmp_path / "outside", 1)
    add_links(top / "good", tmp_path / "outside")

    state = await harness.run("warm", WarmupOperation())

    assert (state.phase, state.reason, state.files_done) == (RunPhase.FAILED, "FilesFailed", 6)
    assert {n for n in range(3) if f"bad/d{n}/{n}.bin: " not in state.message} == set(), state.message
    assert await harness.uncached(Path("good/d1")) == []
    assert len(files_below(tmp_path / "outside")) == 1


def lose_objects(store: ObjectStore, volume: str) -> None:
    """Of the whole volume: its files cannot be read any more."""
    url = f"http://{store.filer}/buckets/volumes/{volume}/chunks?recursive=true"
    urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=60).close()
