"""What the set itself runs, or is about to run: jobs that conflict with it wait from that moment on."""

from __future__ import annotations

from collections.abc import Mapping

from dataset_controller.domain.names import Cond, SetPhase
from dataset_controller.domain.runs import is_ended
from dataset_controller.domain.sampleset.model import SampleSet, SetStatus
from dataset_controller.domain.sampleset.policies.warmth import is_edited, was_warmed
from paddlewheel.contracts.generated.cache_v1 import RunState
from paddlewheel.contracts.reasons import Reason

_BEFORE_SYNC = (SetPhase.NOT_BOUND, SetPhase.BOUND, SetPhase.MOUNT)
_BEFORE_WARMUP = (SetPhase.MOUNT, SetPhase.PARTIAL_READY, SetPhase.READY)


def is_sync_ahead(own: SampleSet) -> bool:
    """The first sync runs, or comes next. A failed one waits for a correction, which a job may be."""
    if own.status.phase is SetPhase.SYNCING:
        return True
    is_wanted = own.spec is not None and not own.spec.no_sync and not own.status.holds(Cond.SYNCED)
    return is_wanted and own.status.phase in _BEFORE_SYNC


def is_warmup_ahead(own: SampleSet, runs: Mapping[str, RunState]) -> bool:
    """The set's own warmup runs, was asked for, or comes next. One that waits for a partition may wait for
    long, and one that has failed for its next attempt: they keep nobody waiting."""
    status, wanted = own.status, own.spec.warmup if own.spec else None
    is_complete = own.spec is not None and _ready_replicas(status) >= own.spec.partitions
    is_next = is_complete and status.phase in _BEFORE_WARMUP
    if wanted is not None and is_edited(status, wanted):
        return is_next
    if (state := runs.get(status.warmup_job)) is not None:
        return not is_ended(state)
    is_over = was_warmed(status) or status.reason_of(Cond.WARMED) == Reason.CANCELLED
    return wanted is not None and not is_over and (bool(status.warmup_job) or is_next)


def _ready_replicas(status: SetStatus) -> int:
    return int(status.runtime.get("readyReplicas") or 0)


def requested_runs(own: SampleSet, runs: Mapping[str, RunState]) -> dict[str, str]:
    """The set's own runs that go on, or that no agent has taken yet: their ids, and what they are."""
    sync, warmup = own.status.sync_job, own.status.warmup_job
    is_syncing = own.status.phase is SetPhase.SYNCING and not is_ended(runs.get(sync))
    found = {sync: "first sync"} if sync and is_syncing else {}
    return found | ({warmup: "warmup"} if warmup and is_warmup_ahead(own, runs) else {})
