"""A case: operation x fault x seed, from which everything that happens in it is drawn. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    RemoveOperation,
    RunPhase,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.contracts.reasons import Reason

Tree = Mapping[str, bytes]
"""Contents of files by relative path."""
End = tuple[RunPhase, str]
"""Phase and reason of a run that has ended."""

FILES = 30
LARGEST = 250_000
"""Bytes of a file: less than a block, so it is in a cache as a whole or not at all."""
MBPS = 8
"""Limit of a sync over all agents, and of a warmup on each: they last for seconds."""
ENDING = 0.6
"""Share of the faults that come during the deletion, for syncs that delete."""
WRITEBACK = 0.4
"""Share of the syncs on a set whose pods write to the caches of their nodes first."""
AGENT_REPLACEMENT_GRACE_SECONDS = 10.0
"""Seconds of an outage after which an agent may be away long enough to be replaced, on a busy machine."""
ODD_NAMES = (
    "two words", "-leading dash", "中文/图片 一.png", "new\nline", " leading space", "percent%20",
    "quote'\"`", "$(touch evil)", "star*?[x]",
    "#comment", ".hidden/.file", "emoji😀", "x (12 bytes) [worker@sync.go:1]",
)  # fmt: skip
SUCCEEDED: End = (RunPhase.SUCCEEDED, "")
PARTLY: End = (RunPhase.SUCCEEDED, Reason.PARTLY_CACHED)
FILES_FAILED: End = (RunPhase.FAILED, "FilesFailed")


class Operation(StrEnum):
    """The operation of a run, as in SampleJob."""

    SYNC = "sync"
    WARMUP = "warmup"
    RMR = "rmr"
    CLEAR = "clear"


class Fault(StrEnum):
    """A fault during the run, which is repaired a moment later."""

    AGENT = "agent"
    """The agent that does not lead is killed, and started again."""
    MASTER = "master"
    """The agent that leads is killed, and started again."""
    BUS = "bus"
    """nats-server is killed, and started on the same store."""
    STORE = "store"
    """The connections to the object store are cut."""
    METADATA = "metadata"
    """Redis is killed, and started from its append-only file."""
    DISK = "disk"
    """Others fill the cache disks of both nodes, and free them."""


@dataclass(frozen=True)
class Case:
    """Repeats a run of the matrix as far as chance is in our hands."""

    operation: Operation
    fault: Fault
    seed: int

    def __str__(self) -> str:
        return f"{self.operation}/{self.fault} seed {self.seed}"


@dataclass(frozen=True)
class Blow:
    """When the fault comes, and for how long.

    Args:
        chunks: records of finished chunks to wait for after the request.
        delay: seconds after these.
        outage: seconds until it is repaired.
        whole_pod: of an agent: its clients and the mount are killed with it, as those of a container.
        ending: all chunks are done, and the master deletes.
    """

    chunks: int
    delay: float
    outage: float
    whole_pod: bool
    ending: bool = False


@dataclass(frozen=True)
class Scenario:
    """Everything that is drawn for a case.

    Args:
        before: the files of the set before the run. `source`: those that it reads.
        after, source_after: both once it has succeeded.
        wanted: files, paths or nodes that the run counts.
        newer: files of `before` that were written after those of the source.
        left: files of the source that it may still have, beside `source_after`.
        kept: how many files a sync finds and neither copies nor compares.
        replaced: those of them that it copies all the same when their chunk is executed again.
        written: files of `before` that a pod writes right before the run, to the cache of its node first.
    """

    case: Case
    request: WireModel
    before: Tree
    after: Tree
    blow: Blow
    source: Tree = field(default_factory=dict)
    source_after: Tree = field(default_factory=dict)
    wanted: Tree = field(default_factory=dict)
    newer: Tree = field(default_factory=dict)
    left: Tree = field(default_factory=dict)
    kept: int = 0
    replaced: Tree = field(default_factory=dict)
    written: Tree = field(default_factory=dict)


def pairs() -> list[tuple[Operation, Fault]]:
    """The whole matrix."""
    return [(operation, fault) for operation in Operation for fault in Fault]


def draw(case: Case, source: str = "") -> Scenario:
    """Draw all of a case from its seed.

    Args:
        source: address of what a sync reads.
    """
    chance = random.Random(f"{case.operation}/{case.fault}/{case.seed}")
    blow = _draw_blow(chance, case)
    kept = _draw_files(chance, "kept", FILES // 3)
    if case.operation is Operation.SYNC:
        return _draw_sync(chance, case, blow, kept, source)
    files = {**kept, **_draw_files(chance, "in", FILES)}
    if case.operation is Operation.RMR:
        return _draw_removal(chance, case, blow, files)
    if case.operation is Operation.CLEAR:
        nodes = {f"partition-{index}": b"" for index in (0, 1)}
        return Scenario(case, ClearOperation(), files, files, blow, wanted=nodes)
    warmup = WarmupOperation(strategy=chance.choice(("sequence", "random")))
    return Scenario(case, warmup, files, files, blow, wanted=files)


def ends_of(case: Case, outage: float) -> tuple[End, ...]:
    """Allowed ends of the run. It succeeds, unless the fault removes cached data. After a long outage of an
    agent another one does its work, and the cache of the first one is missing meanwhile.

    Args:
        outage: seconds until all was repaired, as measured.
    """
    if case.operation is not Operation.WARMUP:
        return (SUCCEEDED,)
    if case.fault is Fault.DISK:
        return SUCCEEDED, PARTLY, FILES_FAILED
    is_away = case.fault in (Fault.AGENT, Fault.MASTER) and outage > AGENT_REPLACEMENT_GRACE_SECONDS
    return (SUCCEEDED, PARTLY) if is_away else (SUCCEEDED,)


def _draw_blow(chance: random.Random, case: Case) -> Blow:
    longest = {Operation.SYNC: 1.5, Operation.WARMUP: 1.5, Operation.RMR: 0.5, Operation.CLEAR: 0.15}
    chunks = 0 if case.operation is Operation.CLEAR else chance.randrange(5)
    is_kill = case.fault in (Fault.AGENT, Fault.MASTER)
    # After 15 s another leads.
    outage = chance.choice((0.0, 1.0, 16.0)) if is_kill else chance.uniform(0.5, 6.0)
    return Blow(chunks, chance.uniform(0.0, longest[case.operation]), outage, chance.random() < 0.5)


def _draw_files(chance: random.Random, top: str, count: int) -> Tree:
    """Names from the odd ones and plain ones, sizes from nothing to 250 kB."""
    odd = chance.sample(ODD_NAMES, min(len(ODD_NAMES), count // 3))
    names = [*odd, *(f"d{number % 4}/{number}.bin" for number in range(count - len(odd)))]
    sizes = [0, 1, *(chance.randrange(1, LARGEST) for _ in range(count - 2))]
    chance.shuffle(sizes)
    return {f"{top}/{name}": chance.randbytes(size) for name, size in zip(names, sizes, strict=True)}


def _draw_sync(chance: random.Random, case: Case, blow: Blow, kept: Tree, source: str) -> Scenario:
    """A copy that replaces all, what has another size, or what is older. It may delete what is extra, or
    empty the source; the fault may come while it does that.

    Of five files the set has others: three of the same size and two of another, and of both one is newer.
    """
    wanted = _below("in", _draw_files(chance, "in", FILES))
    plain = [name for name in wanted if name.endswith(".bin") and wanted[name]]
    others = {name: chance.randbytes(len(wanted[name])) for name in chance.sample(plain, 5)}
    same, sized = _halves(others, 3)
    sized = {name: data + b"more" for name, data in sized.items()}
    extra = {f"in/extra {number}": chance.randbytes(1000) for number in range(3)}
    how, manner = chance.choice(("copy", "mirror", "move")), chance.choice(("force", "size", "update"))
    written = _draw_files(chance, "kept/written", 4) if chance.random() < WRITEBACK else {}
    if how != "copy" and chance.random() < ENDING:
        blow = replace(blow, ending=True, delay=blow.delay if how == "move" else 0.0)
    request = SyncOperation(
        source=source, secret="source", destination="in", bandwidth_limit=MBPS, update=manner == "update",
        force_update=manner == "force", delete_dst=how == "mirror", delete_src=how == "move",
    )  # fmt: skip
    newer = {**_halves(same, 2)[1], **_halves(sized, 1)[1]}
    stays = {"force": {}, "size": same, "update": newer}[manner]
    # What has the same size is found out by the comparison before the source is emptied, and copied then.
    in_end = {} if (how, manner) == ("move", "size") else stays
    copied = {f"in/{name}": in_end.get(name, data) for name, data in wanted.items()}
    before = {**kept, **written, **extra, **_above("in", {**same, **sized})}
    uncompared = {name: wanted[name] for name in stays}
    return Scenario(
        case, request, before, {**kept, **written, **copied, **({} if how == "mirror" else extra)}, blow,
        wanted,
        wanted if how != "move" else (uncompared if manner == "update" else {}), wanted,
        newer=_above("in", newer), left=uncompared if how == "move" else {}, kept=len(stays),
        replaced=_above("in", uncompared) if manner == "size" else {}, written=written,
    )  # fmt: skip


def _halves(files: Tree, first: int) -> tuple[Tree, Tree]:
    """The first ones, and the others."""
    items = list(files.items())
    return dict(items[:first]), dict(items[first:])


def _above(top: str, files: Tree) -> Tree:
    return {f"{top}/{path}": data for path, data in files.items()}


def _draw_removal(chance: random.Random, case: Case, blow: Blow, files: Tree) -> Scenario:
    """Two directories, and some files."""
    directories = chance.sample(("in/d0", "in/d1", "in/d2", "in/d3"), 2)
    others = [path for path in files if path.startswith("in/") and not _is_below(path, directories)]
    paths = [*directories, *chance.sample(others, len(others) - 3)]
    after = {path: data for path, data in files.items() if not _is_below(path, paths)}
    wanted = dict.fromkeys(paths, b"")
    return Scenario(case, RemoveOperation(paths=paths), files, after, blow, wanted=wanted)


def _is_below(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _below(top: str, files: Tree) -> Tree:
    return {path.removeprefix(f"{top}/"): data for path, data in files.items()}
