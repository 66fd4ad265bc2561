"""What of a set an operation reads and changes, and which operations therefore do not run side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

    def conflicts(self, other: Use) -> bool:
        """One of both changes what the other uses."""
        is_shared = not self.is_exclusive and not other.is_exclusive
        return self.of == other.of and not is_shared and _overlap(self.path, other.path)


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
    """Both cannot go on at the same time."""
    return any(one.conflicts(other) for one in some for other in others)


def _data(paths: Sequence[str], *, is_exclusive: bool) -> Uses:
    return tuple(Use(DATA, path, is_exclusive) for path in dict.fromkeys(_normalized(paths)))


def _normalized(paths: Iterable[str]) -> Iterable[str]:
    for path in paths:
        try:
            yield inside(path, "path")
        except Invalid:
            yield ROOT


def _overlap(one: str, other: str) -> bool:
    """The same directory, or one in the other."""
    first, second = sorted((one, other), key=len)
    return first in (ROOT, second) or second.startswith(f"{first}/")
