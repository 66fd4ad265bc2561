"""Keys of the records in the buckets of runs and nodes, built and parsed here only.

| key | record |
|---|---|
| `<set-uid>.<run-id>.spec`, `.state`, `.cancel`, `.part-<partition>` | bucket of runs |
| `<set-uid>.<partition>` | bucket of nodes |

Tokens are validated as in subjects, so that no id can address the records of another run or set.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from paddlewheel.contracts.subjects import token
from paddlewheel.core.errors import Permanent

_PART = "part-"


class Record(StrEnum):
    """The records of a run."""

    SPEC = "spec"
    STATE = "state"
    CANCEL = "cancel"
    PART = "part"
    """One for each partition."""


@dataclass(frozen=True)
class RunKey:
    """One run. Building a key raises Permanent(MalformedSubject) when an id is not a valid token."""

    set_uid: str
    run_id: str

    @property
    def spec(self) -> str:
        return self._key(Record.SPEC)

    @property
    def state(self) -> str:
        return self._key(Record.STATE)

    @property
    def cancel(self) -> str:
        return self._key(Record.CANCEL)

    def part(self, partition: int) -> str:
        """The record of one partition."""
        return self._key(f"{_PART}{partition}")

    @property
    def pattern(self) -> str:
        """Matches all records of the run."""
        return self._key(">")

    def _key(self, name: str) -> str:
        return f"{token(self.set_uid, 'set_uid')}.{token(self.run_id, 'run_id')}.{name}"


@dataclass(frozen=True)
class RunRecord:
    """A parsed key of the bucket of runs. `partition` is -1 unless the record is a partition's."""

    run: RunKey
    record: Record
    partition: int = -1


@dataclass(frozen=True)
class NodeKey:
    """One partition of a set, in the bucket of nodes."""

    set_uid: str
    partition: int

    def __str__(self) -> str:
        return f"{token(self.set_uid, 'set_uid')}.{self.partition}"


def set_pattern(set_uid: str) -> str:
    """Matches all records of a set, in either bucket."""
    return f"{token(set_uid, 'set_uid')}.>"


RUN_RECORDS, NODE_RECORDS = "*.*.*", "*.*"
"""Match the keys of all records in either bucket, and none of another shape."""


def record_pattern(record: Record, set_uid: str = "*") -> str:
    """Matches this record (not those of partitions) of all runs of a set; `*` = of all sets."""
    return f"{token(set_uid, 'set_uid', wild=True)}.*.{record}"


def parse_run_record(key: str) -> RunRecord | None:
    """None when no record of a run has such a key: agents may write keys that `RunKey` refuses to build."""
    tokens = key.split(".")
    if len(tokens) != 3 or not _is_token(tokens[0]) or not _is_token(tokens[1]):
        return None
    run, name = RunKey(tokens[0], tokens[1]), tokens[2]
    if name in (Record.SPEC, Record.STATE, Record.CANCEL):
        return RunRecord(run, Record(name))
    index = name.removeprefix(_PART)
    if index == name or not index.isascii() or not index.isdigit():
        return None
    return RunRecord(run, Record.PART, int(index))


def parse_node_key(key: str) -> NodeKey | None:
    """None when no record of a node has such a key."""
    set_uid, _, partition = key.rpartition(".")
    if not partition.isascii() or not partition.isdigit() or not _is_token(set_uid):
        return None
    return NodeKey(set_uid, int(partition))


def _is_token(text: str) -> bool:
    try:
        return bool(token(text, "token"))
    except Permanent:
        return False
