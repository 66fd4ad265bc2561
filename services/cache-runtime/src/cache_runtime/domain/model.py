"""The terms of the data plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from paddlewheel.contracts.generated.cache_v1 import PartitionState, RunSpec, RunState


class File(NamedTuple):
    """One listed file: bytes, and encoded path (`paths.encode_path`) below the root or source prefix."""

    path: str
    size: int


@dataclass(frozen=True)
class Batch:
    """Files of a listing. With a `partition`, that one does them; otherwise the one with the fewest bytes.

    Args:
        remark: about the whole listing, for the message of a run that succeeds.
    """

    files: Sequence[File]
    partition: int | None = None
    remark: str = ""


@dataclass(frozen=True)
class ListedChunk:
    """A chunk as it is listed, before it is a message: models of its files would take a fifth of the time."""

    run_id: str
    partition: int
    id: int
    files: Sequence[File] = ()


@dataclass(frozen=True)
class FileStat:
    """A regular file or a directory of the mounted tree.

    Args:
        changed: when its content or attributes were changed last, in seconds since 1970.
    """

    inode: int
    size: int
    changed: float


@dataclass(frozen=True)
class Obstacle:
    """A path of the data set where a sync has to write something of the other kind."""

    path: bytes
    is_directory: bool

    @property
    def kind(self) -> str:
        return "directory" if self.is_directory else "file"


@dataclass(frozen=True)
class TreeSize:
    """Regular files of a file system, and their apparent bytes."""

    files: int
    bytes: int


@dataclass(frozen=True)
class CacheReport:
    """What the cache holds of some files: files and bytes examined, bytes missing in the cache."""

    files: int
    bytes: int
    missing: int


@dataclass(frozen=True)
class CacheUse:
    """Bytes in the cache of a node, and those read from it and elsewhere since the client was started."""

    cached: int = 0
    hit: int = 0
    miss: int = 0


@dataclass(frozen=True)
class Credentials:
    """Keys of an object store; "" = none."""

    access_key: str = ""
    secret_key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Identity:
    """The pod that this process runs in, and the data set it serves."""

    set_namespace: str
    set_name: str
    set_uid: str
    pod: str
    partition: int
    node: str


@dataclass(frozen=True)
class Outcome:
    """The result of one chunk. `failed` has a text `encoded path: reason` for each file that failed, `notes`
    one for what is worth knowing of another.

    Args:
        recount: bytes of the partition's files that the cache holds when all of them are done; they replace
            what was found after each chunk.
        uncounted: they could not be looked up.
        kept: files that are done, and were left as they were found without a look into them.
        uncompared: the same without directories, and with those that an earlier try may have copied.
    """

    files: int = 0
    bytes: int = 0
    cached_bytes: int = 0
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    recount: int | None = None
    uncounted: bool = False
    kept: int = 0
    uncompared: int = 0


@dataclass(frozen=True)
class RunRecords:
    """All records of one run as last observed. `state_revision` is 0 when there is no state."""

    run_id: str
    spec: RunSpec | None = None
    state: RunState | None = None
    state_revision: int = 0
    parts: dict[int, PartitionState] = field(default_factory=dict)
    cancelled: bool = False
