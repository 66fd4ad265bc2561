"""What a run is about: files of the mounted tree, lines of a list, objects of a source, paths to remove."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from cache_runtime.adapters.client import JuiceFs
from cache_runtime.adapters.secret_files import SecretFiles
from cache_runtime.adapters.walk import stat_file, walk
from cache_runtime.domain import juicefs as commands
from cache_runtime.domain.listing import ListingParser, Problem
from cache_runtime.domain.model import File
from cache_runtime.domain.paths import encode_path, outermost, relative_path, removable_path
from cache_runtime.domain.strategy import order
from cache_runtime.ports import Mounted
from paddlewheel.contracts.generated.cache_v1 import RunSpec, SyncOperation, WarmupOperation
from paddlewheel.core.errors import Permanent, Retry

BATCH = 1000


class WarmupLister:
    """Walks the mounted file system, or reads a ready list, in the order of the strategy."""

    def __init__(self, root: Path, mount: Mounted, threads: int) -> None:
        self._root, self._mount, self._threads = root, mount, threads

    async def files(self, spec: RunSpec) -> AsyncIterator[Sequence[File]]:
        """Implements `Lister`."""
        assert spec.warmup is not None
        await self._mount.wait_mounted()
        stream = iter(order(spec.warmup.strategy, self._stream(spec.warmup), spec.run_id))
        while batch := await asyncio.to_thread(_next_batch, stream):
            yield batch
            if not self._mount.is_mounted:
                raise Retry("ListingFailed", "the mount was lost")

    def _stream(self, warmup: WarmupOperation) -> Iterator[File]:
        if warmup.file:
            yield from self._listed(relative_path(warmup.file, "warmupOptions.file"))
            return
        paths = [relative_path(path, "warmupOptions.paths") for path in warmup.paths]
        for path in outermost(paths or [""]):
            yield from self._below(path)

    def _below(self, path: str) -> Iterator[File]:
        root = os.fsencode(self._root)
        top = inside(self._root, path, "warmupOptions.paths")
        if found := stat_file(root, path.encode()):
            yield File(encode_path(path.encode()), found.st_size)
            return
        if not top.is_dir():
            raise Permanent("PathNotFound", f"warmupOptions.paths: {path!r} does not exist in the data set")
        yield from walk(root, path.encode(), self._threads)

    def _listed(self, path: str) -> Iterator[File]:
        source = inside(self._root, path, "warmupOptions.file")
        if not source.is_file():
            raise Permanent("PathNotFound", f"warmupOptions.file: {path!r} does not exist in the data set")
        with source.open("rb") as lines:
            for line in lines:
                if name := line.rstrip(b"\n"):
                    yield self._line(name)

    def _line(self, name: bytes) -> File:
        """A file that does not exist is listed all the same: the agent reports it by name."""
        text = name.decode("utf-8", "surrogateescape")
        clean = relative_path(text, "warmupOptions.file").encode("utf-8", "surrogateescape")
        found = stat_file(os.fsencode(self._root), clean)
        return File(encode_path(clean), found.st_size if found else 0)


class RemoveLister:
    """The paths to remove."""

    async def files(self, spec: RunSpec) -> AsyncIterator[Sequence[File]]:
        """Implements `Lister`."""
        assert spec.remove is not None
        paths = [removable_path(path, "rmrOptions.paths") for path in spec.remove.paths]
        if not paths:
            raise Permanent("InvalidPath", "rmrOptions.paths: name at least one path")
        yield [File(encode_path(path.encode()), 0) for path in outermost(paths)]


class SourceLister:
    """Objects of any store that `juicefs sync` can read."""

    def __init__(self, client: JuiceFs, secret_files: SecretFiles) -> None:
        self._client, self._secrets = client, secret_files

    async def files(self, spec: RunSpec) -> AsyncIterator[Sequence[File]]:
        """Implements `Lister`."""
        assert spec.sync is not None
        source = commands.source_url(spec.sync, await self._secrets.credentials(spec.sync.secret))
        found = 0
        with tempfile.TemporaryDirectory(prefix="paddlewheel-list-") as empty:
            async for batch in self._list(spec.sync, source, empty):
                found += len(batch)
                yield batch
        if not found and not _is_filtered(spec.sync):
            text = f"source.uri: no object below {spec.sync.source}: check bucket and prefix"
            raise Permanent("SourceEmpty", text)

    async def _list(
        self, sync: SyncOperation, source: commands.Command, empty: str
    ) -> AsyncIterator[Sequence[File]]:
        log_id = secrets.token_hex(16)
        command = commands.list_source(sync, source, empty, log_id)
        parser, problems = ListingParser(log_id), list[str]()
        async with self._client.process(command, stdout=asyncio.subprocess.DEVNULL) as process:
            assert process.stderr is not None
            while data := await process.stderr.read(1 << 16):
                yield _files(parser.feed(data), problems)
            yield _files(parser.close(), problems)
            if await process.wait() or problems:
                raise Retry("ListingFailed", (problems or ["juicefs sync --dry failed"])[-1])


def inside(root: Path, path: str, field: str) -> Path:
    """The real path, which symbolic links may not lead out of the data set.

    Raises:
        Permanent: `InvalidPath`.
    """
    real, top = Path(os.path.realpath(root / path)), Path(os.path.realpath(root))
    if real == top or top in real.parents:
        return real
    raise Permanent("InvalidPath", f"{field}: {path!r} leads out of the data set through a symbolic link")


def _next_batch(stream: Iterator[File]) -> list[File]:
    try:
        return list(islice(stream, BATCH))
    except OSError as error:
        raise Retry("ListingFailed", f"{error.strerror}: {error.filename!r}") from error


def _files(records: Iterable[File | Problem], problems: list[str]) -> list[File]:
    files = []
    for record in records:
        if isinstance(record, Problem):
            problems.append(commands.last_problem(record.text))
        else:
            files.append(record)
    return files


def _is_filtered(sync: SyncOperation) -> bool:
    return bool(sync.include or sync.exclude or sync.start or sync.end)
