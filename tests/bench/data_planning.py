"""Planning a warmup of many files, in a process of its own.

`python -m tests.bench.data_planning TREE [BUS [STRATEGY]]`: without a bus only the tree is walked, which is
the floor. Prints files, chunks, seconds and MB as JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.data_stand import DataStand, data_stand
from tests.bench.rows import Row

from cache_runtime.domain.chunking import Limits
from cache_runtime.engines.juicefs.control import INTERNAL_INODES
from cache_runtime.engines.juicefs.control_file import ControlFile
from cache_runtime.operations.warmup import Warmup
from cache_runtime.publication import Publication
from cache_runtime.tree import Tree
from paddlewheel.bus import connect
from paddlewheel.contracts.generated.cache_v1 import PartitionState, RunSpec, SamplerOrder, WarmupOperation
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.run import collect_rarely
from paddlewheel.testkit.storage import JuiceFsVolume, run_juicefs

WIDTH = 10
"""Directories in each directory."""
SIZES = (10 << 10, 100 << 10, 1 << 20)
THREADS = 16
PARTITIONS = 10


@dataclass(frozen=True)
class Shape:
    """A tree.

    Args:
        depth: levels of directories.
        folder_files: in each directory.
    """

    depth: int
    folder_files: int

    @property
    def files(self) -> int:
        return self.folder_files * sum(int(WIDTH**level) for level in range(self.depth + 1))


FOLDERS, FOLDER = Shape(2, 9_010), Shape(0, 1_000_000)


async def measure() -> list[Row]:
    """On the mounted data set, as the agents see it: the floor is a bare parallel walk of the same mount."""
    return [*await _folders(), *await _folder()]


async def _folders() -> list[Row]:
    async with _stand(FOLDERS) as stand:
        floor, planned, sampled = await _run(stand), await _plan_of(stand), await _plan_of(stand, "sampler")
        began = time.monotonic()
        size = await ControlFile(stand.mount()).tree_size()
        asked = time.monotonic() - began
    for found in (floor, planned, sampled):
        assert found["files"] == size.files == FOLDERS.files, (found, size)
    return [
        Row(f"data.floor_walk_of_{FOLDERS.files}_files", floor["seconds"], 120.0, "s"),
        Row("data.planning_over_walk", planned["seconds"] / floor["seconds"], 1.5, "x"),
        Row("data.memory_of_planning", planned["megabytes"], 300.0, "MB"),
        Row("data.planning_by_sampler_over_walk", sampled["seconds"] / floor["seconds"], 1.5, "x"),
        Row("data.memory_of_planning_by_sampler", sampled["megabytes"], 300.0, "MB"),
        Row("data.size_of_all_files_over_walk", asked / floor["seconds"], 0.1, "x"),
    ]


async def _folder() -> list[Row]:
    """All files in one directory, which nobody can read in parallel."""
    async with _stand(FOLDER) as stand:
        floor, planned = await _run(stand), await _plan_of(stand)
    for found in (floor, planned):
        assert found["files"] == FOLDER.files, found
    return [
        Row(f"data.floor_walk_of_a_folder_of_{FOLDER.files}", floor["seconds"], 120.0, "s"),
        Row("data.planning_of_a_folder_over_walk", planned["seconds"] / floor["seconds"], 1.5, "x"),
        Row("data.memory_of_planning_a_folder", planned["megabytes"], 300.0, "MB"),
    ]


def _stand(shape: Shape) -> AbstractAsyncContextManager[DataStand]:
    return data_stand(1, prepare=partial(_fill, shape))


def _fill(shape: Shape, volume: JuiceFsVolume, folder: Path) -> None:
    """Metadata of a million files: 20 times as fast as creating them, and planning reads no bytes."""
    keys = ("--access-key", volume.access_key, "--secret-key", volume.secret_key)
    scratch, dump = f"{volume.metaurl.rpartition('/')[0]}/2", folder / "dump.json"
    store = ("--storage", volume.storage, "--bucket", volume.bucket)
    run_juicefs("format", scratch, volume.name, *store, *keys)
    run_juicefs("dump", scratch, str(dump), "--keep-secret-key")
    tree = json.loads(dump.read_bytes())
    inodes = itertools.count(2)
    tree["FSTree"]["entries"] = {"many": _directory(inodes, shape, shape.depth)}
    used = next(inodes)
    tree["Counters"] |= {"usedInodes": used, "nextInodes": used + 1}
    dump.write_text(json.dumps(tree, indent=1))  # the client reads it by lines
    run_juicefs("load", volume.metaurl, str(dump), timeout=600)


def _directory(inodes: Iterator[int], shape: Shape, depth: int) -> dict[str, Any]:
    sizes = itertools.cycle(SIZES)
    files = {f"file-{i}": {"attr": _attr(inodes, "regular", next(sizes))} for i in range(shape.folder_files)}
    below = {f"dir-{i}": _directory(inodes, shape, depth - 1) for i in range(WIDTH if depth else 0)}
    return {"attr": _attr(inodes, "directory", 4096), "entries": files | below}


def _attr(inodes: Iterator[int], kind: str, length: int) -> dict[str, Any]:
    return {"inode": next(inodes), "type": kind, "mode": 0o755, "nlink": 1, "length": length}


async def _plan_of(stand: DataStand, strategy: str = "") -> Any:
    return await _run(stand, stand.harness.runtimes.nats_url, strategy)


async def _run(stand: DataStand, *arguments: str) -> Any:
    command = (sys.executable, "-m", "tests.bench.data_planning", str(stand.mount() / "many"), *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(output.splitlines()[-1])


# In the process of its own


def walk(top: str) -> Iterator[int]:
    """Sizes of all files; directories are read in parallel."""
    with ThreadPoolExecutor(THREADS) as pool:
        pending: set[Future[tuple[list[int], list[str]]]] = {pool.submit(_scan, top)}
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                sizes, directories = future.result()
                yield from sizes
                pending |= {pool.submit(_scan, path) for path in directories}


def _scan(path: str) -> tuple[list[int], list[str]]:
    sizes, directories = [], []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.path)
            else:
                sizes.append(entry.stat(follow_symlinks=False).st_size)
    return sizes, directories


class _Listing(Warmup):
    """The operation, without an agent."""

    def __init__(self, top: Path) -> None:
        self._mount, self._tree = _Mounted(), Tree(top, INTERNAL_INODES, THREADS)  # type: ignore[assignment]


class _Mounted:
    is_mounted = True
    changes = 0

    async def wait_mounted(self) -> None:
        return

    async def wait_changed(self, changes: int) -> None:
        await asyncio.Event().wait()


async def _plan(top: Path, nats_url: str, strategy: str) -> tuple[int, int]:
    """Files and chunks."""
    collect_rarely()
    bus = await connect(nats_url, name="planning")
    order = SamplerOrder(batch_size=64, shuffle=True, extensions=[""]) if strategy == "sampler" else None
    spec = RunSpec(
        run_id=f"run-{strategy}", set_uid="set-1", set_namespace="a", set_name="s", partitions=PARTITIONS,
        warmup=WarmupOperation(strategy=strategy, sampler=order),
    )  # fmt: skip
    listing = _Listing(top)

    def record(partition: int) -> PartitionState:
        return PartitionState(partition=partition)  # of which nothing is done

    publication = Publication(spec, listing, bus.work, Limits(), SystemClock(), record)
    try:
        await publication.publish()
        totals = publication.totals
        return sum(total.files for total in totals), sum(total.chunks for total in totals)
    finally:
        await bus.close()


def main(top: str, nats_url: str = "", strategy: str = "") -> None:
    began, chunks = time.monotonic(), 0
    with _Memory() as memory:
        if nats_url:
            files, chunks = asyncio.run(_plan(Path(top), nats_url, strategy))
        else:
            files = sum(1 for _ in walk(top))
    found = {"files": files, "chunks": chunks, "seconds": time.monotonic() - began, "megabytes": memory.peak}
    print(json.dumps(found))


class _Memory:
    """The peak in MB of this process and of those that it starts, which are looked at while they run: what
    `getrusage` says of them counts their parent's, too."""

    def __init__(self) -> None:
        self._peaks: dict[str, int] = {}
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._look)

    def __enter__(self) -> _Memory:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watch.join()

    @property
    def peak(self) -> float:
        return sum(self._peaks.values()) / 1024

    def _look(self) -> None:
        while True:
            children = [pid for file in Path("/proc/self/task").glob("*/children") for pid in _words(file)]
            for pid in ("self", *children):
                if found := _words(Path(f"/proc/{pid}/status"), "VmHWM:"):
                    self._peaks[pid] = int(found[0])
            if self._ended.wait(0.2):
                return


def _words(file: Path, behind: str = "") -> list[str]:
    """Processes and threads may end meanwhile."""
    with suppress(OSError):
        text = file.read_text()
        return (text.partition(behind)[2] if behind else text).split()
    return []


if __name__ == "__main__":
    main(*sys.argv[1:])
