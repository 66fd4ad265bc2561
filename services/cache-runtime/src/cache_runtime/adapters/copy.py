"""Copying one chunk of a sync, and the deletions after the last one."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import structlog

from cache_runtime.adapters.client import JuiceFs
from cache_runtime.adapters.listers import inside
from cache_runtime.adapters.secret_files import SecretFiles
from cache_runtime.adapters.walk import join, stat_file
from cache_runtime.domain import juicefs as commands
from cache_runtime.domain.juicefs import Command
from cache_runtime.domain.model import Outcome
from cache_runtime.domain.paths import decode_path, is_line_safe, is_safe_key, relative_path
from cache_runtime.domain.runs import bandwidth_share, needs_final_pass
from cache_runtime.ports import Mounted
from paddlewheel.contracts.generated.cache_v1 import Chunk, FileEntry, RunSpec
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent

log = structlog.get_logger(__name__)

TRIES = 3
SINGLES = 4
"""Copies of single objects at once, for names that no line can carry."""
CHUNK_TIMEOUT = 6 * 3600.0
_PAUSE = 1.0


class CopyWorker:
    """Copies objects into the volume and compares sizes afterwards through the mount."""

    def __init__(
        self, root: Path, sub_dir: str, client: JuiceFs, secrets: SecretFiles, mount: Mounted, clock: Clock
    ) -> None:
        self._root, self._sub_dir, self._client = root, sub_dir, client
        self._secrets, self._mount, self._clock = secrets, mount, clock

    async def work(self, spec: RunSpec, chunk: Chunk) -> Outcome:
        """Implements `ChunkWorker`."""
        assert spec.sync is not None
        await self._mount.wait_mounted()
        safe = [entry for entry in chunk.files if is_safe_key(decode_path(entry.path))]
        missing, problem = await self._copy_all(spec, safe)
        bad = {entry.path for entry in missing}
        done = [entry for entry in safe if entry.path not in bad]
        failed = [f"{e.path}: such a key would leave the data set" for e in chunk.files if e not in safe]
        failed += [f"{entry.path}: {problem}" for entry in missing]
        return Outcome(len(done), sum(entry.size for entry in done), failed=tuple(failed))

    async def finish(self, spec: RunSpec) -> None:
        """Implements `Finisher`: deletions need both whole listings, so one agent does them."""
        if not needs_final_pass(spec) or spec.sync is None:
            return
        source, target = await self._ends(spec)
        command = commands.finish_sync(spec.sync, source, target)
        done = await self._client.run(command, timeout=CHUNK_TIMEOUT)
        if done.code:
            raise Permanent("DeleteFailed", done.problem)

    async def _copy_all(self, spec: RunSpec, entries: list[FileEntry]) -> tuple[list[FileEntry], str]:
        """What is still missing after all tries, and the last problem."""
        source, target = await self._ends(spec)
        problem = "size differs from the source"
        for attempt in range(TRIES):
            if attempt:
                log.warning("chunk incomplete", run=spec.run_id, missing=len(entries), problem=problem)
                await self._clock.sleep(_PAUSE * 3**attempt)
            problem = await self._copy(spec, entries, source, target) or problem
            entries = await asyncio.to_thread(self._not_arrived, spec, entries)
            if not entries:
                break
        return entries, problem

    async def _ends(self, spec: RunSpec) -> tuple[Command, Command]:
        assert spec.sync is not None
        source = commands.source_url(spec.sync, await self._secrets.credentials(spec.sync.secret))
        engine = await self._secrets.engine()
        return source, commands.target_url(engine, self._sub_dir, spec.sync.destination)

    async def _copy(self, spec: RunSpec, entries: list[FileEntry], source: Command, target: Command) -> str:
        keys = [decode_path(entry.path) for entry in entries]
        await asyncio.to_thread(self._make_directories, spec, [key for key in keys if key.endswith(b"/")])
        lines = [key for key in keys if is_line_safe(key)]
        singles = [key for key in keys if not is_line_safe(key) and not key.endswith(b"/")]
        problem = ""
        if lines:
            with tempfile.NamedTemporaryFile(prefix="paddlewheel-keys-") as listing:
                listing.write(b"".join(key + b"\n" for key in lines))
                listing.flush()
                problem = await self._sync(spec, ("--files-from", listing.name), source, target)
        return await self._copy_singles(spec, singles, source, target) or problem

    async def _copy_singles(
        self, spec: RunSpec, keys: Sequence[bytes], source: Command, target: Command
    ) -> str:
        """Start and end of the listing enclose exactly one key; nothing has to be quoted."""
        places = asyncio.Semaphore(1 if bandwidth_share(spec) else SINGLES)

        async def copy(key: bytes) -> str:
            name = os.fsdecode(key)
            async with places:
                return await self._sync(spec, (f"--start={name}", f"--end={name}"), source, target)

        problems = await asyncio.gather(*(copy(key) for key in keys))
        return next(filter(None, problems), "")

    async def _sync(self, spec: RunSpec, selection: tuple[str, ...], source: Command, target: Command) -> str:
        assert spec.sync is not None
        command = commands.copy_files(spec.sync, source, target, selection, bandwidth_share(spec))
        done = await self._client.run(command, timeout=CHUNK_TIMEOUT)
        return done.problem if done.code else ""

    def _destination(self, spec: RunSpec) -> bytes:
        assert spec.sync is not None
        return relative_path(spec.sync.destination, "syncOptions.destination").encode()

    def _make_directories(self, spec: RunSpec, keys: list[bytes]) -> None:
        for key in keys:
            relative = os.fsdecode(join(self._destination(spec), key.strip(b"/")))
            inside(self._root, relative, "syncOptions.destination").mkdir(parents=True, exist_ok=True)

    def _not_arrived(self, spec: RunSpec, entries: list[FileEntry]) -> list[FileEntry]:
        top = join(os.fsencode(self._root), self._destination(spec))
        return [
            entry
            for entry in entries
            if not _arrived(top, entry, any_size=bool(spec.sync and spec.sync.update))
        ]


def _arrived(top: bytes, entry: FileEntry, *, any_size: bool) -> bool:
    """Is the file there with the source's size? `update` may keep a newer file of another size."""
    key = decode_path(entry.path)
    if key.endswith(b"/"):
        return Path(os.fsdecode(join(top, key.strip(b"/")))).is_dir()
    found = stat_file(top, key.lstrip(b"/"))
    return found is not None and (any_size or found.st_size == entry.size)
