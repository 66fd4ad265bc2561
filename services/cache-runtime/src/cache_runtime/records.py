"""The records of runs in the key-value bucket: parsing watched entries, writing states and partitions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

import structlog

from cache_runtime.domain.model import RunRecords
from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.contracts.generated.cache_v1 import PartitionState, RunSpec, RunState
from paddlewheel.contracts.run_keys import Record, RunKey, RunRecord, parse_run_record, record_pattern
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.errors import NotFound, Permanent

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Recorded:
    """The record of a partition with its revision, 0 when it does not exist yet."""

    part: PartitionState
    revision: int


class RunStore:
    """The records of one data set. Methods raise Retry while the bus is unreachable."""

    def __init__(self, bucket: KeyValue, set_uid: str) -> None:
        self._bucket, self._set_uid = bucket, set_uid

    @property
    def patterns(self) -> tuple[str, ...]:
        """What every agent of the set follows; records of partitions, the most, concern the master alone."""
        followed = (Record.SPEC, Record.STATE, Record.CANCEL)
        return tuple(record_pattern(record, self._set_uid) for record in followed)

    async def watch_parts(self, run_id: str) -> AsyncGenerator[tuple[RunRecord, Entry] | None, None]:
        """The records of a run's partitions, None once all that there are were read, then every change."""
        async with aclosing(self._bucket.watch(self._key(run_id).pattern)) as entries:
            async for entry in entries:
                if entry is None:
                    yield None
                elif (record := parse_run_record(entry.key)) and record.record is Record.PART:
                    yield record, entry

    async def create_state(self, state: RunState) -> int:
        """Raises AlreadyExists."""
        return await self._bucket.create(self._key(state.run_id).state, to_json(state))

    async def update_state(self, state: RunState, revision: int) -> int:
        """Raises Conflict."""
        return await self._bucket.update(self._key(state.run_id).state, to_json(state), revision)

    async def has_spec(self, run_id: str) -> bool:
        """Whether the run is still asked for, by the bus itself: watches may lag."""
        try:
            await self._bucket.get(self._key(run_id).spec)
        except NotFound:
            return False
        return True

    async def state(self, run_id: str) -> tuple[RunState, int]:
        """Raises NotFound."""
        entry = await self._bucket.get(self._key(run_id).state)
        return from_json(RunState, entry.value or b"{}"), entry.revision

    async def part(self, run_id: str, partition: int) -> Recorded:
        """The record of a partition, empty when there is none."""
        try:
            entry = await self._bucket.get(self._key(run_id).part(partition))
        except NotFound:
            return Recorded(PartitionState(partition=partition), 0)
        return Recorded(from_json(PartitionState, entry.value or b"{}"), entry.revision)

    async def write_part(self, run_id: str, recorded: Recorded) -> int:
        """Create or compare-and-set; returns the new revision. Raises AlreadyExists or Conflict."""
        key, value = self._key(run_id).part(recorded.part.partition), to_json(recorded.part)
        if not recorded.revision:
            return await self._bucket.create(key, value)
        return await self._bucket.update(key, value, recorded.revision)

    def _key(self, run_id: str) -> RunKey:
        return RunKey(self._set_uid, run_id)


def with_entry(run: RunRecords, record: RunRecord, entry: Entry) -> RunRecords:
    """The records after one watched change; a malformed record is logged and left out."""
    try:
        return _with_entry(run, record, entry)
    except Permanent as error:
        log.warning("malformed record", key=entry.key, problem=error.message)
        return run


def _with_entry(run: RunRecords, record: RunRecord, entry: Entry) -> RunRecords:
    match record.record:
        case Record.SPEC:
            return replace(run, spec=from_json(RunSpec, entry.value) if entry.value else None)
        case Record.CANCEL:
            return replace(run, cancelled=entry.value is not None)
        case Record.STATE:
            state = from_json(RunState, entry.value) if entry.value else None
            return replace(run, state=state, state_revision=entry.revision if state else 0)
        case Record.PART:
            return _with_part(run, record.partition, entry)


def _with_part(run: RunRecords, partition: int, entry: Entry) -> RunRecords:
    parts = {index: part for index, part in run.parts.items() if index != partition}
    if entry.value:
        parts[partition] = from_json(PartitionState, entry.value)
    return replace(run, parts=parts)
