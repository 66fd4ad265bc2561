"""Every operation on a fake engine and a real directory: list, execute, verify, finish."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest
from tests.contract.engines import plain
from tests.unit.cache_runtime.settings import make_settings

from cache_runtime import execution, timing
from cache_runtime.app import EngineFactory
from cache_runtime.domain.model import Batch, CacheReport, CacheUse, File, Outcome, TreeSize
from cache_runtime.engines import juicefs
from cache_runtime.engines.ports import Ailment, Copied, Engine, NotBegun, SourceReading
from cache_runtime.execution import FIRST, Before, execute_chunk
from cache_runtime.listing import Walker
from cache_runtime.operations import create_operations
from cache_runtime.operations import sync as sync_module
from cache_runtime.operations import torn as torn_module
from cache_runtime.operations.base import TRIES, Node, RunOperation
from cache_runtime.operations.warmup import REMEMBERED
from cache_runtime.secret_files import SecretFiles
from cache_runtime.timing import EXECUTION_RETRY_INTERVAL_SECONDS
from cache_runtime.tree import Tree
from cache_runtime.volume_record import VolumeRecord
from paddlewheel.bus.streams import NODES_BUCKET
from paddlewheel.contracts.crds.operations import OPERATIONS
from paddlewheel.contracts.generated.cache_v1 import (
    Chunk,
    ClearOperation,
    FileEntry,
    RemoveOperation,
    RunSpec,
    SamplerOrder,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.wait import eventually


@dataclass
class FakeEngine:
    """Mount, volume, cache and transfer in one; copies by writing files of the wanted size.

    Args:
        stubborn: how many times a file must be executed until it is done, by its name.
        objects: what the source lists.
        problem: what `copy` and `remove` report for files that are not done yet.
        unexamined: how many files each `check` cannot examine, the last first; none when it is empty.
        holes: bytes of each file that are a hole.
        breaks: what ends a copy in the middle.
        leaves: a copy that fails leaves what it has begun to write.
        unfinished: what others were writing at the end of each copy.
        kept: how many files each copy leaves as they are.
        is_away: what is not done yet fails because its store is away.
        tears: a copy that fails leaves parts of two versions, as does a last pass.
        breaks_late: what ends a copy after it has told of these.
        forced: whether each copy replaces what is there.
        grown: bytes that each file has more than the mount shows.
    """

    path: Path
    is_mounted: bool = True
    message: str = ""
    stubborn: dict[str, int] = field(default_factory=dict)
    objects: list[File] = field(default_factory=list)
    problem: str = ""
    own_inodes: range = range(0)
    calls: list[str] = field(default_factory=list)
    cached: set[int] = field(default_factory=set)
    unexamined: list[int] = field(default_factory=list)
    holes: int = 0
    breaks: BaseException | None = None
    tells_time = True
    updates: bool = False
    """It leaves what is there as it is."""
    leaves: bool = False
    unfinished: list[list[str]] = field(default_factory=list)
    kept: list[int | None] = field(default_factory=list)
    is_away: bool = False
    tears: bool = False
    breaks_late: BaseException | None = None
    forced: list[bool] = field(default_factory=list)
    grown: int = 0

    ailment: Ailment | None = None
    changed_at: datetime | None = None
    changes: int = 0
    is_ending = False
    is_silent = False
    has_left: bool = False

    def leave(self) -> None:
        self.has_left = True

    async def wait_mounted(self) -> None:
        return None

    async def wait_changed(self, changes: int) -> None:
        while self.changes == changes:
            await asyncio.sleep(0.01)

    async def wait_silent(self, *, is_silent: bool) -> None:
        await asyncio.Event().wait()

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()

    async def remove(self, path: Path) -> str:
        if self._is_due(path.name):
            return self.problem
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return ""

    async def size(self) -> TreeSize:
        return TreeSize(0, 0)

    async def warm(self, inodes: Sequence[int], threads: int) -> None:
        names = {path.lstat().st_ino: path.name for path in self.path.rglob("*")}
        self.calls.append(f"warm {len(inodes)} with {threads}")
        self.cached |= {inode for inode in inodes if not self._is_due(names[inode])}

    async def check(self, inodes: Sequence[int], threads: int) -> CacheReport:
        """As the client: what cannot be examined is counted, and neither its bytes nor what it lacks."""
        self.calls.append(f"check {len(inodes)}")
        sizes = {path.lstat().st_ino: path.lstat().st_size for path in self.path.rglob("*")}
        found = [inode for inode in inodes if inode in sizes]
        examined = found[: len(found) - self.unexamined.pop()] if self.unexamined else found
        missing = sum(sizes[inode] for inode in examined if inode not in self.cached)
        return CacheReport(len(found), sum(sizes[inode] - self.holes for inode in examined), missing)

    async def clear(self, directories: Sequence[str]) -> None:
        self.calls.append(f"clear {','.join(directories)}")

    async def use(self) -> CacheUse:
        return CacheUse(10 * len(self.cached))

    async def staged_bytes(self) -> int:
        return 0

    async def list(self, sync: SyncOperation) -> AsyncGenerator[Sequence[File], None]:
        first, last = sync.start, sync.end
        yield [file for file in self.objects if first <= file.path and (not last or file.path <= last)]

    async def copy(self, sync: SyncOperation, keys: Sequence[bytes], mbps: int, torn: set[bytes]) -> Copied:
        self.calls.append(f"copy {len(keys)} at {mbps}")
        self.forced.append(sync.force_update)
        if self.breaks:
            raise self.breaks
        self.unfinished.append(sorted(path.name for path in self.path.rglob(".jfs.*")))
        failed = [key for key in keys if self._is_due(key.decode())]
        for key in failed if self.leaves else ():
            (self.path / sync.destination / f".jfs.{key.decode()}.tmp.1").write_bytes(b"x")
        found = 0
        for key in keys:
            if key not in failed:
                target = self.path / sync.destination / key.decode()
                found += target.exists() and not sync.force_update
                if self.updates and target.exists():
                    continue
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(b"x" * 10)
                except OSError:
                    failed.append(key)
        kept = self.kept.pop(0) if self.kept else found
        torn |= set(failed if self.tears else ())
        for key in torn:
            (self.path / sync.destination / key.decode()).write_bytes(b"ab" * 5)
        if self.breaks_late:
            raise self.breaks_late
        return Copied(
            dict.fromkeys(failed, self.problem) if self.problem else {},
            kept,
            frozenset(failed if self.is_away else ()),
        )

    async def sizes(self, sync: SyncOperation, keys: Sequence[bytes]) -> Mapping[bytes, int]:
        self.calls.append(f"sizes of {len(keys)}")
        paths = {key: self.path / sync.destination / key.decode() for key in keys}
        return {key: path.lstat().st_size + self.grown for key, path in paths.items() if path.is_file()}

    async def read_source(self, sync: SyncOperation) -> SourceReading:
        size = TreeSize(len(self.objects), sum(file.size for file in self.objects))
        return SourceReading(size, self._delete_extra)

    async def _delete_extra(self) -> None:
        self.calls.append("delete extra")

    async def delete_copied(self, sync: SyncOperation, mbps: int, torn: set[bytes]) -> None:
        self.calls.append(f"delete copied at {mbps}")
        if self.tears:
            torn.add(b"a")
            (self.path / sync.destination / "a").write_bytes(b"ab" * 5)
            raise Permanent("DeleteFailed", self.problem)

    async def close(self) -> None:
        return None

    @property
    def warmings(self) -> Sequence[str]:
        return [call for call in self.calls if call.startswith("warm")]

    def _is_due(self, name: str) -> bool:
        """Whether the file needs more executions than this one."""
        left = self.stubborn.get(name, 0)
        self.stubborn[name] = left - 1
        return left > 0


@dataclass
class Harness:
    """The operations of one node over a directory."""

    root: Path
    own_inodes: range = range(0)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.engine = FakeEngine(self.root, own_inodes=self.own_inodes)
        parts = Engine(mount=self.engine, volume=self.engine, cache=self.engine, transfer=self.engine)
        tree = Tree(self.root, self.engine.own_inodes, 2)
        self.operations = create_operations(Node(parts, tree, ["/cache/a", "/cache/b"], SystemClock()))

    def operation(self, spec: RunSpec) -> RunOperation:
        member = next(row.member for row in OPERATIONS if getattr(spec, row.member) is not None)
        return self.operations[member]

    async def batches(self, spec: RunSpec) -> list[Batch]:
        return [batch async for batch in self.operation(spec).list(spec)]

    async def names(self, spec: RunSpec) -> list[str]:
        return [file.path for batch in await self.batches(spec) for file in batch.files]

    async def execute(
        self,
        spec: RunSpec,
        *files: tuple[str, int],
        partition: int = 0,
        warmed: int = 0,
        is_first: bool = True,
        begun_at: datetime | None = None,
        may_wait: bool = True,
    ) -> Outcome:
        """Execute a chunk; pauses between tries pass at once."""
        entries = [FileEntry(path=path, size=size) for path, size in files]
        work = asyncio.create_task(
            execute_chunk(
                self.operation(spec),
                spec,
                Chunk(files=entries, partition=partition),
                self.clock,
                warmed,
                before=FIRST if is_first else Before(begun_at),
                may_wait=may_wait,
            )
        )
        while not work.done():
            await asyncio.sleep(0)
            await self.clock.advance(EXECUTION_RETRY_INTERVAL_SECONDS)
        return await work

    def present(self) -> list[str]:
        """Its files."""
        return [str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()]

    def write(self, *names: str, size: int = 10) -> None:
        for name in names:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * size)


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    root = tmp_path / "set"
    root.mkdir()
    return Harness(root)


def warmup(partitions: int = 1, **options: object) -> RunSpec:
    return RunSpec(run_id="r", partitions=partitions, warmup=WarmupOperation.model_validate(options))


def sync(**options: object) -> RunSpec:
    return RunSpec(
        run_id="r",
        set_namespace="ns",
        set_name="set",
        partitions=2,
        sync=SyncOperation.model_validate(options),
    )


def remove(*paths: str) -> RunSpec:
    return RunSpec(run_id="r", partitions=2, remove=RemoveOperation(paths=list(paths)))


def clear(paths: Sequence[str] = (), partitions: Sequence[int] = ()) -> RunSpec:
    return RunSpec(
        run_id="r", partitions=3, clear=ClearOperation(paths=list(paths), partitions=list(partitions))
    )


def test_every_row_of_the_contracts_has_an_operation(harness: Harness) -> None:
    assert list(harness.operations) == [row.member for row in OPERATIONS]
    assert [member for member, op in harness.operations.items() if op.fills_cache] == ["warmup"]


@pytest.mark.parametrize("spec", [warmup(), sync(dry=False), remove("a"), clear()])
def test_only_a_dry_sync_ends_after_the_listing(harness: Harness, spec: RunSpec) -> None:
    assert not harness.operation(spec).is_dry(spec)
    assert harness.operations["sync"].is_dry(sync(dry=True))


async def test_warmup_lists_files_in_order(harness: Harness) -> None:
    harness.write("b/2", "b/1", "a", "c/x")
    assert await harness.names(warmup()) == ["a", "b/1", "b/2", "c/x"]
    assert await harness.names(warmup(paths=["c", "b", "b/1"])) == ["b/1", "b/2", "c/x"]
    assert await harness.names(warmup(paths=["b/1"])) == ["b/1"]


async def test_warmup_reads_a_ready_list_with_files_that_do_not_exist(harness: Harness) -> None:
    harness.write("a")
    (harness.root / "list").write_text("a\n\n./gone\n")
    batches = await harness.batches(warmup(file="list"))
    assert batches == [Batch([File("a", 10), File("gone", 0)], 0)]


@pytest.mark.parametrize("lines", [b"a\n" + b"x" * 4096, b"a\n" + b"x/" * 5000 + b"\nb\n"])
async def test_a_list_with_a_line_that_no_path_has_is_refused(harness: Harness, lines: bytes) -> None:
    """Whoever may write to the set chooses how long it is: it is not read into memory."""
    (harness.root / "list").write_bytes(lines)
    with pytest.raises(Permanent, match=r"warmupOptions\.file: line 2 of 'list' .* 4095 bytes") as caught:
        await harness.batches(warmup(file="list"))
    assert caught.value.reason == "InvalidPath"


async def test_a_list_may_name_paths_that_no_file_can_have(harness: Harness) -> None:
    harness.write("a")
    names = ["x" * 256, "x/" * 2047 + "x", "a"]
    (harness.root / "list").write_text("\n".join(names))
    assert await harness.batches(warmup(file="list")) == [
        Batch([File(names[0], 0), File(names[1], 0), File("a", 10)], 0)
    ]


async def test_a_warmup_for_a_sampler_gives_each_partition_what_its_rank_reads(harness: Harness) -> None:
    harness.write("b/2.png", "b/1.png", "a/0.png", "c/x.png", "README.md")
    spec = warmup(2, strategy="sampler", sampler=SamplerOrder(batch_size=1))
    remark, *batches = await harness.batches(spec)
    shares = [(batch.partition, [file.path for file in batch.files]) for batch in batches]
    assert shares == [(0, ["a/0.png", "b/2.png"]), (1, ["b/1.png", "c/x.png"])]
    assert remark.remark.startswith("1 file was ignored")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (warmup(paths=["gone"]), "PathNotFound"),
        (warmup(file="gone"), "PathNotFound"),
        (warmup(paths=["../x"]), "InvalidPath"),
        (warmup(paths=["link"]), "InvalidPath"),
        (warmup(file="link/x"), "InvalidPath"),
        (warmup(strategy="sideways"), "UnknownStrategy"),
        (remove(), "InvalidPath"),
        (remove("a", "."), "InvalidPath"),
        (sync(source="s3://b"), "SourceEmpty"),
        (sync(source="s3://b", exclude=["x"], delete_dst=True), "SourceEmpty"),
        (sync(source="s3://b", include=["x"], delete_dst=True), "SourceEmpty"),
        (sync(source="s3://b", start="x", delete_dst=True), "SourceEmpty"),
        (sync(source="s3://b", dirs=True, delete_dst=True), "SourceEmpty"),
        (sync(source="s3://b", delete_src=True, delete_dst=True), "InvalidSpec"),
    ],
)
async def test_a_run_that_can_never_be_listed_is_refused(
    harness: Harness, spec: RunSpec, reason: str
) -> None:
    (harness.root / "link").symlink_to(harness.root.parent)
    with pytest.raises(Permanent) as caught:
        await harness.batches(spec)
    assert caught.value.reason == reason


async def test_filters_may_leave_nothing_to_copy(harness: Harness) -> None:
    for delete_src in (False, True):
        found = await harness.batches(sync(source="s3://b", exclude=["*"], delete_src=delete_src))
        assert not any(batch.files for batch in found)


async def test_a_mount_lost_during_the_listing_is_retried(harness: Harness) -> None:
    harness.write("a")
    harness.engine.is_mounted = False
    with pytest.raises(Retry, match="the mount was lost"):
        await harness.batches(warmup())
    with pytest.raises(Retry, match="the mount was lost"):
        await harness.execute(warmup(), ("a", 10))


async def test_warmup_repeats_only_what_is_not_cached(harness: Harness) -> None:
    harness.write("a", "b", "c")
    harness.engine.stubborn = {"b": 1}
    outcome = await harness.execute(warmup(threads=7), ("a", 10), ("b", 10), ("c", 10))
    assert outcome == Outcome(files=3, bytes=30, cached_bytes=30)
    assert harness.engine.warmings == ["warm 3 with 7", "warm 1 with 7"]


async def test_warmup_names_files_that_are_missing_or_stay_cold(harness: Harness) -> None:
    harness.write("a", "b")
    harness.engine.stubborn = {"b": 99}
    outcome = await harness.execute(warmup(), ("gone", 5), ("a", 10), ("b", 10))
    assert outcome.failed == ("gone: not found", f"b: not in the cache after {TRIES} tries")
    assert (outcome.files, outcome.bytes, outcome.cached_bytes) == (1, 10, 10)
    assert harness.engine.warmings == ["warm 2 with 50", "warm 1 with 50", "warm 1 with 50"]


async def test_a_file_that_could_not_be_examined_is_not_taken_for_cached(harness: Harness) -> None:
    harness.write("a", "b")
    harness.engine.unexamined = [1]
    with pytest.raises(Retry, match="could not be examined"):
        await harness.execute(warmup(), ("a", 10), ("b", 10))
    assert (await harness.execute(warmup(), ("a", 10), ("b", 10))).cached_bytes == 20


async def test_holes_are_looked_at_twice_and_miss_nothing(harness: Harness) -> None:
    harness.write("a", "b")
    harness.engine.holes = 4
    outcome = await harness.execute(warmup(), ("a", 10), ("b", 10))
    assert (outcome.files, outcome.cached_bytes) == (2, 20)
    assert harness.engine.calls[1:] == ["check 2", "check 2"]
    assert (await harness.execute(warmup(), warmed=20)).recount == 20


async def test_a_stand_in_recounts_what_is_in_its_own_cache(harness: Harness) -> None:
    """What the lost node had warmed is not there, however full this cache is."""
    spec = warmup(partitions=2)
    harness.write(*(f"f{number}" for number in range(20)))
    own, theirs = [
        [f.path for b in await harness.batches(spec) if b.partition == p for f in b.files] for p in (0, 1)
    ]
    await harness.execute(spec, *((path, 10) for path in own))
    await harness.execute(spec, (theirs[0], 10), partition=1)
    warmed = 10 * len(theirs)
    assert (await harness.execute(spec, partition=1, warmed=warmed)).recount == 10 < warmed
    assert (await harness.execute(spec, warmed=10 * len(own))).recount == 10 * len(own)


async def test_a_process_that_was_started_anew_recounts_what_the_one_before_it_has_warmed(
    harness: Harness,
) -> None:
    """Not what the cache holds beside it: that may be other data."""
    harness.write("a", "b", "other")
    await harness.execute(warmup(paths=["a", "b"]), ("a", 10), ("b", 10))
    await harness.execute(warmup(paths=["other"]).model_copy(update={"run_id": "r2"}), ("other", 10))
    again = Harness(harness.root)
    again.engine.cached = set(harness.engine.cached)
    assert (await again.execute(warmup(paths=["a", "b"]), warmed=20)).recount == 20
    again.engine.cached.remove((harness.root / "a").stat().st_ino)
    assert (await again.execute(warmup(paths=["a", "b"]), warmed=20)).recount == 10


async def test_a_chunk_without_files_recounts_what_is_still_cached(harness: Harness) -> None:
    harness.write("a", "b", "c", "d")
    for _ in range(2):
        await harness.execute(warmup(), ("a", 10), ("b", 10))
    await harness.execute(warmup(), ("c", 10), ("d", 10))
    assert (await harness.execute(warmup(), warmed=40)).recount == 40
    harness.engine.cached = {(harness.root / "a").stat().st_ino, (harness.root / "c").stat().st_ino}
    (harness.root / "c").unlink()
    assert (await harness.execute(warmup(), warmed=40)).recount == 10
    other = warmup().model_copy(update={"run_id": "another"})
    assert (await harness.execute(other)).recount == 0


async def test_names_of_one_file_are_recounted_as_they_were_counted(harness: Harness) -> None:
    harness.write("a")
    (harness.root / "b").hardlink_to(harness.root / "a")
    outcome = await harness.execute(warmup(), ("a", 10), ("b", 10))
    assert outcome.cached_bytes == 20
    assert (await harness.execute(warmup(), warmed=20)).recount == 20
    harness.engine.cached.clear()
    assert (await harness.execute(warmup(), warmed=20)).recount == 0


async def test_a_chunk_of_which_nothing_was_warmed_is_not_looked_up(harness: Harness) -> None:
    await harness.execute(warmup(), ("gone", 10))
    harness.engine.calls.clear()
    assert (await harness.execute(warmup())).recount == 0
    assert harness.engine.calls == []


async def test_the_files_of_the_last_runs_are_remembered(harness: Harness) -> None:
    """Those of earlier ones are listed again."""
    harness.write("a", "b")
    for number in range(REMEMBERED + 1):
        await harness.execute(warmup().model_copy(update={"run_id": f"r{number}"}), ("a", 10))
    (harness.root / "a").rename(harness.root / "c")
    runs = [warmup().model_copy(update={"run_id": f"r{n}"}) for n in (REMEMBERED, 1, 0)]
    harness.engine.calls.clear()
    assert [(await harness.execute(run, warmed=10)).recount for run in runs] == [10] * 3
    assert harness.engine.calls == ["check 1", "check 1", "check 2"]


async def test_what_interrupted_copies_have_left_is_not_warmed(harness: Harness) -> None:
    harness.write("a", ".jfs.a.tmp.9119809747596632237", ".jfs.tmp.x", "b.tmp.1")
    assert await harness.names(warmup()) == [".jfs.tmp.x", "a", "b.tmp.1"]


async def test_a_copy_that_fails_by_itself_leaves_nothing_behind(harness: Harness) -> None:
    """Its client was killed, or its database was away: it says so, and nothing is raised."""
    harness.write("in/b")
    engine = harness.engine
    engine.problem, engine.stubborn, engine.leaves = "killed", {"a": 1}, True
    outcome = await harness.execute(sync(destination="in"), ("a", 10))
    assert (outcome.files, engine.unfinished) == (1, [[], [".jfs.a.tmp.1"]])
    assert sorted(harness.present()) == ["in/a", "in/b"]


async def test_what_another_agent_is_writing_of_the_same_chunk_stays_until_it_is_done(
    harness: Harness,
) -> None:
    """A stand-in and one that came back; an earlier removal would fail each try of the other."""
    engine = harness.engine
    engine.stubborn = {"a": 2}
    harness.write(".jfs.a.tmp.2")
    outcome = await harness.execute(sync(), ("a", 10), is_first=False)
    assert (outcome.files, engine.unfinished) == (1, 3 * [[".jfs.a.tmp.2"]])
    assert harness.present() == ["a"]


async def test_a_copy_that_is_broken_off_removes_nothing_before_it_is_tried_again(harness: Harness) -> None:
    harness.write(".jfs.a.tmp.2")
    harness.engine.breaks = Retry("StoreUnreachable")
    with pytest.raises(Retry):
        await harness.execute(sync(), ("a", 10), is_first=False)
    assert harness.present() == [".jfs.a.tmp.2"]


async def test_only_files_are_removed_as_unfinished(harness: Harness) -> None:
    harness.write(".jfs.a.tmp.1/x", ".jfs.a.tmp.2")
    await harness.execute(sync(), ("a", 10), is_first=False)
    assert sorted(harness.present()) == [".jfs.a.tmp.1/x", "a"]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO])
async def test_a_mount_where_nothing_can_be_removed_fails_no_sync(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Copies do not go through it, and what is copied is not copied again."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("cache_runtime.tree.remove_leftovers", refuse)
    outcome = await harness.execute(sync(), ("a", 10), is_first=False)
    assert (outcome.files, outcome.failed) == (1, ())
    assert harness.engine.calls == ["copy 1 at 0"]


async def test_a_mount_that_hangs_does_not_hold_what_is_copied(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    monkeypatch.setattr(execution, "TIDY_TIMEOUT_SECONDS", 0.01)
    monkeypatch.setattr("cache_runtime.tree.remove_leftovers", lambda *_: may_go_on.wait(60))
    try:
        outcome = await harness.execute(sync(), ("a", 10), is_first=False)
    finally:
        may_go_on.set()
    assert (outcome.files, outcome.failed) == (1, ())


async def test_a_key_that_looks_like_an_unfinished_copy_is_named(harness: Harness) -> None:
    """It would be removed as one of `a`, and no listing would have it."""
    outcome = await harness.execute(sync(), ("d/.jfs.a.tmp.5", 10), ("d/.jfs.a.tmp.5/", 0), ("d/a", 10))
    (failed,) = outcome.failed
    assert failed.startswith("d/.jfs.a.tmp.5: files of such names are unfinished copies")
    assert outcome.files == 2


async def test_nothing_outside_the_set_is_tidied(harness: Harness) -> None:
    harness.write("../.jfs.a.tmp.1")
    with pytest.raises(Permanent):
        await harness.operations["sync"].tidy(sync(destination=".."), [FileEntry(path="a")])
    await harness.operations["sync"].tidy(sync(), [FileEntry(path="../a")])
    assert (harness.root / "../.jfs.a.tmp.1").exists()


async def test_what_a_killed_agent_has_left_is_removed_by_the_next(harness: Harness) -> None:
    """Only of the chunk's own files: beside them another agent may be copying."""
    long = "l" * 255
    ours = [".jfs.a.tmp.1", f".jfs.{long[:200]}.tmp.91"]
    others = [".jfs.b.tmp.1", ".jfs.a.tmp.x", "a.tmp.1", ".jfs.tmp.1", "d/.jfs.a.tmp.1"]
    harness.write(*ours, *others)
    files = ("a", 10), (long, 10), ("e/", 0)
    await harness.execute(sync(), *files)
    assert sorted(harness.present()) == sorted([*ours, *others, "a", long])
    await harness.execute(sync(), *files, is_first=False)
    assert sorted(harness.present()) == sorted([*others, "a", long])


async def test_sync_copies_and_compares_sizes(harness: Harness) -> None:
    spec = sync(destination="in", bandwidth_limit=10)
    outcome = await harness.execute(spec, ("d/", 0), ("a", 10), ("d/b", 10))
    assert outcome == Outcome(files=3, bytes=20)
    assert harness.engine.calls == ["copy 2 at 5"]
    assert sorted(str(p.relative_to(harness.root)) for p in harness.root.rglob("*")) == [
        "in",
        "in/a",
        "in/d",
        "in/d/b",
    ]
    again = await harness.execute(spec, ("d/", 0), ("a", 10), ("d/b", 10), ("new", 10))
    assert again == Outcome(files=4, bytes=30, kept=3, uncompared=2)


async def test_directories_that_were_there_are_kept(harness: Harness) -> None:
    """Else a sync that has copied nothing would say that the data has changed."""
    directories = ("d/", 0), ("d/e/", 0)
    assert (await harness.execute(sync(), *directories)).kept == 0
    again = await harness.execute(sync(), *directories, ("f/g/", 0))
    assert again == Outcome(files=3, kept=2)


async def test_what_a_sync_has_copied_in_its_first_try_is_not_kept_in_the_second(harness: Harness) -> None:
    harness.engine.stubborn = {"late": 1}
    assert await harness.execute(sync(), ("a", 10), ("late", 10)) == Outcome(files=2, bytes=20)


async def test_sync_tries_again_and_names_what_did_not_arrive(harness: Harness) -> None:
    harness.engine.stubborn = {"late": 2, "never": 99}
    outcome = await harness.execute(sync(), ("late", 10), ("never", 10), ("small", 5))
    assert (outcome.files, outcome.bytes) == (1, 10)
    assert outcome.failed == tuple(f"{name}: size differs from the source" for name in ("never", "small"))
    asked = [call for count in (3, 3, 2) for call in ("copy 3 at 0", f"sizes of {count}")]
    assert harness.engine.calls == asked


async def test_a_sync_whose_store_is_away_waits(harness: Harness) -> None:
    """Three tries may be over after seconds, and the run would have failed for good."""
    harness.engine.stubborn, harness.engine.is_away = {"a": 2, "b": 2}, True
    harness.engine.problem = "connection refused"
    for is_first in (True, False):
        with pytest.raises(Retry, match=r"^CopyFailed: connection refused"):
            await harness.execute(sync(), ("a", 10), ("b", 10), is_first=is_first)
    assert (await harness.execute(sync(), ("a", 10), ("b", 10), is_first=False)).files == 2
    assert harness.engine.calls == ["copy 2 at 0"] * 3


async def test_a_try_that_has_copied_nothing_is_none_unless_another_has(harness: Harness) -> None:
    files = [FileEntry(path="a", size=10)]
    task = await harness.operations["sync"].prepare(sync(), files, 0)
    harness.engine.breaks = NotBegun("CopyFailed")
    with pytest.raises(NotBegun):
        await task.execute(files)
    harness.engine.breaks = None
    await task.execute(files)
    harness.engine.breaks = NotBegun("CopyFailed")
    with pytest.raises(Retry) as error:
        await task.execute(files)
    assert not isinstance(error.value, NotBegun)


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_sync_whose_store_goes_away_in_the_middle_waits(harness: Harness, is_first: bool) -> None:
    """Also when it goes away once more."""
    harness.engine.stubborn, harness.engine.is_away = {"b": 2}, True
    harness.engine.problem = "connection refused"
    with pytest.raises(Retry, match=r"^CopyFailed: connection refused"):
        await harness.execute(sync(), ("a", 10), ("b", 10), is_first=is_first)
    assert harness.engine.calls == ["copy 2 at 0", "copy 1 at 0"]
    assert (await harness.execute(sync(), ("a", 10), ("b", 10), is_first=False)).files == 2


@pytest.mark.parametrize("options", [{}, {"update": True}])
@pytest.mark.parametrize("others", [("b", "c"), ()])
async def test_an_object_that_always_looks_as_if_its_store_were_away_ends_nothing(
    harness: Harness, options: dict[str, bool], others: tuple[str, ...]
) -> None:
    """It may be cut short. After a while it is taken for a failure, and the run goes on."""
    harness.engine.stubborn, harness.engine.is_away = {"a": 99}, True
    harness.engine.problem = "unexpected EOF"
    files = [(name, 10) for name in ("a", *others)]
    for is_first in (True, False, False):
        with pytest.raises(Retry):
            await harness.execute(sync(**options), *files, is_first=is_first)
    last = await harness.execute(sync(**options), *files, is_first=False, may_wait=False)
    assert (last.failed, last.files) == (("a: unexpected EOF",), len(others))


async def test_what_all_tries_find_counts_once_as_not_compared(harness: Harness) -> None:
    harness.write("a", "b", "c")
    harness.engine.problem, harness.engine.stubborn = "denied", {"a": 1, "b": 1, "c": 1, "d": 1}
    outcome = await harness.execute(sync(update=True), ("a", 10), ("b", 10), ("c", 10), ("d", 10))
    assert (outcome.files, outcome.uncompared) == (4, 3)


async def test_sync_reports_the_last_problem_of_the_engine(harness: Harness) -> None:
    harness.engine.stubborn, harness.engine.problem = {"a": 99}, "denied"
    assert (await harness.execute(sync(), ("a", 10))).failed == ("a: denied",)


@pytest.mark.parametrize("options", [{}, {"update": True}])
async def test_a_size_that_is_right_proves_nothing_when_the_engine_failed(
    harness: Harness, options: dict[str, bool]
) -> None:
    harness.write("a", "b")
    harness.engine.stubborn, harness.engine.problem = {"a": 99}, "denied"
    outcome = await harness.execute(sync(**options), ("a", 10), ("b", 10))
    assert (outcome.failed, outcome.files) == (("a: denied",), 1)


async def test_an_updating_sync_may_keep_a_newer_file_of_another_size_and_says_so(harness: Harness) -> None:
    outcome = await harness.execute(sync(update=True), ("a", 99), ("b", 10))
    (note,) = outcome.notes
    assert (outcome.failed, outcome.files) == ((), 2)
    assert note == "a: has another size than was listed in the source: an update replaces older files only"


@pytest.mark.parametrize(
    ("kept", "counted", "uncompared"),
    [([2], 2, 2), ([1, 0], 1, 1), ([0, 1], 0, 1), ([1, 1, 1], 1, 2), ([None, 2, 2], 0, 2), ([None], 0, 0)],
)
async def test_what_was_there_is_counted_before_a_try_has_copied_anything(
    harness: Harness, kept: list[int | None], counted: int, uncompared: int
) -> None:
    """What a later try finds may be a copy of this run, and is not compared. Of a try whose client was killed
    nobody knows what it has found."""
    harness.engine.kept = [*kept]
    harness.engine.stubborn = {"late": len(kept) - 1}
    outcome = await harness.execute(sync(), ("late", 10), ("b", 10))
    assert (outcome.files, outcome.kept, outcome.uncompared) == (2, counted, uncompared)


async def test_of_a_chunk_that_is_done_again_what_is_older_than_the_run_is_kept(harness: Harness) -> None:
    """Else an update that was interrupted would say that it has copied something."""
    await harness.execute(sync(update=True), ("a", 10), ("d/", 0))
    now = datetime.now(UTC)
    for begun_at, kept in ((None, 0), (now - timedelta(minutes=1), 0), (now + timedelta(minutes=1), 2)):
        again = await harness.execute(
            sync(update=True), ("a", 10), ("d/", 0), ("never", 99), is_first=False, begun_at=begun_at
        )
        assert (again.files, again.kept) == (3, kept + (kept > 0))
    harness.engine.tells_time = False
    again = await harness.execute(sync(update=True), ("a", 10), is_first=False, begun_at=begun_at)
    assert again.kept == 0


async def test_what_a_sync_notes_it_also_notes_when_it_does_a_chunk_again(harness: Harness) -> None:
    outcome = await harness.execute(sync(update=True), ("a", 99), is_first=False)
    assert len(outcome.notes) == 1
    assert (await harness.execute(remove("gone"), ("gone", 0), is_first=False)).notes == ()


async def test_directories_of_a_try_that_has_copied_nothing_are_not_kept(harness: Harness) -> None:
    harness.engine.breaks = NotBegun("CopyFailed")
    with pytest.raises(NotBegun):
        await harness.execute(sync(), ("d/", 0), ("d/a", 10))
    harness.engine.breaks = None
    assert await harness.execute(sync(), ("d/", 0), ("d/a", 10)) == Outcome(files=2, bytes=10)


async def test_a_directory_that_cannot_be_made_fails_alone(harness: Harness) -> None:
    (harness.root / "link").symlink_to("/")
    outcome = await harness.execute(sync(), ("a", 10), ("link/d/", 0), ("d/", 0))
    assert outcome.files == 2
    [failed] = outcome.failed
    assert failed.startswith("link/d/: ")
    assert "leads out of the data set" in failed


async def test_a_full_volume_has_no_chunk_copied_again_for_its_directories(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Tree, "_make_directory", refuse)
    outcome = await harness.execute(sync(), ("a", 10), ("d/", 0))
    assert outcome.files == 1
    [failed] = outcome.failed
    assert "No space left on device" in failed
    assert harness.engine.calls == ["copy 1 at 0"]


@pytest.mark.parametrize("options", [{}, {"update": True}])
async def test_what_was_begun_before_is_copied_anew(harness: Harness, options: dict[str, bool]) -> None:
    """A file of two versions may have the right size; with `update` it may be somebody's newer one."""
    is_forced = not options
    harness.engine.stubborn = {"a": 1}
    await harness.execute(sync(**options), ("a", 10))
    await harness.execute(sync(**options), ("a", 10), is_first=False)
    assert harness.engine.forced == [False, is_forced, is_forced]


async def test_what_is_of_two_versions_does_not_stay(harness: Harness) -> None:
    harness.engine.stubborn, harness.engine.problem, harness.engine.tears = {"a": 99}, "it changed", True
    outcome = await harness.execute(sync(), ("a", 10), ("b", 10))
    assert (outcome.failed, harness.present()) == (("a: it changed",), ["b"])


async def test_files_of_two_versions_that_cannot_be_removed_fail_all_the_same(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "unlink", refuse)
    harness.engine.stubborn, harness.engine.problem, harness.engine.tears = {"a": 99}, "it changed", True
    [failed] = (await harness.execute(sync(), ("a", 10))).failed
    assert failed.startswith("a: it changed; parts of two versions stay: ")
    assert "Read-only file system" in failed


async def test_a_file_of_two_versions_that_could_not_be_removed_is_removed_before_the_next_try(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update would take it for a newer one, keep it and be done."""
    unlink, refusals = os.unlink, [OSError(errno.EIO, "Input/output error")]

    def refuse_once(name: bytes, *, dir_fd: int) -> None:
        if refusals:
            raise refusals.pop()
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse_once)
    harness.engine.stubborn, harness.engine.problem, harness.engine.tears = {"a": 1}, "it changed", True
    harness.engine.updates = True
    assert (await harness.execute(sync(update=True), ("a", 10))).files == 1
    assert (harness.root / "a").read_bytes() == b"x" * 10


@pytest.mark.parametrize(
    "end", [Retry("CopyFailed"), asyncio.CancelledError()], ids=["fails", "is cancelled"]
)
async def test_what_is_of_two_versions_is_remembered_also_of_a_copy_that_is_broken_off(
    harness: Harness, end: BaseException
) -> None:
    """An update would take it for a newer one, keep it and be done."""
    engine = harness.engine
    engine.stubborn, engine.problem, engine.tears, engine.updates = {"a": 1}, "it changed", True, True
    engine.breaks_late = end
    with pytest.raises(type(end)):
        await harness.execute(sync(update=True), ("a", 10))
    assert (harness.root / "a").read_bytes() == b"ab" * 5
    engine.breaks_late = None

    outcome = await harness.execute(sync(update=True), ("a", 10), is_first=False)

    assert (outcome.files, outcome.failed) == (1, ())
    assert (harness.root / "a").read_bytes() == b"x" * 10


async def test_a_mount_that_is_lost_before_such_a_file_is_removed_does_not_make_it_a_success(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunk is done again, by another task."""
    lost = OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    def fail(*_: object, **__: object) -> None:
        raise lost

    harness.engine.stubborn, harness.engine.problem, harness.engine.tears = {"a": 1}, "it changed", True
    harness.engine.updates = True
    with monkeypatch.context() as away:
        away.setattr(os, "unlink", fail)
        away.setattr(Tree, "_stat_all", fail)
        with pytest.raises(Retry):
            await harness.execute(sync(update=True), ("a", 10))
    assert (harness.root / "a").read_bytes() == b"ab" * 5

    outcome = await harness.execute(sync(update=True), ("a", 10), is_first=False)

    assert (outcome.files, outcome.failed) == (1, ())
    assert (harness.root / "a").read_bytes() == b"x" * 10


async def test_a_file_that_a_pod_has_put_in_place_of_such_a_one_stays(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mount was lost meanwhile, for how long nobody knows."""
    engine, path = harness.engine, harness.root / "a"
    engine.stubborn, engine.problem, engine.tears, engine.updates = {"a": 1}, "it changed", True, True
    engine.breaks_late = Retry("CopyFailed")
    with pytest.raises(Retry):
        await harness.execute(sync(update=True), ("a", 10))
    engine.breaks_late = None
    monkeypatch.setattr(torn_module, "CLOCK_CORRECTION_GRACE_SECONDS", 0.0)
    await asyncio.to_thread(write_later, path, b"from a pod")

    outcome = await harness.execute(sync(update=True), ("a", 10), is_first=False)

    assert (outcome.files, outcome.failed) == (1, ())
    assert path.read_bytes() == b"from a pod"


def write_later(path: Path, content: bytes) -> None:
    """With a time that is later than that of what was there: the kernel's clock has steps."""
    before = path.stat().st_ctime
    while path.stat().st_ctime <= before:
        path.write_bytes(content)
        time.sleep(0.01)


@pytest.mark.parametrize("is_refused", [False, True])
async def test_what_the_last_pass_tears_is_removed_and_its_source_stays(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    """A later sync would find it done."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    harness.engine.tears, harness.engine.problem = True, "a changed during sync"
    if is_refused:
        monkeypatch.setattr(os, "unlink", refuse)
    spec = sync(delete_src=True)
    with pytest.raises(Permanent) as raised:
        await harness.operation(spec).finish(spec, TreeSize(1, 1))
    assert raised.value.reason == "DeleteFailed"
    assert raised.value.message.endswith("a changed during sync")
    assert (harness.root / "a").exists() is is_refused
    told = "1 files of the destination: parts of two versions stay: " in raised.value.message
    assert told is is_refused


def test_a_sync_says_how_much_it_has_not_compared(harness: Harness) -> None:
    operation = harness.operations["sync"]
    assert operation.remark(sync(), 0) == ""
    assert operation.remark(sync(), 1) == "1 file was there with the same size and not compared"
    assert operation.remark(sync(), 12) == "12 files were there with the same size and not compared"
    newer = "12 files were there, not older than in the source, and not compared"
    assert operation.remark(sync(update=True), 12) == newer
    assert harness.operations["remove"].remark(remove("a"), 12) == ""


async def test_sync_never_copies_keys_that_leave_the_data_set(harness: Harness) -> None:
    outcome = await harness.execute(sync(), ("../up", 10), ("a", 10))
    assert outcome.failed == ("../up: such a key would leave the data set",)
    assert harness.engine.calls == ["copy 1 at 0"]


async def test_sync_asks_the_volume_for_sizes_that_the_mount_shows_otherwise(harness: Harness) -> None:
    assert (await harness.execute(sync(), ("a", 10), ("b", 10))).files == 2
    assert harness.engine.calls == ["copy 2 at 0"]
    harness.engine.grown = 5
    outcome = await harness.execute(sync(), ("a", 15), ("b", 10), ("c", 15))
    assert (outcome.files, outcome.failed) == (3, ())
    assert harness.engine.calls[1:] == ["copy 3 at 0", "sizes of 2"]


async def test_an_update_has_no_note_on_a_file_of_the_right_size(harness: Harness) -> None:
    harness.engine.grown = 5
    outcome = await harness.execute(sync(update=True), ("a", 15), ("b", 20))
    assert (outcome.files, len(outcome.notes), outcome.notes[0][:9]) == (2, 1, "b: has an")


REMOVE = "`paddlewheel data remove"


class Way(NamedTuple):
    """Something in the way of a file.

    Args:
        files: are there before the sync.
        objects: the objects in the source.
        problem: its beginning.
        path: in the command that removes it.
    """

    key: str
    files: list[str]
    destination: str
    objects: list[str]
    problem: str
    path: str

    async def run(self, harness: Harness, *, delete_dst: bool = False) -> Outcome:
        """Copy the file."""
        harness.write(*self.files)
        harness.engine.objects = [File(name, 10) for name in self.objects]
        operation = sync(destination=self.destination, delete_dst=delete_dst)
        return await harness.execute(operation, (self.key, 10))


WAYS = [
    Way("a", ["a/x", "a/y/z"], "", ["a"], "'a' is a directory in the data set and a file in the source", "a"),
    Way("a/x", ["a"], "", ["a/x"], "'a' is a file in the data set and a directory in the source", "a"),
    Way("a/b/c", ["a/b"], "", ["a/b/c"], "'a/b' is a file in the data set", "a/b"),
    Way("a b", ["to/a b/x"], "to", ["a b"], "'to/a b' is a directory in the data set", "'to/a b'"),
    Way("x", ["to"], "to", ["x"], "'to' is a file in the data set", "to"),
]


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_in_the_way_of_a_sync_is_named_with_the_command_that_removes_it(
    harness: Harness, way: Way
) -> None:
    outcome = await way.run(harness)
    [failed] = outcome.failed
    assert failed.startswith(f"{way.key}: {way.problem}")
    assert failed.endswith(f": remove it with {REMOVE} ns/set {way.path}`, or sync with delete-dst")
    assert all((harness.root / name).is_file() for name in way.files)


@pytest.mark.parametrize("way", WAYS)
async def test_delete_dst_removes_what_is_in_the_way_below_the_destination(
    harness: Harness, way: Way
) -> None:
    outcome = await way.run(harness, delete_dst=True)
    if way.path == way.destination:
        assert outcome.failed[0].endswith(f"remove it with {REMOVE} ns/set to`")
    else:
        assert (outcome.files, outcome.failed) == (1, ())
        assert (harness.root / way.destination / way.key).is_file()


@pytest.mark.parametrize("delete_dst", [False, True])
@pytest.mark.parametrize(("key", "there"), [("a", "a/x"), ("a/x", "a")])
async def test_nothing_is_removed_of_what_the_source_has_both_ways(
    harness: Harness, key: str, there: str, delete_dst: bool
) -> None:
    harness.write(there)
    harness.engine.objects = [File("a", 10), File("a!", 10), File("a/x", 10)]
    outcome = await harness.execute(sync(delete_dst=delete_dst), (key, 10))
    text = (
        f"{key}: the source has the object 'a' and objects below 'a/', and a file system has one of them only"
    )
    assert outcome.failed == (f"{text}: rename the object",)
    assert (harness.root / there).is_file()


async def test_nothing_is_removed_of_what_the_source_has_both_ways_beside_similar_names(
    harness: Harness,
) -> None:
    """The name of one obstacle begins with that of the other, and sorts before what is below it."""
    harness.write("a/x", "a!")
    harness.engine.objects = [File(name, 10) for name in ("a", "a!/y", "a/x")]
    outcome = await harness.execute(sync(delete_dst=True), ("a", 10), ("a!/y", 10))
    assert (outcome.files, [text[:32] for text in outcome.failed]) == (
        1,
        ["a: the source has the object 'a'"],
    )
    assert (harness.root / "a/x").is_file()
    assert (harness.root / "a!/y").is_file()


async def test_files_of_the_engine_are_never_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "trash/x").mkdir(parents=True)
    (tmp_path / "stats").touch()
    inodes = [(tmp_path / name).lstat().st_ino for name in ("trash", "stats")]
    harness = Harness(tmp_path, own_inodes=range(min(inodes), max(inodes) + 1))
    harness.engine.objects = [File("trash", 10), File("stats/y", 10)]
    outcome = await harness.execute(sync(delete_dst=True), ("trash", 10), ("stats/y", 10))
    assert len(outcome.failed) == 2
    assert not any("in the data set" in text for text in outcome.failed)
    assert (tmp_path / "trash/x").is_dir()
    assert (tmp_path / "stats").is_file()


async def test_a_filter_keeps_what_is_in_the_way(harness: Harness) -> None:
    harness.write("a/x")
    harness.engine.objects = [File("a", 10)]
    outcome = await harness.execute(sync(delete_dst=True, exclude=["y"]), ("a", 10))
    assert outcome.failed[0].startswith("a: 'a' is a directory in the data set")
    assert (harness.root / "a/x").is_file()


async def test_what_cannot_be_removed_says_why(harness: Harness) -> None:
    harness.write("a/x")
    harness.engine.objects, harness.engine.problem = [File("a", 10)], "read-only file system"
    harness.engine.stubborn = {"a": 9}
    outcome = await harness.execute(sync(delete_dst=True), ("a", 10))
    assert outcome.failed[0].endswith(", and cannot be removed: read-only file system")


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("n" * 256, "a part of the key has 256 bytes, a file name has 255 at most"),
        (f"a/{'ü' * 128}/b", "a part of the key has 256 bytes, a file name has 255 at most"),
        (f"{'d' * 300}/", "a part of the key has 300 bytes, a file name has 255 at most"),
        ("/".join(["d" * 255] * 17), "the key has 4351 bytes, a path has 4095 at most"),
    ],
)
async def test_a_key_too_long_for_a_file_fails_alone(harness: Harness, key: str, problem: str) -> None:
    outcome = await harness.execute(sync(), ("ok", 10), (key, 10))
    assert (outcome.files, outcome.failed) == (1, (f"{key}: {problem}",))
    assert harness.engine.calls == ["copy 1 at 0"]


async def test_a_filtered_sync_may_find_nothing(harness: Harness) -> None:
    assert await harness.names(sync(source="s3://b", include=["*.png"])) == []
    harness.engine.objects = [File("a", 1)]
    assert await harness.names(sync(source="s3://b")) == ["a"]


@pytest.mark.parametrize(
    ("spec", "deletions"),
    [
        (sync(delete_dst=True), ["delete extra"]),
        (sync(delete_src=True, bandwidth_limit=7), ["delete copied at 7"]),
        (sync(), []),
        (clear(), []),
    ],
)
async def test_only_a_deleting_sync_deletes_at_the_end(
    harness: Harness, spec: RunSpec, deletions: list[str]
) -> None:
    harness.engine.objects = [File("a", 1), File("added", 1)]
    await harness.operation(spec).finish(spec, TreeSize(1, 1))
    assert harness.engine.calls == deletions


async def test_a_source_that_has_become_empty_does_not_empty_the_destination(harness: Harness) -> None:
    spec = sync(source="s3://b", delete_dst=True)
    with pytest.raises(Permanent) as raised:
        await harness.operation(spec).finish(spec, TreeSize(1, 1 << 30))
    assert (raised.value.reason, harness.engine.calls) == ("SourceEmpty", [])


@pytest.mark.parametrize(
    "left",
    [
        [File("stray", 1)],
        [File("a", 1 << 29), File("b", (1 << 29) - 1)],
        [File("empty", 0)],
        [File("a", 1 << 30)],
    ],
)
async def test_what_a_source_has_lost_since_it_was_copied_is_not_deleted(
    harness: Harness, left: list[File]
) -> None:
    """As an export that is not mounted on the node of the master that ends the run."""
    harness.engine.objects = left
    spec = sync(source="file:///srv/import", delete_dst=True)
    with pytest.raises(Permanent, match="every node of the set has the whole source mounted") as raised:
        await harness.operation(spec).finish(spec, TreeSize(2, 1 << 30))
    assert (raised.value.reason, harness.engine.calls) == ("SourceChanged", [])


async def test_reading_a_large_source_leaves_the_deletion_its_own_time(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both together would be given up, and begin from nothing each time."""
    loop, passed = asyncio.get_running_loop(), [0.0]
    began, finish = loop.time(), timing.DELETION_TIMEOUT_SECONDS
    monkeypatch.setattr(loop, "time", lambda: began + passed[0])

    async def take(part: float) -> None:
        passed[0] += part * finish
        await asyncio.sleep(0)  # whatever is due by then
        await asyncio.sleep(0)

    read = harness.engine.read_source

    async def read_slowly(sync: SyncOperation) -> SourceReading:
        await take(0.6)
        reading = await read(sync)
        return SourceReading(reading.size, delete_slowly)

    async def delete_slowly() -> None:
        await take(0.6)
        harness.engine.calls.append("deleted")

    monkeypatch.setattr(harness.engine, "read_source", read_slowly)
    harness.engine.objects = [File("a", 1)]
    spec = sync(delete_dst=True)
    await harness.operation(spec).finish(spec, TreeSize(1, 1))
    assert harness.engine.calls == ["deleted"]


async def test_a_copy_that_hangs_is_given_up_with_a_reason(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> dict[bytes, str]:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(sync_module, "CHUNK_COPY_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(sync_module, "OBJECT_COPY_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(harness.engine, "copy", hang)
    with pytest.raises(Retry) as raised:
        await harness.execute(sync(), ("a", 0))
    assert (raised.value.reason, raised.value.message) == (
        "CopyTimeout",
        "copying took more than 0 s",
    )


async def test_a_run_that_deletes_on_both_sides_is_refused_before_anything_is_listed(
    harness: Harness,
) -> None:
    """Its end may be repeated: what has left the source by then would leave the destination, too."""
    harness.engine.objects = [File("a", 1)]
    with pytest.raises(Permanent, match="sync with delete-dst first, then with delete-src"):
        await harness.batches(sync(source="s3://b", delete_src=True, delete_dst=True, dry=True))
    assert harness.engine.calls == []


async def test_remove_lists_outermost_paths(harness: Harness) -> None:
    assert await harness.names(remove("b", "a/x", "a", "a")) == ["a", "b"]


async def test_remove_counts_what_does_not_exist_and_says_so(harness: Harness) -> None:
    harness.write("a")
    outcome = await harness.execute(remove("a", "gone"), ("a", 0), ("gone", 0))
    assert outcome == Outcome(files=2, notes=("gone: did not exist",))
    assert not (harness.root / "a").exists()


async def test_remove_counts_what_no_path_can_lead_to(harness: Harness) -> None:
    (harness.root / "loop").symlink_to("loop")
    paths = ("loop/x", "a" * 300, f"{'a' * 300}/x")
    outcome = await harness.execute(remove(*paths), *((path, 0) for path in paths))
    assert outcome == Outcome(files=3, notes=tuple(f"{path}: did not exist" for path in paths))


async def test_remove_tries_again_and_names_what_is_left(harness: Harness) -> None:
    harness.write("late", "never")
    harness.engine.stubborn, harness.engine.problem = {"late": 1, "never": 99}, "busy"
    outcome = await harness.execute(remove("late", "never"), ("late", 0), ("never", 0))
    assert outcome == Outcome(files=1, failed=("never: busy",))
    assert not (harness.root / "late").exists()


async def test_a_path_that_was_not_removed_is_no_success(harness: Harness) -> None:
    harness.write("never")
    harness.engine.stubborn = {"never": 99}
    assert (await harness.execute(remove("never"), ("never", 0))).failed == ("never: still exists",)


async def test_remove_keeps_link_targets_and_internal_files(harness: Harness, tmp_path: Path) -> None:
    harness.write(".stats")
    inode = (harness.root / ".stats").lstat().st_ino
    harness = Harness(harness.root, own_inodes=range(inode, inode + 1))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("keep")
    (harness.root / "link").symlink_to(outside)
    outcome = await harness.execute(remove("link"), ("link/x", 0), (".stats", 0), ("link", 0))
    assert outcome.files == 1
    assert "leads out of the data set" in outcome.failed[0]
    assert outcome.failed[1] == ".stats: is a file of the cache engine itself"
    assert (outside / "x").exists()
    assert not (harness.root / "link").is_symlink()


async def test_clear_has_one_entry_for_each_partition(harness: Harness) -> None:
    assert [batch.partition for batch in await harness.batches(clear())] == [0, 1, 2]
    assert [batch.partition for batch in await harness.batches(clear(partitions=[2, 7]))] == [2]


async def test_clear_empties_cache_directories_of_the_node_only(harness: Harness) -> None:
    assert await harness.execute(clear(), ("partition-0", 0)) == Outcome(files=1)
    await harness.execute(clear(["/cache/b"]), ("partition-0", 0))
    assert harness.engine.calls == ["clear /cache/a,/cache/b", "clear /cache/b"]
    with pytest.raises(Permanent, match="'/etc' is not a cache directory"):
        await harness.execute(clear(["/etc"]), ("partition-0", 0))


@pytest.mark.parametrize("create", [juicefs.create_engine, partial(plain.create_engine, Path("/nowhere"))])
async def test_an_engine_is_wired_without_starting_anything(create: EngineFactory, tmp_path: Path) -> None:
    secrets = SecretFiles(tmp_path, ManualClock(), 0)
    record = VolumeRecord(MemoryBus().key_value(NODES_BUCKET), "uid")
    engine = create(make_settings(tmp_path), secrets, ManualClock(), _ignore, record)
    assert not engine.mount.is_mounted
    assert not engine.mount.path.exists()
    assert not (tmp_path / "mnt").exists()


async def _ignore(_: str) -> None:
    return None


def _fail(*_: object) -> NoReturn:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize(
    "ask",
    [
        lambda tree: tree.stat([b"d/a"]),
        lambda tree: tree.directories([b"d/a"]),
        lambda tree: tree.is_own(b"d/a"),
        lambda tree: tree.locate(b"d/a/x", "paths"),
    ],
    ids=["stat", "directories", "inode", "locate"],
)
async def test_a_file_system_that_fails_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ask: Callable[[Tree], Awaitable[object]]
) -> None:
    """It is no bug, and the message says where and what."""
    (tmp_path / "d").mkdir()
    monkeypatch.setattr("cache_runtime.tree.opened_beneath", _fail)
    with pytest.raises(Retry, match=r"'(d.*|\.)': Input/output error \(EIO\)") as found:
        await ask(Tree(tmp_path, range(0), 2))
    assert found.value.reason == "FileSystemFailed"


async def test_a_listing_that_is_cancelled_ends_the_walk(
    monkeypatch: pytest.MonkeyPatch, harness: Harness
) -> None:
    begun, closed = threading.Event(), threading.Event()

    def hang(*_: object) -> NoReturn:
        begun.set()
        closed.wait()
        raise OSError(errno.EPIPE, "closed")

    monkeypatch.setattr("cache_runtime.listing.Walker.files", hang)
    monkeypatch.setattr("cache_runtime.listing.Walker.close", lambda _: closed.set())
    listing = asyncio.create_task(harness.batches(warmup()))
    await eventually(begun.is_set, what="the walk begins")
    await end(listing)
    assert closed.is_set()


async def test_a_recount_that_is_cancelled_ends_the_walk(
    monkeypatch: pytest.MonkeyPatch, harness: Harness
) -> None:
    """While it looks up what was listed."""
    begun, closed, close = asyncio.Event(), list[Walker](), Walker.close

    async def hang(tree: Tree, paths: Sequence[bytes]) -> NoReturn:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    def note(walker: Walker) -> None:
        closed.append(walker)
        close(walker)

    harness.write("a", "b")
    monkeypatch.setattr(Tree, "stat", hang)
    monkeypatch.setattr(Walker, "close", note)
    recount = asyncio.create_task(harness.operation(spec := warmup()).recount(spec, 0, 20))
    await begun.wait()
    recount.cancel()
    await asyncio.wait({recount})
    assert len(closed) == 1


async def test_a_sync_that_is_given_up_ends_the_listing_of_its_source(
    monkeypatch: pytest.MonkeyPatch, harness: Harness
) -> None:
    ended = list[str]()

    async def objects(sync: SyncOperation) -> AsyncGenerator[Sequence[File], None]:
        try:
            yield [File("a", 1)]
            yield [File("b", 1)]
        finally:
            ended.append(sync.source)

    monkeypatch.setattr(harness.engine, "list", objects)
    async with aclosing(harness.operation(spec := sync()).list(spec)) as listing:
        await anext(listing)
    assert ended == [spec.sync.source if spec.sync else ""]


async def test_a_mount_that_was_lost_and_is_back_makes_a_listing_fail(harness: Harness) -> None:
    """What is listed may be only what was there before."""
    harness.write("a", "b")
    listing = harness.operation(spec := warmup()).list(spec)
    await anext(listing)
    harness.engine.changes += 1
    with pytest.raises(Retry, match="the mount was lost"):
        await anext(listing)


async def test_a_listing_does_not_wait_for_a_file_server_that_has_gone(
    monkeypatch: pytest.MonkeyPatch, harness: Harness
) -> None:
    """Its mount is back from the successor, and the former never answers."""
    begun, closed = threading.Event(), threading.Event()

    def hang(*_: object) -> NoReturn:
        begun.set()
        closed.wait()
        raise OSError(errno.EPIPE, "closed")

    monkeypatch.setattr("cache_runtime.listing.Walker.files", hang)
    monkeypatch.setattr("cache_runtime.listing.Walker.close", lambda _: closed.set())
    listing = asyncio.create_task(harness.batches(warmup()))
    try:
        await eventually(begun.is_set, what="the walk begins")
        harness.engine.changes += 1
        async with asyncio.timeout(20):
            with pytest.raises(Retry, match="the mount was lost"):
                await listing
        assert closed.is_set()
    finally:
        closed.set()


async def test_a_file_that_was_not_there_while_the_mount_was_lost_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, harness: Harness
) -> None:
    async def lost_and_back(tree: Tree, paths: Sequence[bytes]) -> list[None]:
        harness.engine.changes += 1
        return [None for _ in paths]

    monkeypatch.setattr(Tree, "stat", lost_and_back)
    with pytest.raises(Retry, match="the mount was lost") as found:
        await harness.execute(warmup(), ("a", 10))
    assert found.value.reason == "MountLost"


async def test_a_listing_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch, harness: Harness) -> None:
    def failing(*_: object) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "d")

    monkeypatch.setattr("cache_runtime.listing.Walker.files", failing)
    with pytest.raises(Retry, match=r"'d': Input/output error \(EIO\)") as found:
        await harness.batches(warmup())
    assert found.value.reason == "ListingFailed"


@pytest.mark.parametrize("names", [["a", "a b", "a!", "ab"], ["\x01", "\x01\x01", "a\x01", "a\x02"]])
async def test_names_are_listed_in_their_own_order(harness: Harness, names: list[str]) -> None:
    """Whatever follows them: a name may be the beginning of another."""
    harness.write(*reversed(names))
    assert await harness.names(warmup()) == names
