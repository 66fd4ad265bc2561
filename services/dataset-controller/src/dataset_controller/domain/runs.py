"""Runs of the cache runtime: their ids, their records and whether they have ended."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.crds.operations import operation_for_model
from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunSpec, RunState, SyncOperation
from paddlewheel.contracts.wire import to_json

ENDED = frozenset({RunPhase.SUCCEEDED, RunPhase.FAILED, RunPhase.CANCELLED})
RUNTIME_PREFIX = "source"
"""Prefix of the Secret's entries with the keys of the set's own source."""


@dataclass(frozen=True)
class SetIdentity:
    """The set in a run's record."""

    namespace: str
    name: str
    uid: str


def run_id(*parts: str) -> str:
    """An id in the form of a UUID, the same for the same parts: a run written twice exists once."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def digest(operation: WireModel) -> str:
    """Changes when the operation does."""
    return hashlib.sha256(to_json(operation)).hexdigest()


def job_prefix(run: str) -> str:
    """Prefix of the Secret's entries with the keys of a SampleJob's own source."""
    return f"job-{run}"


def make_run(owner: SetIdentity, run: str, partitions: int, operation: WireModel, now: datetime) -> RunSpec:
    """The record that requests the run.

    Clients know whole Mbit per second only: of a smaller limit than there are partitions, some would get
    none, which is no limit.
    """
    if isinstance(operation, SyncOperation) and operation.bandwidth_limit:
        partitions = min(partitions, operation.bandwidth_limit)
    return RunSpec(
        run_id=run,
        set_namespace=owner.namespace,
        set_name=owner.name,
        set_uid=owner.uid,
        partitions=partitions,
        requested_at=now,
        **{operation_for_model(operation).member: operation},
    )


def is_ended(state: RunState | None) -> bool:
    """False as well while no agent has taken the run."""
    return state is not None and state.phase in ENDED


def unfinished(states: Mapping[str, RunState]) -> list[str]:
    """Ids of the runs that an agent works on, sorted."""
    return sorted(run for run, state in states.items() if not is_ended(state))
