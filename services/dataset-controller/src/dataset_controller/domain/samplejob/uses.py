"""What of a set an operation reads and changes, and which operations therefore do not run side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.paths import inside
from paddlewheel.contracts.crds import RmrOptions, SampleJobSpec, SyncOptions, WarmupOptions

DATA, CACHE = "data", "cache"
ROOT = ""


@dataclass(frozen=True)
class Use:
    """A directory that a run reads, or with `is_exclusive` changes.

    Args:
        of: `DATA` or `CACHE`.
        path: below the set's root; "" for all of it.
    """

    of: str
    path: str = ROOT
    is_exclusive: bool = False


Uses = tuple[Use, ...]
FILLS = (Use(DATA), Use(CACHE))
"""Of a warmup of the whole set."""
COPIES = (Use(DATA, is_exclusive=True),)
"""Of a sync into the whole set."""
EVERYTHING = (Use(DATA, is_exclusive=True), Use(CACHE, is_exclusive=True))
"""Of what is not known any better."""


def uses_of(spec: SampleJobSpec) -> Uses:
    """What the operation reads and changes. A path that cannot be read counts as the whole set."""
    match spec.type:
        case "sync":
            options = spec.sync_options or SyncOptions()
            return _data([options.destination], is_exclusive=not options.dry)
        case "warmup":
            warmup = spec.warmup_options or WarmupOptions()
            paths = [ROOT] if warmup.file or not warmup.paths else warmup.paths
            return (*_data(paths, is_exclusive=False), Use(CACHE))
        case "rmr":
            return _data((spec.rmr_options or RmrOptions()).paths, is_exclusive=True)
        case "clear":
            return (Use(CACHE, is_exclusive=True),)
    return EVERYTHING


def conflict(some: Uses, others: Uses) -> bool:
    """Both cannot go on at the same time: one changes what the other uses.

    Paths are looked up in sets and not compared in pairs: there may be thousands on either side.
    """
    return any(
        _overlap(_paths(some, of, is_exclusive=one), _paths(others, of, is_exclusive=other))
        for of in (DATA, CACHE)
        for one, other in ((True, True), (True, False), (False, True))
    )


def _paths(uses: Uses, of: str, *, is_exclusive: bool) -> frozenset[str]:
    return frozenset(use.path for use in uses if use.of == of and use.is_exclusive is is_exclusive)


def _data(paths: Sequence[str], *, is_exclusive: bool) -> Uses:
    return tuple(Use(DATA, path, is_exclusive) for path in dict.fromkeys(_normalized(paths)))


def _normalized(paths: Iterable[str]) -> Iterable[str]:
    for path in paths:
        try:
            yield inside(path, "path")
        except Invalid:
            yield ROOT


def _overlap(some: frozenset[str], others: frozenset[str]) -> bool:
    """A directory is in both, or one of either is in one of the other."""
    return is_any_below(some, others) or is_any_below(others, some)


def is_any_below(paths: Set[str], tops: Set[str]) -> bool:
    """One of the paths is one of these directories, or in one of them."""
    return bool(tops) and any(not tops.isdisjoint(_with_parents(path)) for path in paths)


def _with_parents(path: str) -> Iterator[str]:
    yield path
    while path:
        path = path.rpartition("/")[0]
        yield path
