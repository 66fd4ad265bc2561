"""The words of the data plane."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from paddlewheel.contracts.generated.cache_v1 import PartitionState, RunSpec, RunState


class Kind(StrEnum):
    """What a run does; also the `operation` of its facts."""

    SYNC = "sync"
    WARMUP = "warmup"
    REMOVE = "remove"
    CLEAR = "clear"


class File(NamedTuple):
    """One file: encoded path (`paths.encode_path`) relative to the root or source prefix, and bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class Cut:
    """One chunk as cut: number `id` of its partition, from 0 up."""

    partition: int
    id: int
    files: tuple[File, ...]


@dataclass(frozen=True)
class Totals:
    """What was listed for one partition."""

    files: int = 0
    bytes: int = 0
    chunks: int = 0


@dataclass(frozen=True)
class Outcome:
    """What became of one chunk. `failed` has a text `encoded path: reason` for each file given up."""

    files: int = 0
    bytes: int = 0
    cached_bytes: int = 0
    failed: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunRecords:
    """All records of one run as last seen. `state_revision` is 0 when there is no state."""

    run_id: str
    spec: RunSpec | None = None
    state: RunState | None = None
    state_revision: int = 0
    parts: dict[int, PartitionState] = field(default_factory=dict)
    cancelled: bool = False


def kind_of(spec: RunSpec) -> Kind | None:
    """Which operation the spec carries; None when it carries none we know."""
    for kind in Kind:
        if getattr(spec, kind.value) is not None:
            return kind
    return None
