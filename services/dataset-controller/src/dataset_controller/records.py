"""The runtime's records on the bus, watched and kept in memory: states of runs and reports of nodes.

They are an observation, not the truth: how a run ended is stored in the objects' status. Their times are this
service's own, of the moment a record was seen: the clocks of nodes are never compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import structlog

from dataset_controller.domain.reports import left_unsaid, settled
from dataset_controller.domain.runs import is_ended
from paddlewheel.bus.ports import Entry, KeyValue
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.generated.cache_v1 import NodeStatus, RunState, StagedElsewhere
from paddlewheel.contracts.run_keys import (
    NodeKey,
    Record,
    RunKey,
    parse_node_key,
    parse_run_record,
    record_pattern,
)
from paddlewheel.contracts.wire import from_json
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent

log = structlog.get_logger(__name__)

K = TypeVar("K")
M = TypeVar("M", bound=WireModel)


class RunRecords:
    """States of all runs, by set and run.

    Attributes:
        is_known: everything that was on the bus when this service started has been taken in. Before that, no
            record says nothing.
    """

    def __init__(self, clock: Clock) -> None:
        self.is_known = False
        self._clock = clock
        self._states: dict[str, dict[str, RunState]] = {}

    def of(self, set_uid: str) -> Mapping[str, RunState]:
        """States of the set's runs."""
        return dict(self._states.get(set_uid, {}))

    def find(self, run_id: str) -> tuple[RunKey, ...]:
        """The sets under which a run is recorded; usually one."""
        return tuple(RunKey(uid, run_id) for uid, runs in self._states.items() if run_id in runs)

    async def follow(self, bucket: KeyValue, on_change: Callable[[RunKey], None]) -> None:
        """Watch forever; `on_change` is called after a change was taken in."""
        async for entry in bucket.watch(record_pattern(Record.STATE)):
            if entry is None:
                self.is_known = True
            elif (record := parse_run_record(entry.key)) is not None:
                self._take_in(record.run, entry)
                on_change(record.run)

    def _take_in(self, run: RunKey, entry: Entry) -> None:
        state = _read(RunState, entry)
        _put(self._states, run.set_uid, run.run_id, state and self._stamped(run, state))

    def _stamped(self, run: RunKey, state: RunState) -> RunState:
        """With `ended_at` when the end was first seen."""
        if not is_ended(state):
            return state
        before = self._states.get(run.set_uid, {}).get(run.run_id)
        seen_at = before.ended_at if before is not None and is_ended(before) else self._clock.now()
        return state.model_copy(update={"ended_at": seen_at})


class NodeRecords:
    """The latest report of every partition's agent, by set, until the set is gone: what pods have written on
    a node is there also when the bus has lost the report, nobody can read a new one, or the new one is from
    another node and does not tell of it. That counts until a partition reports from there.

    Attributes:
        is_known: as of `RunRecords`.
    """

    def __init__(self, clock: Clock) -> None:
        self.is_known = False
        self._clock = clock
        self._heard: dict[str, dict[int, _Heard]] = {}

    def of(self, set_uid: str) -> tuple[NodeStatus, ...]:
        """In the order of partitions."""
        return tuple(heard.complete for _, heard in sorted(self._heard.get(set_uid, {}).items()))

    def replayed(self, set_uid: str) -> frozenset[int]:
        """Partitions whose last report came with what the bus listed when this service started, or after a
        lost connection: it may be of any age. One that is listed unchanged had come before."""
        heard = self._heard.get(set_uid, {})
        return frozenset(partition for partition, each in heard.items() if each.is_replayed)

    def forget(self, set_uid: str) -> None:
        """The set is gone."""
        self._heard.pop(set_uid, None)

    async def follow(self, bucket: KeyValue, on_change: Callable[[str], None]) -> None:
        """Watch forever; `on_change` gets the set's uid."""
        async for entry in bucket.watch(">"):
            if entry is None:
                self.is_known = True
            elif (node := parse_node_key(entry.key)) is not None:
                self._take_in(node, entry)
                on_change(node.set_uid)

    def _take_in(self, node: NodeKey, entry: Entry) -> None:
        """A report that the bus gives once more, as after a lost connection, is no newer for that."""
        if (report := _read(NodeStatus, entry)) is None:
            return
        heard = self._heard.setdefault(node.set_uid, {})
        before = heard.get(node.partition)
        if before is not None and before.entry == entry:
            return
        stamped = report.model_copy(update={"updated_at": self._clock.now()})
        unsaid = () if before is None else left_unsaid(before.complete, report)
        heard[node.partition] = _Heard(entry, stamped, unsaid, is_replayed=entry.is_stored)
        if report.node and not report.staged_unknown:
            others = [i for i, each in heard.items() if report.node in each.nodes and i != node.partition]
            heard.update({i: heard[i].without(report.node, entry) for i in others})


@dataclass(frozen=True)
class _Heard:
    """The last word of a partition's agent.

    Args:
        unsaid: what was known before of nodes that it does not name.
        is_replayed: it came with what the bus listed when this service started, or after a lost connection.
    """

    entry: Entry
    report: NodeStatus
    unsaid: tuple[StagedElsewhere, ...]
    is_replayed: bool

    @property
    def complete(self) -> NodeStatus:
        """With what it does not say."""
        if not self.unsaid:
            return self.report
        return self.report.model_copy(
            update={"staged_elsewhere": [*self.report.staged_elsewhere, *self.unsaid]}
        )

    @cached_property
    def nodes(self) -> frozenset[str]:
        """That it tells of. Asked for each report of a set, of each of its partitions."""
        elsewhere = (*self.report.staged_elsewhere, *self.unsaid)
        return frozenset((self.report.node, *(each.node for each in elsewhere)))

    def without(self, node: str, told: Entry) -> _Heard:
        """Another partition has reported from that node, and knows what is there. One that is killed reports
        no more, and would claim for ever what the other has uploaded."""
        if told.is_stored and told.revision < self.entry.revision:
            return self
        unsaid = tuple(each for each in self.unsaid if each.node != node)
        return replace(self, unsaid=unsaid, report=settled(self.report, node))


def _put(table: dict[str, dict[K, M]], outer: str, inner: K, value: M | None) -> None:
    """Set or, with None, remove; empty tables are removed."""
    rows = table.setdefault(outer, {})
    if value is None:
        rows.pop(inner, None)
    else:
        rows[inner] = value
    if not rows:
        del table[outer]


def _read(model: type[M], entry: Entry) -> M | None:
    """None for a deleted entry, and for one that cannot be decoded."""
    if entry.value is None:
        return None
    try:
        return from_json(model, entry.value)
    except Permanent as error:
        log.warning("record on the bus cannot be decoded", key=entry.key, error=str(error))
        return None
