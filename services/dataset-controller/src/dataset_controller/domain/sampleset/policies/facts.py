"""Which facts became true with this plan, and what they say."""

from __future__ import annotations

from datetime import datetime

from dataset_controller.domain.journal import Journal
from dataset_controller.domain.names import Cond, Fact, SetPhase
from dataset_controller.domain.objects import Object, generation_of, key_of, uid_of, version_of
from dataset_controller.domain.sampleset.figures import measure
from dataset_controller.domain.sampleset.model import ObservedSet, SetStatus
from dataset_controller.domain.sampleset.policies.own_runs import RunDecision, Standing
from dataset_controller.domain.text import count_of
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.generated import datasets_v1 as facts
from paddlewheel.contracts.generated.cache_v1 import NodeStatus, RunState
from paddlewheel.contracts.generated.common_v1 import ObjectRef


def declare_facts(
    journal: Journal, before: SetPhase, after: SetPhase, sync: RunDecision, warmup: RunDecision, now: datetime
) -> Journal:
    """Repeated ones count up: the first Ready is 0, the one after the first Degraded is 1."""
    if sync.standing is Standing.DONE:
        journal = journal.declare(Fact.SYNCED, now)
    if warmup.standing is Standing.DONE:
        journal = journal.declare(Fact.WARMED, now)
    if before is after:
        return journal
    match after:
        case SetPhase.BOUND:
            return journal.declare(Fact.BOUND, now)
        case SetPhase.MOUNT:
            return journal.declare(Fact.MOUNTED, now)
        case SetPhase.SYNC_FAILED:
            return journal.declare(Fact.SYNC_FAILED, now, journal.attempt(Fact.SYNC_FAILED) + 1)
        case SetPhase.READY:
            return journal.declare(Fact.READY, now, journal.attempt(Fact.DEGRADED) + 1)
        case SetPhase.PARTIAL_READY if before is SetPhase.READY:
            return journal.declare(Fact.DEGRADED, now, max(journal.attempt(Fact.READY), 0))
    return journal


def object_ref(obj: Object) -> ObjectRef:
    """The object a fact is about."""
    key = key_of(obj)
    return ObjectRef(
        namespace=key.namespace,
        name=key.name,
        uid=uid_of(obj),
        generation=generation_of(obj),
        resource_version=version_of(obj),
    )


def set_fact(fact: str, seen: ObservedSet, status: SetStatus) -> WireModel | None:
    """The message of a fact, told with what is known now; None when it is no fact of a SampleSet."""
    ref = object_ref(seen.obj)
    journal = status.journal
    match fact:
        case Fact.BOUND:
            return facts.SampleSetBound(sample_set=ref, partitions=_partitions(status))
        case Fact.MOUNTED:
            return facts.SampleSetMounted(sample_set=ref)
        case Fact.SYNCED:
            run = seen.runs.get(status.sync_job) or _remembered(seen, status)
            return facts.SampleSetSynced(sample_set=ref, files=run.files_done, bytes=run.bytes_done)
        case Fact.SYNC_FAILED:
            reason, message = _told(journal, Cond.SYNCED)
            return facts.SampleSetSyncFailed(sample_set=ref, reason=reason, message=message)
        case Fact.WARMED:
            run = seen.runs.get(status.warmup_job) or _remembered(seen, status)
            return facts.SampleSetWarmed(
                sample_set=ref, files=run.files_done, bytes=run.bytes_done, cached_percent=run.cached_percent
            )
        case Fact.READY:
            return _ready(ref, seen.reports, _partitions(status))
        case Fact.DEGRADED:
            reason, message = _told(journal, Cond.READY)
            return facts.SampleSetDegraded(sample_set=ref, reason=reason, message=message)
        case Fact.DELETED:
            return facts.SampleSetDeleted(sample_set=ref)
    return None


def _remembered(seen: ObservedSet, status: SetStatus) -> RunState:
    """What is known of a run whose record the bus has lost: what the set holds now."""
    figures = measure(seen.reports)
    if not figures.total_files:
        return RunState(files_done=count_of(status.cache.get("totalFiles", "")))
    cached = 100.0 * figures.cached_bytes / figures.total_bytes if figures.total_bytes else 100.0
    return RunState(
        files_done=figures.total_files, bytes_done=figures.total_bytes, cached_percent=min(100.0, cached)
    )


def _ready(ref: ObjectRef, reports: tuple[NodeStatus, ...], partitions: int) -> WireModel:
    figures = measure([r for r in reports if r.partition < partitions])
    return facts.SampleSetReady(sample_set=ref, partitions=partitions, figures=figures)


def _partitions(status: SetStatus) -> int:
    return int(status.runtime.get("specReplicas", 0))


def _told(journal: Journal, type_: str) -> tuple[str, str]:
    found = journal.condition(type_)
    return (found.reason, found.message) if found else ("", "")
