"""Names that hypothesis draws go through every operation: nothing is lost, nothing beside is touched."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.integration.cache_runtime.cache_harness import CacheHarness
from tests.integration.cache_runtime.conftest import lent_in
from tests.integration.cache_runtime.test_odd_names import digests_of, make_tree

from cache_runtime.walk import is_leftover
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    RemoveOperation,
    RunPhase,
    RunState,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.testkit.storage import ObjectStore, run_juicefs

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

NAME_MAX = 255
FILES = 20
SPACES = [" ", "\t", "\u00a0", "\u3000", "\u2003", "\u200b", "\ufeff", "\n", "\r", "\x85", "\u2028"]
MARKS = [*"-=*?[]{}\"'`\\%#&+;:@~!$()|<>,^", "--", "[a-", "%41", "%2F", "%", "\\n", "$(x)", ".", "..", "..."]
WORDS = ["a", "A", "ä", "a\u0308", "ß", "SS", "I", "ı", "中", "😀", "\u202e", "nul", "x" * 120, "é" * 60]
OPTIONS = ["--files-from=", "--dry", "--delete-dst", "-p", "--exclude=*", "--", "file:", "jfs:", "http:"]
OWN = [".jfs.", ".tmp.", ".tmp.1", ".jfs.a.tmp.", ".stats", ".trash", ".config", ".accesslog", ".jfsconfig"]
_LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="/\0")
_PIECES = st.one_of(
    *map(st.sampled_from, (SPACES, MARKS, WORDS, OPTIONS, OWN)), st.text(_LETTERS, min_size=1, max_size=4)
)
NUMBERS = count()


def _fits(name: bytes) -> bool:
    return len(name) <= NAME_MAX and name not in (b".", b"..")


_TEXTS = st.lists(_PIECES, min_size=1, max_size=5).map("".join).map(str.encode)
_BYTES = st.binary(min_size=1, max_size=9).map(lambda raw: raw.replace(b"/", b"").replace(b"\0", b"") or b"_")
_SWAPPED_TEXTS = _TEXTS.map(bytes.swapcase)


def paths(names: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    """Of files: none of them is a directory of another."""
    path = st.lists(names.filter(_fits), min_size=1, max_size=3).map(b"/".join)
    return st.lists(path, min_size=FILES, max_size=FILES, unique=True).map(_without_directories)


def _without_directories(drawn: Sequence[bytes]) -> list[bytes]:
    return [path for path in drawn if not any(other.startswith(path + b"/") for other in drawn)]


def _storable(drawn: Sequence[bytes]) -> list[bytes]:
    """What SeaweedFS can hold and list: it takes a backslash for a slash, and lists a directory by its name
    without the slash, so that what has it after a lower character is too early. The client refuses that."""
    plain = [path for path in drawn if b"\\" not in path]
    parts = [path.split(b"/") for path in plain]
    above = {b"/".join(each[:depth]) for each in parts for depth in range(1, len(each))}
    return [path for path in plain if not any(_is_before(path, directory) for directory in above)]


def _is_before(path: bytes, directory: bytes) -> bool:
    return path.startswith(directory) and path[len(directory) :] < b"/"


def quick(examples: int) -> settings:
    """Each takes seconds, and shrinking one takes minutes."""
    return settings(
        max_examples=examples,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


class Source(Protocol):
    """Where the drawn files are copied from; a prefix is a directory of it."""

    def put(self, prefix: str, tree: Path) -> SyncOperation: ...

    def digests(self, prefix: str, scratch: Path) -> Mapping[bytes, str]: ...


@dataclass(frozen=True)
class Stored:
    """In an object store."""

    store: ObjectStore

    def put(self, prefix: str, tree: Path) -> SyncOperation:
        self.store.put_tree(tree, "drawn", prefix)
        return SyncOperation(source=self.store.uri("drawn", prefix), secret="source")

    def digests(self, prefix: str, scratch: Path) -> Mapping[bytes, str]:
        scratch.mkdir()
        keys = {"MINIO_ACCESS_KEY": self.store.access_key, "MINIO_SECRET_KEY": self.store.secret_key}
        source = self.store.uri("drawn", f"{prefix}/")
        run_juicefs("sync", "--metrics", "127.0.0.1:0", source, f"file://{scratch}/", env=keys)
        return digests_of(scratch)


@dataclass(frozen=True)
class Lent:
    """In a directory of the node."""

    top: Path

    def put(self, prefix: str, tree: Path) -> SyncOperation:
        tree.rename(self.top / prefix)
        return SyncOperation(source=f"file://{self.top / prefix}")

    def digests(self, prefix: str, scratch: Path) -> Mapping[bytes, str]:
        return digests_of(self.top / prefix)


@dataclass
class Walkthrough:
    """One drawn tree. `own` is its directory in the data set, `beside` one with the same names.

    Attributes:
        wanted: digests of the files that can be copied.
    """

    harness: CacheHarness
    source: Source
    names: list[bytes]
    scratch: Path

    def __post_init__(self) -> None:
        self.number = next(NUMBERS)
        self.own, self.beside = f"own-{self.number}", f"beside-{self.number}"
        self.wanted = make_tree(self.scratch / "tree", self.names)
        self.refused = {name for name in self.names if is_leftover(name.rpartition(b"/")[2])}
        self.kept = make_tree(self.mount / self.beside, self.names)
        make_tree(self.scratch / "other", self.names)
        self.source.put(f"other-{self.number}", self.scratch / "other")
        self.sync = self.source.put(f"tree-{self.number}", self.scratch / "tree").model_copy(
            update={"destination": self.own}
        )
        self._steps = count()

    @property
    def mount(self) -> Path:
        return self.harness.runtimes.mount_path(0)

    @property
    def copied(self) -> dict[bytes, str]:
        return {name: digest for name, digest in self.wanted.items() if name not in self.refused}

    def found(self) -> dict[bytes, str]:
        return digests_of(self.mount / self.own)

    async def run(self, operation: WireModel) -> RunState:
        return await self.harness.run(f"drawn-{self.number}-{next(self._steps)}", operation)

    async def copy(self, **options: object) -> None:
        """What cannot be copied is named, and all else is there."""
        state = await self.run(self.sync.model_copy(update=options))
        expected = RunPhase.FAILED if self.refused else RunPhase.SUCCEEDED
        assert (state.phase, state.files_done) == (expected, len(self.copied)), state.message
        assert state.files_total == len(self.names)
        assert self.found() == self.copied

    async def warm(self) -> None:
        state = await self.run(WarmupOperation(paths=[self.own]))
        assert (state.phase, state.message, state.files_done) == (RunPhase.SUCCEEDED, "", len(self.copied))
        assert await self.harness.uncached(Path(self.own)) == []

    async def remove(self, names: Sequence[bytes]) -> None:
        state = await self.run(RemoveOperation(paths=[f"{self.own}/{name.decode()}" for name in names]))
        assert (state.phase, state.message) == (RunPhase.SUCCEEDED, ""), state
        assert self.found() == {k: v for k, v in self.copied.items() if k not in names}

    async def clear(self) -> None:
        state = await self.run(ClearOperation())
        assert (state.phase, state.message) == (RunPhase.SUCCEEDED, "")

    def check_rest(self) -> None:
        """Nothing beside was touched."""
        assert digests_of(self.mount / self.beside) == self.kept
        assert self.source.digests(f"other-{self.number}", self.scratch / "other-found") == self.wanted


async def walk_through(walkthrough: Walkthrough, extra: Sequence[bytes]) -> None:
    """All operations but the one that a lent directory does not have."""
    await walkthrough.copy()
    await walkthrough.warm()
    some = [name for name in walkthrough.copied if _is_text(name)][::3]
    await walkthrough.remove(some)
    own = walkthrough.mount / walkthrough.own
    make_tree(
        own, [name for name in _beside(extra, walkthrough.names) if not (own / os.fsdecode(name)).exists()]
    )
    if not walkthrough.refused:
        await walkthrough.copy(delete_dst=True)
    await walkthrough.clear()


def _is_text(name: bytes) -> bool:
    return name.decode(errors="replace").encode() == name


def _beside(extra: Sequence[bytes], names: Sequence[bytes]) -> Iterator[bytes]:
    """Those that can exist together with the others."""
    kept = list(names)
    for each in extra:
        if not any(each.startswith(k + b"/") or k.startswith(each + b"/") or k == each for k in kept):
            kept.append(each)
            yield each


@quick(2)
@given(names=paths(st.one_of(_TEXTS, _SWAPPED_TEXTS)).map(_storable), extra=paths(_TEXTS))
async def test_drawn_names_in_an_object_store_survive_every_operation(
    shared_harness: CacheHarness,
    object_store: ObjectStore,
    tmp_path_factory: pytest.TempPathFactory,
    names: list[bytes],
    extra: list[bytes],
) -> None:
    scratch = tmp_path_factory.mktemp("drawn")
    walkthrough = Walkthrough(shared_harness, Stored(object_store), names, scratch)
    await walk_through(walkthrough, extra)
    if not walkthrough.refused:
        await walkthrough.copy(delete_src=True)
        assert walkthrough.source.digests(f"tree-{walkthrough.number}", scratch / "left") == {}
        assert walkthrough.found() == walkthrough.copied
    walkthrough.check_rest()


@quick(2)
@given(names=paths(st.one_of(_TEXTS, _SWAPPED_TEXTS, _BYTES)), extra=paths(_TEXTS))
async def test_drawn_names_in_a_lent_directory_survive_every_operation(
    shared_harness: CacheHarness,
    tmp_path_factory: pytest.TempPathFactory,
    names: list[bytes],
    extra: list[bytes],
) -> None:
    source = Lent(lent_in(shared_harness.runtimes.directory))
    walkthrough = Walkthrough(shared_harness, source, names, tmp_path_factory.mktemp("drawn"))
    await walk_through(walkthrough, extra)
    walkthrough.check_rest()
