"""The servers of a case: two real agents over FUSE, with a bus, a database and cache disks of their own."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tests.integration.cache_runtime.cache_harness import CacheHarness
from tests.integration.cache_runtime.fault_matrix.cases import MBPS, Case, Operation, Scenario, Tree, draw
from tests.integration.cache_runtime.fault_matrix.judging import Digests, Node, Report, digest
from tests.integration.cache_runtime.runtimes import RuntimeSet

from cache_runtime.engines.juicefs.control import INTERNAL_INODES
from cache_runtime.engines.juicefs.control_file import ControlFile
from paddlewheel.bus import connect
from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    RemoveOperation,
    RunPhase,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.core.sockets import free_ports
from paddlewheel.testkit.link import Link
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.redis import RedisServer
from paddlewheel.testkit.storage import JuiceFsVolume, ObjectStore, run_juicefs

BUCKET = "matrix"
PARTITIONS = (0, 1)
DISK = "64m"
SECOND = 1.1
"""Clients compare whole seconds."""
NEIGHBOURS: Tree = {"a.bin": b"neighbour" * 1000, "empty": b"", "d/two words": b"x"}
"""Files that no operation may touch."""


@dataclass
class Stand:
    """One case's own."""

    scenario: Scenario
    harness: CacheHarness
    store: ObjectStore
    prefix: str
    link: Link
    nats: NatsServer
    redis: RedisServer

    @property
    def folder(self) -> Path:
        return self.harness.runtimes.directory

    @property
    def links(self) -> Digests:
        """What has to be left of the link; a removed directory takes its own with it."""
        request = self.scenario.request
        is_removed = isinstance(request, RemoveOperation) and "in/d0" in request.paths
        return {} if is_removed else {self._link: f"-> {self.folder / 'node'}"}

    @property
    def _link(self) -> str:
        """A link in the set that leads out of it, to files of the node."""
        return "in/d0/out" if self.scenario.case.operation is Operation.RMR else "kept/out"

    async def prepare(self) -> None:
        """Fill the set, its source, and what is around them. Raises AssertionError."""
        await asyncio.to_thread(self._fill_store)
        _write(self.folder / "node", NEIGHBOURS)
        for partition in PARTITIONS:
            _write(self.harness.runtimes.cache_dir(partition) / "another" / "raw", NEIGHBOURS)
        await self.harness.start(*PARTITIONS)
        for name in ("before", "newer") if self.scenario.newer else ("before",):
            source = SyncOperation(source=self._uri(name), secret="source", force_update=True)
            await self._succeed(f"prepare-{name}", source)
        await asyncio.to_thread(self._make_link)
        if self.scenario.case.operation is Operation.CLEAR:
            await self._succeed("prepare-cache", WarmupOperation())
        else:
            await self._succeed("prepare-cache", ClearOperation())
        # What is there was written by pods; some of it is on a node only when the fault comes.
        await asyncio.to_thread(_write, self.harness.runtimes.mount_path(0), self.scenario.written)

    async def outside(self) -> dict[str, Digests]:
        """Checksums of what no operation may touch, by place."""
        runtimes = self.harness.runtimes
        own = {"node": digests_of(self.folder / "node")}
        for p in PARTITIONS:
            own[f"cache {p} of another volume"] = digests_of(runtimes.cache_dir(p) / "another")
        fetched = await asyncio.to_thread(self._fetch, "volumes", f"{runtimes.volume.name}-2")
        return {
            **own,
            "volumes": fetched,
            "bucket": await asyncio.to_thread(self._fetch, BUCKET, f"{self.prefix}/source-2"),
        }

    async def source(self) -> Digests:
        return await asyncio.to_thread(self._fetch, BUCKET, f"{self.prefix}/source")

    async def report(self, partition: int) -> Report:
        blocks = blocks_of(self.harness.runtimes.cache_dir(partition), besides="another")
        return Report(await self.harness.node_status(partition), blocks)

    def can_read(self, partition: int) -> bool:
        """Whether it is mounted now."""
        with suppress(OSError):
            return any(self.harness.runtimes.mount_path(partition).iterdir())
        return False

    async def nodes(self) -> tuple[Node, ...]:
        """The caches are looked at first: reading the files fills them."""
        runtimes = self.harness.runtimes
        reports = [await self.report(partition) for partition in PARTITIONS]
        cached = [await self._cached(partition) for partition in PARTITIONS]
        read = (asyncio.to_thread(digests_of, runtimes.mount_path(partition)) for partition in PARTITIONS)
        files = await asyncio.gather(*read)
        scratch = [[str(p) for p in runtimes.state_dir(n).rglob("paddlewheel-*")] for n in PARTITIONS]
        return tuple(Node(files[p], cached[p], tuple(scratch[p]), reports[p]) for p in PARTITIONS)

    async def _cached(self, partition: int) -> dict[str, int]:
        """Bytes of each file that the client finds in its cache."""
        root = self.harness.runtimes.mount_path(partition)
        control = ControlFile(root)
        reports = {
            path: await control.check([inode], 1)
            for path, inode in (await asyncio.to_thread(_inodes, root)).items()
        }
        return {path: report.bytes - report.missing for path, report in reports.items()}

    async def _succeed(
        self, run_id: str, operation: SyncOperation | WarmupOperation | ClearOperation
    ) -> None:
        state = await self.harness.run(run_id, operation)
        assert (state.phase, state.reason) == (RunPhase.SUCCEEDED, ""), state

    def _fill_store(self) -> None:
        scenario = self.scenario
        later = {*scenario.newer, *scenario.written}
        first = {path: data for path, data in scenario.before.items() if path not in later}
        self._put(first, BUCKET, f"{self.prefix}/before")
        time.sleep(SECOND if scenario.newer else 0)
        self._put(scenario.source, BUCKET, f"{self.prefix}/source")
        time.sleep(SECOND if scenario.newer else 0)
        self._put(scenario.newer, BUCKET, f"{self.prefix}/newer")
        self._put(NEIGHBOURS, BUCKET, f"{self.prefix}/source-2")
        self._put(NEIGHBOURS, "volumes", f"{self.harness.runtimes.volume.name}-2")

    def _put(self, tree: Tree, bucket: str, prefix: str) -> None:
        if not tree:
            return
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            _write(Path(folder), tree)
            self.store.put_tree(Path(folder), bucket, prefix)

    def _fetch(self, bucket: str, prefix: str) -> Digests:
        keys = {"MINIO_ACCESS_KEY": self.store.access_key, "MINIO_SECRET_KEY": self.store.secret_key}
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            target = f"file://{folder}/"
            run_juicefs(
                "sync", "--metrics", "127.0.0.1:0", self.store.uri(bucket, f"{prefix}/"), target, env=keys
            )
            return digests_of(Path(folder))

    def _uri(self, name: str) -> str:
        reached = replace(self.store, endpoint=f"127.0.0.1:{self.link.port}")
        return reached.uri(BUCKET, f"{self.prefix}/{name}")

    def _make_link(self) -> None:
        link = self.harness.runtimes.mount_path(0) / self._link
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.folder / "node")


@asynccontextmanager
async def standing(case: Case, store: ObjectStore) -> AsyncIterator[Stand]:
    """Servers, and agents that are not started yet. All of them end with the context."""
    with tempfile.TemporaryDirectory(prefix="paddlewheel-matrix-") as name:
        folder, prefix = Path(name), f"{case.operation}-{case.fault}-{case.seed}-{os.urandom(3).hex()}"
        for bucket in ("volumes", BUCKET):
            store.make_bucket(bucket)
        client, monitor, database, way = free_ports(4)
        nats = NatsServer(folder / "nats", ports=(client, monitor))
        redis, link = RedisServer(folder / "redis", database), Link(way, store.endpoint)
        try:
            nats.start()
            redis.start()
            await link.open()
            source = f"minio://127.0.0.1:{link.port}/{BUCKET}/{prefix}/source"
            scenario = draw(case, source)
            runtimes = _runtimes(
                scenario,
                folder,
                nats.url,
                redis.url,
                replace(store, endpoint=f"127.0.0.1:{link.port}"),
                prefix,
            )
            harness = CacheHarness(runtimes, await connect(nats.url, name="matrix"))
            try:
                yield Stand(scenario, harness, store, prefix, link, nats, redis)
            finally:
                await asyncio.to_thread(runtimes.close)
                await harness.bus.close()
        finally:
            await link.cut()
            redis.kill()
            nats.stop()


def _runtimes(
    scenario: Scenario, folder: Path, nats: str, redis: str, store: ObjectStore, name: str
) -> RuntimeSet:
    """Small chunks, and a slow way for a warmup, so that a run can be met midway."""
    bucket, keys = f"http://{store.endpoint}/volumes", (store.access_key, store.secret_key)
    volume = JuiceFsVolume(name, "minio", bucket, f"{redis}/1", *keys)
    options = {"free-space-ratio": "0.01", "backup-meta": "0", "prefetch": "0"}
    case = scenario.case
    if case.operation is Operation.WARMUP:
        options["download-limit"] = str(MBPS)
    if scenario.written:
        options["writeback"] = "true"
    files = {Operation.RMR: "2"}.get(case.operation, "4")
    runtimes = RuntimeSet(
        folder, nats, volume, {"MOUNT_OPTIONS": json.dumps(options), "CHUNK_FILES": files, "CHUNK_MIB": "1"}
    )
    runtimes.write_secret("source", {"access-key": store.access_key, "secret-key": store.secret_key})
    for partition in PARTITIONS:
        runtimes.cache_dir(partition).mkdir()
        disk = str(runtimes.cache_dir(partition))
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", disk], check=True)
    return runtimes


def digests_of(top: Path) -> Digests:
    """Digests of all files and links below the directory. Links are not followed."""
    found = {}
    for path, status in _entries(top):
        name = str(path.relative_to(top))
        if stat.S_ISLNK(status.st_mode):
            found[name] = f"-> {path.readlink()}"
        elif stat.S_ISREG(status.st_mode):
            found[name] = digest(path.read_bytes())
    return found


def blocks_of(cache: Path, besides: str) -> int:
    """Bytes of the blocks that a cache disk holds: the last part of their names, `<slice>_<index>_<size>`."""
    volumes = [path for path in cache.iterdir() if path.is_dir() and path.name != besides]
    names = [path.name for volume in volumes for path in (volume / "raw").rglob("*_*_*")]
    return sum(int(name.rpartition("_")[2]) for name in names)


def _inodes(root: Path) -> dict[str, int]:
    """Of all files below, by relative path."""
    found = ((path.relative_to(root), status) for path, status in _entries(root))
    return {str(path): status.st_ino for path, status in found if stat.S_ISREG(status.st_mode)}


def _entries(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below, without the files of the client itself: some of these are read without end."""
    for path in top.iterdir():
        status = path.lstat()
        if status.st_ino not in INTERNAL_INODES:
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                yield from _entries(path)


def _write(top: Path, tree: Tree) -> None:
    for name, data in tree.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
