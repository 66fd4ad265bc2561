"""The records of runs in the key-value bucket: parsing what is watched, writing state and partitions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import structlog

from cache_runtime.domain.model import RunRecords
from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.contracts.generated.cache_v1 import PartitionState, RunSpec, RunState
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.errors import NotFound, Permanent

log = structlog.get_logger(__name__)

_PART = "part-"


@dataclass(frozen=True)
class Recorded:
    """A partition record with its revision, 0 when it does not exist yet."""

    part: PartitionState
    revision: int


class RunStore:
    """Writes for one data set. Methods raise Retry when the bus is away."""

    def __init__(self, bucket: KeyValue, set_uid: str) -> None:
        self._bucket, self._set_uid = bucket, set_uid

    @property
    def pattern(self) -> str:
        """All records of the set."""
        return f"{self._set_uid}.>"

    async def create_state(self, state: RunState) -> int:
        """Raises AlreadyExists."""
        return await self._bucket.create(self._key(state.run_id, "state"), to_json(state))

    async def update_state(self, state: RunState, revision: int) -> int:
        """Raises Conflict."""
        return await self._bucket.update(self._key(state.run_id, "state"), to_json(state), revision)

    async def state(self, run_id: str) -> tuple[RunState, int]:
        """Raises NotFound."""
        entry = await self._bucket.get(self._key(run_id, "state"))
        return from_json(RunState, entry.value or b"{}"), entry.revision

    async def part(self, run_id: str, partition: int) -> Recorded:
        """The record of a partition, empty when there is none."""
        try:
            entry = await self._bucket.get(self._key(run_id, f"{_PART}{partition}"))
        except NotFound:
            return Recorded(PartitionState(partition=partition), 0)
        return Recorded(from_json(PartitionState, entry.value or b"{}"), entry.revision)

    async def write_part(self, run_id: str, recorded: Recorded) -> int:
        """Create or compare-and-set; returns the new revision. Raises AlreadyExists or Conflict."""
        key, value = self._key(run_id, f"{_PART}{recorded.part.partition}"), to_json(recorded.part)
        if not recorded.revision:
            return await self._bucket.create(key, value)
        return await self._bucket.update(key, value, recorded.revision)

    def _key(self, run_id: str, name: str) -> str:
        return f"{self._set_uid}.{run_id}.{name}"


def run_of(entry: Entry) -> str:
    """The run a record belongs to; "" when the key is of no known form."""
    tokens = entry.key.split(".")
    return tokens[1] if len(tokens) == 3 else ""


def with_entry(run: RunRecords, entry: Entry) -> RunRecords:
    """The records after one watched change; an unreadable record is logged and left out."""
    try:
        return _with_entry(run, entry)
    except Permanent as error:
        log.warning("unreadable record", key=entry.key, problem=error.message)
        return run


def _with_entry(run: RunRecords, entry: Entry) -> RunRecords:
    name = entry.key.split(".")[2]
    if name == "spec":
        return replace(run, spec=from_json(RunSpec, entry.value) if entry.value else None)
    if name == "cancel":
        return replace(run, cancelled=entry.value is not None)
    if name == "state":
        state = from_json(RunState, entry.value) if entry.value else None
        return replace(run, state=state, state_revision=entry.revision if state else 0)
    if name.startswith(_PART) and name.removeprefix(_PART).isdigit():
        return _with_part(run, int(name.removeprefix(_PART)), entry)
    return run


def _with_part(run: RunRecords, partition: int, entry: Entry) -> RunRecords:
    parts = {index: part for index, part in run.parts.items() if index != partition}
    if entry.value:
        parts[partition] = from_json(PartitionState, entry.value)
    return replace(run, parts=parts)
