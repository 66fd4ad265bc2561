"""Sync: copy objects into the data set. One is done when the engine says so and its size is right.

What is there with the same size is not compared: how many files were kept so is told at the end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime

from cache_runtime.domain.model import Batch, FileStat, TreeSize
from cache_runtime.domain.paths import (
    decode_path,
    encode_path,
    join,
    key_problem,
    length_problem,
    relative_path,
)
from cache_runtime.engines.ports import Copied, NotBegun, Transfer
from cache_runtime.operations.base import ChunkTask, Node, RunOperation
from cache_runtime.operations.obstacles import Obstacles
from cache_runtime.operations.torn import TornFiles
from cache_runtime.retrying import at_most
from cache_runtime.timing import (
    CHUNK_COPY_TIMEOUT_SECONDS,
    DELETION_TIMEOUT_SECONDS,
    OBJECT_COPY_TIMEOUT_SECONDS,
)
from cache_runtime.tree import Tree
from cache_runtime.walk import is_leftover
from paddlewheel.contracts.crds.operations import TWO_DELETIONS
from paddlewheel.contracts.generated.cache_v1 import FileEntry, RunSpec, SyncOperation
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Permanent, Retry

_DESTINATION = "syncOptions.destination"
_UNFINISHED = "files of such names are unfinished copies, which no reader sees: rename or exclude it"
RUNS = 16
"""Of so many runs, the last ones, it is known what could not be removed."""
SLOWEST = 8
"""Mbit per second below which a copy without a limit counts as stuck."""
_NO_DIRECTORY, _OTHER_SIZE = "is no directory", "size differs from the source"
_KEEPS_NEWER = "has another size than was listed in the source: an update replaces older files only"


class Sync(RunOperation):
    """Copies from the source into the volume."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._transfer, self._tree, self._clock = node.engine.transfer, node.tree, node.clock
        self._torn: dict[str, TornFiles] = {}
        """By id of the run."""

    def is_dry(self, spec: RunSpec) -> bool:
        return spec.sync is not None and spec.sync.dry

    async def list(self, spec: RunSpec) -> AsyncGenerator[Batch, None]:
        assert spec.sync is not None
        if spec.sync.delete_src and spec.sync.delete_dst:
            raise Permanent("InvalidSpec", f"syncOptions: {TWO_DELETIONS}")
        found = 0
        async with aclosing(self._transfer.list(spec.sync)) as listing:
            async for files in listing:
                found += len(files)
                yield Batch(files)
        if not found and not may_be_empty(spec.sync):
            raise Permanent(Reason.SOURCE_EMPTY, _nothing_listed(spec.sync))

    async def prepare(self, spec: RunSpec, files: Sequence[FileEntry], partition: int) -> ChunkTask:
        assert spec.sync is not None
        mbps, torn = bandwidth_share(spec, partition), self._torn_of(spec.run_id)
        may_remove = spec.sync.delete_dst and not is_filtered(spec.sync)
        obstacles = Obstacles(self._node, spec, _destination(spec.sync), may_remove=may_remove)
        return _SyncTask(self._transfer, self._tree, spec.sync, mbps, files, torn, obstacles)

    def _torn_of(self, run_id: str) -> TornFiles:
        """It outlives the tries of a chunk: a mount may be lost between a copy and the removal."""
        self._torn[run_id] = self._torn.pop(run_id, TornFiles(self._tree, self._clock))
        for forgotten in list(self._torn)[:-RUNS]:
            del self._torn[forgotten]
        return self._torn[run_id]

    @property
    def notes_hold(self) -> bool:
        return True

    def again(self, spec: RunSpec) -> RunSpec:
        assert spec.sync is not None
        return spec.model_copy(update={"sync": _again(spec.sync)})

    async def tidy(self, spec: RunSpec, files: Sequence[FileEntry]) -> None:
        assert spec.sync is not None
        keys = [key for entry in files if not is_directory_key(key := decode_path(entry.path))]
        destination = _destination(spec.sync)
        copied = [_target(destination, key) for key in keys if not _unwritable(destination, key)]
        await self._tree.remove_leftovers(copied)

    def remark(self, spec: RunSpec, uncompared: int) -> str:
        assert spec.sync is not None
        if not uncompared:
            return ""
        found = "1 file was there" if uncompared == 1 else f"{uncompared} files were there"
        if spec.sync.update:
            return f"{found}, not older than in the source, and not compared"
        return f"{found} with the same size and not compared"

    async def finish(self, spec: RunSpec, done: TreeSize) -> None:
        """Deletions need both complete listings, so the master alone does them.

        Never both: this is repeated by the next master and when the bus is away, and what the first pass has
        deleted in the source would be an extra file of the destination for the second.
        """
        assert spec.sync is not None
        if spec.sync.delete_dst:
            await self._delete_extra(spec.sync, done)
        elif spec.sync.delete_src:
            await self._delete_copied(spec.sync, done.bytes, self._torn_of(spec.run_id))

    async def _delete_copied(self, sync: SyncOperation, size: int, torn: TornFiles) -> None:
        """What differs is copied again, and may change meanwhile."""
        await torn.remove_all()
        limit, found = sync.bandwidth_limit, set[bytes]()
        try:
            async with at_most(
                DELETION_TIMEOUT_SECONDS + copy_time(size, limit), Reason.COPY_TIMEOUT, "comparing"
            ):
                await self._transfer.delete_copied(sync, limit, found)
        except (Retry, Permanent) as error:
            torn.add(_target(_destination(sync), key) for key in found)
            if stays := await torn.remove_all():
                text = f"{len(stays)} files of the destination: {next(iter(stays.values()))}"
                raise type(error)(error.reason, f"{text}; {error.message}") from error
            raise

    async def _delete_extra(self, sync: SyncOperation, copied: TreeSize) -> None:
        """Each of the two reads all of a source that may be large, and has its own time for that."""
        async with at_most(DELETION_TIMEOUT_SECONDS, Reason.COPY_TIMEOUT, "listing the source"):
            source = await self._transfer.read_source(sync)
        _check_source(sync, source.size, copied)
        async with at_most(DELETION_TIMEOUT_SECONDS, Reason.COPY_TIMEOUT, "deleting"):
            await source.delete_extra()


class _SyncTask:
    """Copies the objects of one chunk."""

    def __init__(
        self,
        transfer: Transfer,
        tree: Tree,
        sync: SyncOperation,
        mbps: int,
        files: Sequence[FileEntry],
        torn: TornFiles,
        obstacles: Obstacles,
    ) -> None:
        self._transfer, self._tree, self._sync, self._mbps = transfer, tree, sync, mbps
        self._torn, self._obstacles = torn, obstacles
        self._destination = _destination(sync)
        self._failed: Mapping[bytes, str] = {}
        self.away: frozenset[str] = frozenset()
        self._tried = 0
        """Files of the first try."""
        self.kept = self.uncompared = 0
        self._changed: dict[str, float] = {}
        """When what is done was changed last, as `FileStat.changed`."""
        self._refusals: dict[bytes, str] = {}
        """Why a directory cannot be made, by path."""
        self.notes: dict[str, str] = {}
        problems = {entry.path: _unwritable(self._destination, decode_path(entry.path)) for entry in files}
        self.rejected = {path: problem for path, problem in problems.items() if problem}

    async def execute(self, files: Sequence[FileEntry]) -> None:
        keys = [decode_path(entry.path) for entry in files]
        torn = await self._remove_torn(keys)
        await self._obstacles.remove()
        stays = {key: self._failed.get(key, why) for key, why in torn.items()}
        directories = [self._target(key) for key in keys if is_directory_key(key)]
        there = sum(map(bool, await self._tree.directories(directories)))
        objects = [key for key in keys if not is_directory_key(key) and key not in stays]
        limit = (
            CHUNK_COPY_TIMEOUT_SECONDS
            + OBJECT_COPY_TIMEOUT_SECONDS * len(objects)
            + copy_time(sum(e.size for e in files), self._mbps)
        )
        async with at_most(limit, Reason.COPY_TIMEOUT, "copying"):
            copied, changed = await self._copy(objects) if objects else (Copied({}), set[bytes]())
        # Not before: a try that has copied nothing is none, and the next one would find them.
        made = await self._tree.make_directories(directories, _DESTINATION)
        self._refusals = dict(zip(directories, made, strict=True))
        self._sync = _again(self._sync)
        self._failed = {**stays, **copied.failed, **await self._left_torn(copied, changed)}
        self.away = frozenset(map(encode_path, copied.away))
        self._count(len(files), there, copied.kept or 0)

    def kept_since(self, at: datetime) -> int:
        """Where it is not the clock of this node that says when a copy was made, none."""
        if not self._transfer.tells_time:
            return 0
        return sum(changed < at.timestamp() for changed in self._changed.values())

    async def _copy(self, objects: Sequence[bytes]) -> tuple[Copied, set[bytes]]:
        """With those that are torn, which are remembered whatever the copy ends with."""
        torn = set[bytes]()
        try:
            return await self._transfer.copy(self._sync, objects, self._mbps, torn), torn
        except NotBegun as error:
            if self._tried:
                raise Retry(error.reason, error.message, after=error.after) from error
            raise
        finally:
            self._torn.add(map(self._target, torn))

    def _count(self, tried: int, directories: int, files: int) -> None:
        """What a later try finds, an earlier one may have copied. A directory has nothing to compare."""
        if not self._tried:
            self.kept, self._tried = directories + files, tried
        self.uncompared = files if tried == self._tried else self.uncompared + files

    async def verify(self, files: Sequence[FileEntry]) -> Mapping[str, str]:
        """An `update` may keep a newer file of another size."""
        directories = [entry for entry in files if is_directory_key(decode_path(entry.path))]
        objects = [entry for entry in files if not is_directory_key(decode_path(entry.path))]
        wanted = [self._target(decode_path(entry.path)) for entry in directories]
        made = await self._tree.directories(wanted)
        stats = await self._tree.stat([self._target(decode_path(e.path)) for e in objects])
        why = [self._refusals.get(path) or _NO_DIRECTORY for path in wanted]
        problems = ["" if found else problem for found, problem in zip(made, why, strict=True)]
        sizes = await self._sizes(objects, stats)
        problems += [self._problem(entry, size) for entry, size in zip(objects, sizes, strict=True)]
        checked = list(zip((*directories, *objects), problems, (*made, *stats), strict=True))
        self._changed |= {e.path: found.changed for e, problem, found in checked if found and not problem}
        failed = {entry.path: problem for entry, problem, _ in checked if problem}
        left = [path for path in failed if path not in self.away]
        in_way = await self._obstacles.find({path: self._target(decode_path(path)) for path in left})
        return {**failed, **in_way}

    async def _sizes(
        self, objects: Sequence[FileEntry], stats: Sequence[FileStat | None]
    ) -> Sequence[int | None]:
        """The sizes of the files. The mount may remember a former size, so a size that is not that of the
        source is read from the volume again."""
        sizes = {
            entry.path: found.size if found else None for entry, found in zip(objects, stats, strict=True)
        }
        keys = {decode_path(entry.path): entry for entry in objects if sizes[entry.path] != entry.size}
        if doubtful := [key for key in keys if key not in self._failed]:
            found = await self._transfer.sizes(self._sync, doubtful)
            sizes |= {keys[key].path: found.get(key) for key in doubtful}
        return list(sizes.values())

    def _problem(self, entry: FileEntry, size: int | None) -> str:
        """A size alone proves nothing: an older file may have it."""
        if problem := self._failed.get(decode_path(entry.path)):
            return problem
        if size == entry.size:
            return ""
        if size is None or not self._sync.update:
            return _OTHER_SIZE
        self.notes[entry.path] = _KEEPS_NEWER
        return ""

    async def _left_torn(self, copied: Copied, torn: Iterable[bytes]) -> Mapping[bytes, str]:
        """Why some stay. Each try begins with them: an update would take them for newer ones."""
        stays = await self._remove_torn(torn)
        return {key: "; ".join(filter(None, (copied.failed.get(key), why))) for key, why in stays.items()}

    async def _remove_torn(self, keys: Iterable[bytes]) -> Mapping[bytes, str]:
        """Why some stay: the mount may be read-only, or lost."""
        paths = {key: self._target(key) for key in keys}
        stays = await self._torn.remove(dict.fromkeys(paths.values()))
        return {key: stays[path] for key, path in paths.items() if path in stays}

    def _target(self, key: bytes) -> bytes:
        return _target(self._destination, key)


def _destination(sync: SyncOperation) -> bytes:
    """Raises Permanent for one outside the data set."""
    return relative_path(sync.destination, _DESTINATION).encode()


def _unwritable(destination: bytes, key: bytes) -> str:
    """Why no file of the data set can have this key, "" when one can."""
    if problem := length_problem(_target(destination, key)) or key_problem(key):
        return problem
    return _UNFINISHED if is_leftover(key.rpartition(b"/")[2]) else ""


def _target(destination: bytes, key: bytes) -> bytes:
    """The path in the data set."""
    return join(destination, key.removesuffix(b"/"))


def is_directory_key(key: bytes) -> bool:
    """Whether the object stands for a directory."""
    return key.endswith(b"/")


def is_filtered(sync: SyncOperation) -> bool:
    """Whether some objects of the source are left out."""
    return bool(sync.include or sync.exclude or sync.start or sync.end)


def may_be_empty(sync: SyncOperation) -> bool:
    """Whether an empty listing may be what the user asked for; never when it would empty the destination."""
    return is_filtered(sync) and not sync.delete_dst


def _check_source(sync: SyncOperation, found: TreeSize, copied: TreeSize) -> None:
    """It may have lost files since it was listed, long ago and on another node if another master did so.
    Where an export is not mounted, its directory is empty, or has a stray file.

    Raises:
        Permanent: it is empty, or has less than was copied; the copies of what it lacks would be deleted.
    """
    if not found.files:
        raise Permanent(Reason.SOURCE_EMPTY, _nothing_listed(sync))
    if found.files < copied.files or found.bytes < copied.bytes:
        raise Permanent(Reason.SOURCE_CHANGED, _shrunk(sync, found, copied))


def _nothing_listed(sync: SyncOperation) -> str:
    if not is_filtered(sync):
        return f"source.uri: no object below {sync.source}: check bucket and prefix"
    return (
        f"source.uri: no object below {sync.source} passes the filters, and delete-dst would delete"
        " the whole destination: check bucket, prefix and filters, or empty it with a SampleJob of type rmr"
    )


def _shrunk(sync: SyncOperation, found: TreeSize, copied: TreeSize) -> str:
    return (
        f"source.uri: {sync.source} had {_described(copied)} when it was listed, and has {_described(found)}"
        " before delete-dst: nothing was deleted; see that every node of the set has the whole source"
        " mounted, and run it again"
    )


def _described(size: TreeSize) -> str:
    return f"{size.files} files of {size.bytes} bytes"


def bandwidth_share(spec: RunSpec, partition: int) -> int:
    """Mbit per second for the agent of a partition, whole numbers that add up to the limit; 0 = no limit.

    A run with a limit has no more partitions than that, so that none gets nothing.
    """
    limit = spec.sync.bandwidth_limit if spec.sync else 0
    if not limit:
        return 0
    share, left = divmod(limit, max(1, spec.partitions))
    return max(1, share + (partition < left))


def copy_time(size: int, mbps: int) -> float:
    """Seconds that copying may take: twice those of the limit, or of the slowest source.

    Args:
        size: bytes.
        mbps: limit in Mbit per second, 0 = none.
    """
    return 2 * size * 8 / (min(mbps or SLOWEST, SLOWEST) * 1e6)


def create(node: Node) -> RunOperation:
    """The operation on this node."""
    return Sync(node)


def _again(sync: SyncOperation) -> SyncOperation:
    """Of what was begun before, nothing that is there proves anything: a file may be of two versions, and
    have the right size. With `update` it is kept all the same: it may be somebody's newer one.

    The client writes to a name of its own, so that one which is killed leaves an old file or a new one. Of
    two versions is what has changed in the source while it was read, until the client says so and it is
    removed: with `update` it stays if the agent is killed in that moment.
    """
    return sync if sync.update else sync.model_copy(update={"force_update": True})
