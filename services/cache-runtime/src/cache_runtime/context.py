"""What the master and the agent of every run share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cache_runtime.domain.chunking import Limits
from cache_runtime.domain.model import Identity
from cache_runtime.engines.ports import Mount
from cache_runtime.facts import Facts
from cache_runtime.metrics import Metrics
from cache_runtime.operations.base import RunOperation
from cache_runtime.records import RunStore
from paddlewheel.bus.ports import KeyValue, WorkStore
from paddlewheel.contracts.crds.operations import operation_of
from paddlewheel.contracts.generated.cache_v1 import RunSpec
from paddlewheel.core.clock import Clock


@dataclass(frozen=True)
class RunContext:
    """Everything that does not depend on the run.

    Args:
        operations: by member.
        nodes: the bucket of node records, which say what partitions are there.
        away_after: seconds without a report after which a partition's work is given to another.
        tick: seconds between two evaluations of a run by its master.
    """

    identity: Identity
    store: RunStore
    work: WorkStore
    nodes: KeyValue
    facts: Facts
    clock: Clock
    metrics: Metrics
    mount: Mount
    operations: Mapping[str, RunOperation]
    limits: Limits = field(default_factory=Limits)
    away_after: float = 25.0
    tick: float = 1.0

    def operation(self, spec: RunSpec) -> RunOperation:
        """Raises Permanent(UnknownOperation)."""
        return self.operations[operation_of(spec).member]
