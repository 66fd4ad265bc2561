"""Listing a source and copying from it into the volume, with `juicefs sync`."""

from __future__ import annotations

import asyncio
import os
import secrets as random_ids
import tempfile
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cache_runtime.cell import Cell
from cache_runtime.domain.model import File, TreeSize
from cache_runtime.domain.paths import decode_path
from cache_runtime.engines.juicefs import commands
from cache_runtime.engines.juicefs.addresses import source_url, target_url
from cache_runtime.engines.juicefs.client import Completed, JuiceFsClient
from cache_runtime.engines.juicefs.command import Command
from cache_runtime.engines.juicefs.copies import CopyLog, CopyReport, torn_names
from cache_runtime.engines.juicefs.mount_options import sub_directory
from cache_runtime.engines.juicefs.output import (
    ListingParser,
    Problem,
    Record,
    Remark,
    cause_of,
    is_outage,
    refused_filter,
    unreadable_directory,
)
from cache_runtime.engines.juicefs.secret import read_engine_secret
from cache_runtime.engines.juicefs.volumes import Volumes
from cache_runtime.engines.ports import Copied, NotBegun, SourceReading
from cache_runtime.local_sources import LocalSources
from cache_runtime.secret_files import SecretFiles
from cache_runtime.timing import LISTING_TIMEOUT_SECONDS
from paddlewheel.contracts.generated.cache_v1 import SyncOperation
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Permanent, Retry

T = TypeVar("T")

_CACHED = ("attr-cache", "entry-cache", "dir-entry-cache", "negative-entry-cache")
"""Mount options that replace a second."""
SINGLES = 4
"""Concurrent copies of single objects, whose keys no line of a list can hold."""


class JuiceFsTransfer:
    """Implements `Transfer`.

    Args:
        options: of the mount: what is copied goes below the directory that is mounted.
    """

    def __init__(
        self,
        client: JuiceFsClient,
        volumes: Volumes,
        secrets: SecretFiles,
        options: Mapping[str, str],
        local: LocalSources,
        cell: Cell,
    ) -> None:
        self._client, self._volumes, self._secrets = client, volumes, secrets
        self._options, self._local, self._cell = options, local, cell

    @property
    def tells_time(self) -> bool:
        """Unless the mount remembers longer what was there."""
        return self._options.keys().isdisjoint(_CACHED)

    async def close(self) -> None:
        await self._local.close()

    async def list(self, sync: SyncOperation) -> AsyncGenerator[Sequence[File], None]:
        async with aclosing(self._listed(sync, await self._source(sync))) as listed:
            async for files in listed:
                yield files

    async def copy(self, sync: SyncOperation, keys: Sequence[bytes], mbps: int, torn: set[bytes]) -> Copied:
        try:
            source, target = await self._source(sync), await self._target(sync)
        except Retry as error:
            raise NotBegun(error.reason, error.message, after=error.after) from error
        copying = _Copying(sync, source, target, mbps, torn)
        lines = [key for key in keys if commands.is_line_safe(key)]
        singles = [key for key in keys if not commands.is_line_safe(key)]
        copied = [await self._copy_lines(copying, lines)] if lines else []
        try:
            return _together([*copied, *await self._copy_singles(copying, singles)])
        except NotBegun as error:  # others may have been copied
            raise Retry(error.reason, error.message, after=error.after) from error

    async def sizes(self, sync: SyncOperation, keys: Sequence[bytes]) -> Mapping[bytes, int]:
        target = await self._target(sync)
        found: dict[bytes, int] = {}

        async def ask(selection: Sequence[str]) -> None:
            async with aclosing(self._list(partial(commands.list_files, sync, target, selection))) as listed:
                async for files in listed:
                    found.update({decode_path(file.path): file.size for file in files})

        if lines := [key for key in keys if commands.is_line_safe(key)]:
            async with self._selected(lines) as selection:
                await ask(selection)
        for key in (os.fsdecode(key) for key in keys if not commands.is_line_safe(key)):
            await ask(commands.between(key, key, target))
        return found

    async def read_source(self, sync: SyncOperation) -> SourceReading:
        """The client reads it again when it deletes, at the same mount."""
        source = await self._source(sync)
        count = size = 0
        async for files in self._listed(sync, source):
            count, size = count + len(files), size + sum(file.size for file in files)
        return SourceReading(TreeSize(count, size), lambda: self._delete_extra(sync, source))

    async def delete_copied(self, sync: SyncOperation, mbps: int, torn: set[bytes]) -> None:
        source, target = await self._source(sync), await self._target(sync)
        copying = commands.Copying(random_ids.token_hex(16), mbps)
        command = commands.delete_copied(sync, source, target, copying)
        done = await self._hear(command, copying.log_id, lambda said: torn.update(torn_names(said)))
        _check_deleted(done, copying.log_id)

    async def _delete_extra(self, sync: SyncOperation, source: Command) -> None:
        target, log_id = await self._target(sync), random_ids.token_hex(16)
        command, refusals = commands.delete_extra(sync, source, target, log_id), list[Permanent]()
        done = await self._hear(command, log_id, lambda said: refusals.extend(_refusals(said)))
        if refusals:
            raise refusals[0]
        _check_deleted(done, log_id)

    async def _hear(
        self, command: Command, log_id: str, hear: Callable[[Sequence[Record]], None]
    ) -> Completed:
        """Run to the end; all of the log is given to `hear`, for it may be longer than what is kept of it."""
        parser = ListingParser(log_id)
        try:
            return await self._client.run(command, hear=lambda data: hear(parser.feed(data)))
        finally:
            hear(parser.close())

    async def _source(self, sync: SyncOperation) -> Command:
        located = await self._local.locate(sync.source)
        local = None if located is None else self._cell.inside(located)
        return source_url(sync, await self._secrets.credentials(sync.secret), local)

    async def _target(self, sync: SyncOperation) -> Command:
        """Looked up each time: whoever owns the database can change where the volume has its data, and the
        Secret may name another volume now than is mounted. Raises as `Volumes.identify`."""
        engine = await read_engine_secret(self._secrets)
        await self._volumes.identify(engine)
        return target_url(engine, sub_directory(self._options), sync.destination)

    async def _listed(self, sync: SyncOperation, source: Command) -> AsyncGenerator[Sequence[File], None]:
        async with aclosing(self._list(partial(commands.list_source, sync, source))) as listed:
            async for files in listed:
                yield files

    async def _list(self, command: Callable[[str, str], Command]) -> AsyncGenerator[Sequence[File], None]:
        """The files that a command logs.

        Args:
            command: takes an empty directory, and the id of the log.
        """
        await asyncio.to_thread(self._cell.prepare)
        try:
            with tempfile.TemporaryDirectory(prefix="paddlewheel-list-", dir=self._cell.tmp) as empty:
                log_id = random_ids.token_hex(16)
                made = command(self._cell.inside(empty), log_id)
                async with aclosing(self._logged(made, log_id)) as logged:
                    async for files in logged:
                        yield files
        except OSError as error:
            raise self._cell.failed(error) from error

    async def _logged(self, command: Command, log_id: str) -> AsyncGenerator[Sequence[File], None]:
        parser, problems = ListingParser(log_id), list[str]()
        async with self._client.process(command, stdout=asyncio.subprocess.DEVNULL) as process:
            assert process.stderr is not None
            while data := await _heard(process.stderr.read(1 << 16)):
                yield _files(parser.feed(data), problems)
            yield _files(parser.close(), problems)
            if await _heard(process.wait()) or problems:
                raise _listing_failed(problems)

    async def _copy_lines(self, copying: _Copying, keys: Sequence[bytes]) -> Copied:
        async with self._selected(keys) as selection:
            return await self._copy(copying, selection, keys)

    @asynccontextmanager
    async def _selected(self, keys: Sequence[bytes]) -> AsyncIterator[tuple[str, ...]]:
        """Arguments that select the keys, each of which a line can hold."""
        await asyncio.to_thread(self._cell.prepare)
        try:
            with tempfile.NamedTemporaryFile(prefix="paddlewheel-keys-", dir=self._cell.tmp) as listing:
                listing.write(b"".join(key + b"\n" for key in keys))
                listing.flush()
                yield ("--files-from", self._cell.inside(listing.name), commands.NOTHING_BELOW)
        except OSError as error:
            raise self._cell.failed(error) from error

    async def _copy_singles(self, copying: _Copying, keys: Sequence[bytes]) -> Sequence[Copied]:
        """Start and end of the listing enclose exactly one key; nothing has to be quoted."""
        slots = asyncio.Semaphore(1 if copying.mbps else SINGLES)

        async def copy(key: bytes) -> Copied:
            name = os.fsdecode(key)
            selection = tuple(commands.between(name, name, copying.source))
            async with slots:
                return await self._copy(copying, selection, [key])

        try:
            async with asyncio.TaskGroup() as group:
                copies = [group.create_task(copy(key)) for key in keys]
        except ExceptionGroup as errors:  # the first has ended the others, and their clients
            raise errors.exceptions[0] from errors
        return [each.result() for each in copies]

    async def _copy(self, copying: _Copying, selection: tuple[str, ...], keys: Sequence[bytes]) -> Copied:
        """What has left the source is no failure to the client, whatever it ends with.

        Raises:
            NotBegun: the store or the database is away, and the client has found nothing at all. Objects that
                it could not copy beside others are failures.
            Retry: the same, or it may have found some, and does not say.
        """
        how = commands.Copying(random_ids.token_hex(16), copying.mbps)
        log = CopyLog(how.log_id)
        command = commands.copy_files(copying.sync, copying.source, copying.target, selection, how)
        try:
            done = await self._client.run(command, hear=log.feed)
        finally:
            log.close()
            report = CopyReport(log, keys)
            copying.torn.update(report.torn)
        cause = report.cause or f"juicefs sync has ended with code {done.code}, and does not say why"
        if done.code and is_outage(cause) and not report.found:
            raise (Retry if report.found is None else NotBegun)("CopyFailed", cause)
        unanswered = frozenset(report.unanswered)
        if not done.code:
            return Copied(report.missing, report.kept, away=unanswered)
        failed = {**report.missing, **report.failed}
        return Copied(failed, report.kept, report.away | (unanswered - report.failed.keys()))


@dataclass(frozen=True)
class _Copying:
    """What the commands of one copy have in common; `torn` is the caller's."""

    sync: SyncOperation
    source: Command
    target: Command
    mbps: int
    torn: set[bytes]


def _together(copies: Sequence[Copied]) -> Copied:
    failed = {key: problem for each in copies for key, problem in each.failed.items()}
    kept = [each.kept for each in copies if each.kept is not None]
    away = frozenset[bytes]().union(*(each.away for each in copies))
    return Copied(failed, sum(kept) if len(kept) == len(copies) else None, away)


async def _heard(answer: Awaitable[T]) -> T:
    """What the client says next. Raises Retry when it is silent."""
    try:
        async with asyncio.timeout(LISTING_TIMEOUT_SECONDS):
            return await answer
    except TimeoutError as error:
        text = (
            f"the source has said nothing for {LISTING_TIMEOUT_SECONDS:.0f} s: see whether the store answers"
        )
        raise Retry(Reason.SOURCE_SILENT, text) from error


def _check_deleted(done: Completed, log_id: str) -> None:
    """Raises Retry for a store or a database that is away, Permanent for what they refuse."""
    if done.code:
        problem = done.problem_under(log_id)
        raise (Retry if is_outage(problem) else Permanent)("DeleteFailed", problem)


def _listing_failed(problems: Sequence[str]) -> Retry | Permanent:
    """Retry for a source that is away; what it refuses, it refuses again."""
    problem = cause_of(problems or ["juicefs sync --dry failed"])
    kind = Retry if any(map(is_outage, problems)) else Permanent
    return kind("ListingFailed", problem)


def _files(found: Sequence[Record], problems: list[str]) -> list[File]:
    """The files; problems are added to the list.

    Raises:
        Permanent: a filter or a directory was left out.
    """
    files = []
    for record in found:
        if isinstance(record, File):
            files.append(record)
        elif isinstance(record, Problem):
            problems.append(cause_of([record.text]))
    for refusal in _refusals(found):
        raise refusal
    return files


def _refusals(said: Iterable[Record]) -> Iterator[Permanent]:
    """For what the client goes on without: a filter or a directory."""
    for remark in said:
        if not isinstance(remark, Remark):
            continue
        if refusal := refused_filter(remark):
            yield Permanent("InvalidFilter", refusal)
        elif skipped := unreadable_directory(remark):
            yield Permanent("ListingFailed", skipped)
