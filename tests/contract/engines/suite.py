"""What every test of this folder works with: a node with a cache engine, and a source lent to it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.cache_runtime.mounted_pods import share_mounts

from cache_runtime.app import EngineFactory
from cache_runtime.config import CacheRuntimeSettings
from cache_runtime.domain.paths import decode_path
from cache_runtime.engines.ports import Copied, Engine
from cache_runtime.listing import listed
from cache_runtime.secret_files import SecretFiles
from cache_runtime.tree import Tree
from cache_runtime.volume_record import VolumeRecord
from paddlewheel.bus.streams import NODES_BUCKET
from paddlewheel.contracts.generated.cache_v1 import SyncOperation
from paddlewheel.core.clock import SystemClock
from paddlewheel.devcluster.commands import tool
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.wait import eventually

OLD, NEW = 1_500_000_000, 1_700_000_000
THREADS = 4
MOUNTED_WITHIN = 90.0


@dataclass(frozen=True)
class EngineUnderTest:
    """An engine, the engine secret of a new, empty volume, and settings of the pod."""

    create: EngineFactory
    secret: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)


class Node:
    """A node with an agent's engine, apart from the agent. Sources are below `lent`, pods look at `view`."""

    def __init__(self, top: Path, tested: EngineUnderTest) -> None:
        self.top, self.lent, self.view = top, top / "lent", top / "mnt" / "data"
        self.caches = [str(top / "cache-a"), str(top / "cache-b")]
        self.told: list[str] = []
        self._create = tested.create
        share_mounts(self.view.parent)
        self.lent.mkdir(exist_ok=True)
        self._write_secret(tested.secret)
        settings = {
            "set_namespace": "default", "set_name": "digits", "set_uid": "uid-1", "pod_name": "runtime-0",
            "mount_path": self.view, "cache_dirs": ":".join(self.caches), "cache_roots": (str(top),),
            "cache_size_mib": 1024, "secrets_dir": top / "secrets", "secret_wait": 1,
            "state_dir": top / "state",
            "local_sources": (str(self.lent),),
            "juicefs": tool("juicefs"),
        }  # fmt: skip
        self.settings = CacheRuntimeSettings.model_validate({**settings, **tested.settings})
        self.record = VolumeRecord(MemoryBus().key_value(NODES_BUCKET), self.settings.set_uid)
        self.engine = self.next_process()

    def next_process(self) -> Engine:
        """The engine as the next process on this node creates it; the tests go on with it."""
        secrets = SecretFiles(self.settings.secrets_dir, SystemClock(), self.settings.secret_wait)
        self.engine = self._create(self.settings, secrets, SystemClock(), self._listen, self.record)
        return self.engine

    @property
    def tree(self) -> Tree:
        """The data set as operations read and write it."""
        return Tree(self.engine.mount.path, self.engine.volume.own_inodes, THREADS)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The mount is kept until the context ends; it need not be mounted."""
        stop = asyncio.Event()
        mount = asyncio.create_task(self.engine.mount.run(stop))
        try:
            yield
        finally:
            stop.set()
            await mount

    @asynccontextmanager
    async def mounted(self) -> AsyncIterator[None]:
        """Mounted until the context ends."""
        async with self.running():
            async with asyncio.timeout(MOUNTED_WITHIN):
                await self.engine.mount.wait_mounted()
            yield

    def sync(self, **options: object) -> SyncOperation:
        return SyncOperation.model_validate({"source": f"file://{self.lent}", **options})

    def put(self, files: Mapping[str, bytes], mtime: int = NEW) -> None:
        """Write files of the source."""
        for name, content in files.items():
            path = self.lent / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            os.utime(path, (mtime, mtime))

    async def fill(self, files: Mapping[str, bytes], mtime: int = NEW) -> None:
        """Copy files into the data set; the source is empty before and afterwards."""
        self.put(files, mtime)
        assert await self.copy(*files) == {}
        for entry in list(self.lent.iterdir()):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    async def copy(self, *keys: str, **options: object) -> Mapping[str, str]:
        """What failed, with the reason."""
        copied = await self.copied(*keys, **options)
        return {os.fsdecode(key): problem for key, problem in copied.failed.items()}

    async def kept(self, *keys: str, **options: object) -> int | None:
        """How many a copy has left as they were, when none failed."""
        copied = await self.copied(*keys, **options)
        assert copied.failed == {}
        return copied.kept

    async def copied(self, *keys: str, **options: object) -> Copied:
        names = [os.fsencode(key) for key in keys]
        return await self.engine.transfer.copy(self.sync(**options), names, 0, set())

    async def delete_extra(self, **options: object) -> None:
        await (await self.engine.transfer.read_source(self.sync(**options))).delete_extra()

    async def listed(self, **options: object) -> list[tuple[str, int]]:
        found = [file async for files in self.engine.transfer.list(self.sync(**options)) for file in files]
        return [(file.path, file.size) for file in found]

    async def content(self) -> dict[str, bytes]:
        """All files of the data set, as operations see them."""
        top, own = self.engine.mount.path, self.engine.volume.own_inodes

        def read() -> dict[str, bytes]:
            paths = [decode_path(file.path) for file in listed(os.fsencode(top), b"", THREADS, own)]
            return {os.fsdecode(path): (top / os.fsdecode(path)).read_bytes() for path in paths}

        return await asyncio.to_thread(read)

    async def found(self, *names: str) -> Sequence[int]:
        """Inodes of the files that exist."""
        stats = await self.tree.stat([name.encode() for name in names])
        return [stat.inode for stat in stats if stat]

    async def seen(self, name: str, content: bytes) -> None:
        """Wait until pods read this there."""
        await eventually(lambda: self._read(name) == content, what=f"{name} in the view of pods")

    def _read(self, name: str) -> bytes | None:
        try:
            return (self.view / name).read_bytes()
        except OSError:
            return None

    async def _listen(self, problem: str) -> None:
        self.told.append(problem)

    def _write_secret(self, secret: Mapping[str, str]) -> None:
        (self.top / "secrets").mkdir(exist_ok=True)
        for key, value in secret.items():
            (self.top / "secrets" / f"engine.{key}").write_text(value)
