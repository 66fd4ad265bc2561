"""Planning a warmup of many files, in a process of its own: `python -m tests.bench.data_planning TREE [BUS]`.

Without a bus only the tree is walked, which is the floor. Prints seconds and MB as JSON.
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
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.bench.data_stand import data_stand
from tests.bench.rows import Row

from cache_runtime.domain.chunking import Limits
from cache_runtime.domain.own_files import OwnFiles
from cache_runtime.engines.juicefs.control import INTERNAL_INODES
from cache_runtime.operations.warmup import Warmup
from cache_runtime.publication import Publication
from cache_runtime.tree import Tree
from paddlewheel.bus import connect
from paddlewheel.contracts.generated.cache_v1 import PartitionState, RunSpec, WarmupOperation
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.run import collect_rarely
from paddlewheel.testkit.storage import JuiceFsVolume, run_juicefs

DEPTH, WIDTH = 2, 10
"""Levels of directories, and directories in each."""
FOLDER_FILES = 9_010
"""Of each of the 111 directories that this makes."""
FILES = FOLDER_FILES * sum(WIDTH**level for level in range(DEPTH + 1))
SIZES = (10 << 10, 100 << 10, 1 << 20)
THREADS = 16
PARTITIONS = 10


async def measure() -> list[Row]:
    """On the mounted data set, as the agents see it: the floor is a bare parallel walk of the same mount."""
    async with data_stand(1, prepare=_fill) as stand:
        top = str(stand.mount() / "many")
        floor = await _run(top)
        planned = await _run(top, stand.harness.runtimes.nats_url)
    return [
        Row(f"data.floor_walk_of_{FILES}_files", floor["seconds"], 120.0, "s"),
        Row("data.planning_over_walk", planned["seconds"] / floor["seconds"], 1.5, "x"),
        Row("data.memory_of_planning", planned["megabytes"], 300.0, "MB"),
    ]


def _fill(volume: JuiceFsVolume, folder: Path) -> None:
    """Metadata of a million files: 20 times as fast as creating them, and planning reads no bytes."""
    keys = ("--access-key", volume.access_key, "--secret-key", volume.secret_key)
    scratch, dump = f"{volume.metaurl.rpartition('/')[0]}/2", folder / "dump.json"
    store = ("--storage", volume.storage, "--bucket", volume.bucket)
    run_juicefs("format", scratch, volume.name, *store, *keys)
    run_juicefs("dump", scratch, str(dump), "--keep-secret-key")
    tree = json.loads(dump.read_bytes())
    inodes = itertools.count(2)
    tree["FSTree"]["entries"] = {"many": _directory(inodes, DEPTH)}
    used = next(inodes)
    tree["Counters"] |= {"usedInodes": used, "nextInodes": used + 1}
    dump.write_text(json.dumps(tree, indent=1))  # the client reads it by lines
    run_juicefs("load", volume.metaurl, str(dump), timeout=600)


def _directory(inodes: Iterator[int], depth: int) -> dict[str, Any]:
    files = {f"file-{i}": {"attr": _attr(inodes, "regular", SIZES[i % 3])} for i in range(FOLDER_FILES)}
    below = {f"dir-{i}": _directory(inodes, depth - 1) for i in range(WIDTH if depth else 0)}
    return {"attr": _attr(inodes, "directory", 4096), "entries": files | below}


def _attr(inodes: Iterator[int], kind: str, length: int) -> dict[str, Any]:
    return {"inode": next(inodes), "type": kind, "mode": 0o755, "nlink": 1, "length": length}


async def _run(*arguments: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.data_planning", *arguments, stdout=asyncio.subprocess.PIPE
    )
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
        self._mount, self._tree = _Mounted(), Tree(top, lambda: OwnFiles(INTERNAL_INODES), THREADS)  # type: ignore[assignment]


class _Mounted:
    is_mounted = True
    changes = 0

    async def wait_mounted(self) -> None:
        return

    async def wait_changed(self, changes: int) -> None:
        await asyncio.Event().wait()


async def _plan(top: Path, nats_url: str) -> int:
    collect_rarely()
    bus = await connect(nats_url, name="planning")
    spec = RunSpec(
        run_id="run-1", set_uid="set-1", set_namespace="a", set_name="s", partitions=PARTITIONS,
        warmup=WarmupOperation(),
    )  # fmt: skip
    listing = _Listing(top)

    def record(partition: int) -> PartitionState:
        return PartitionState(partition=partition)  # of which nothing is done

    publication = Publication(spec, listing, bus.work, Limits(), SystemClock(), record)
    try:
        await publication.publish()
        return sum(total.files for total in publication.totals)
    finally:
        await bus.close()


def main(top: str, nats_url: str = "") -> None:
    began = time.monotonic()
    with _Memory() as memory:
        files = asyncio.run(_plan(Path(top), nats_url)) if nats_url else sum(1 for _ in walk(top))
    seconds = time.monotonic() - began
    assert files == FILES, files
    print(json.dumps({"seconds": seconds, "megabytes": memory.peak}))


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
