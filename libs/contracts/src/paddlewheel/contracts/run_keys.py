"""The keys of records in the buckets of runs and nodes. Only this module builds and parses them.

| key | record |
|---|---|
| `<set-uid>.<run-id>.spec`, `.state`, `.cancel`, `.part-<partition>` | bucket of runs |
| `<set-uid>.<partition>` | bucket of nodes |

Each part of a key is validated like a token of a subject, so no id can refer to records of another run or
set.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from paddlewheel.contracts.subjects import token
from paddlewheel.core.errors import Permanent

_PART = "part-"


class Record(StrEnum):
    """The kinds of records that a run has."""

    SPEC = "spec"
    STATE = "state"
    CANCEL = "cancel"
    PART = "part"
    """One for each partition."""


@dataclass(frozen=True)
class RunKey:
    """The keys of one run's records.

    Each raises Permanent(MalformedSubject) if an id is not a valid token.
    """

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
        """The key of one partition's record."""
        return self._key(f"{_PART}{partition}")

    @property
    def pattern(self) -> str:
        """The pattern that matches all records of the run."""
        return self._key(">")

    def _key(self, name: str) -> str:
        return f"{token(self.set_uid, 'set_uid')}.{token(self.run_id, 'run_id')}.{name}"


@dataclass(frozen=True)
class RunRecord:
    """A parsed key of the bucket of runs. `partition` is -1 unless it is the record of a partition."""

    run: RunKey
    record: Record
    partition: int = -1


@dataclass(frozen=True)
class NodeKey:
    """The key of a partition's record in the bucket of nodes."""

    set_uid: str
    partition: int

    def __str__(self) -> str:
        return f"{token(self.set_uid, 'set_uid')}.{self.partition}"


def set_pattern(set_uid: str) -> str:
    """The pattern that matches all records of a set, in either bucket."""
    return f"{token(set_uid, 'set_uid')}.>"


RUN_RECORDS, NODE_RECORDS = "*.*.*", "*.*"
"""Patterns that match all records in the bucket of runs, and in that of nodes."""


def record_pattern(record: Record, set_uid: str = "*") -> str:
    """The pattern that matches a kind of record, except PART, of all runs of a set; `*` = of all sets."""
    return f"{token(set_uid, 'set_uid', wild=True)}.*.{record}"


def parse_run_record(key: str) -> RunRecord | None:
    """Parse a key of the bucket of runs. None if it is not valid: agents may write keys of other forms."""
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
    """Parse a key of the bucket of nodes. None if it is not valid."""
    set_uid, _, partition = key.rpartition(".")
    if not partition.isascii() or not partition.isdigit() or not _is_token(set_uid):
        return None
    return NodeKey(set_uid, int(partition))


def _is_token(text: str) -> bool:
    try:
        return bool(token(text, "token"))
    except Permanent:
        return False
