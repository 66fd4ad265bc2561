"""What SampleJobs have done to the cache of their set, and to what it holds."""

from __future__ import annotations

from collections.abc import Iterable

from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.names import ENDED, Cond, JobPhase
from dataset_controller.domain.operations import warmup_operation
from dataset_controller.domain.samplejob.model import JobStatus, SampleJob
from dataset_controller.domain.samplejob.uses import DATA, ROOT
from dataset_controller.domain.sampleset.model import CacheChange, CacheMark
from paddlewheel.contracts.crds import WarmupOptions
from paddlewheel.contracts.generated.cache_v1 import WarmupOperation
from paddlewheel.contracts.generated.datasets_v1 import (
    SampleJobFailed,
    SampleJobStarted,
    SampleJobSucceeded,
)
from paddlewheel.contracts.reasons import Reason

_BEGIN_FACTS = (SampleJobStarted.__name__,)
_END_FACTS = (SampleJobSucceeded.__name__, SampleJobFailed.__name__)


def changes_of(jobs: Iterable[SampleJob]) -> tuple[CacheChange, ...]:
    """By those that have ended, the oldest first."""
    changes = (change for job in jobs if (change := _change(job)) is not None)
    return tuple(sorted(changes, key=lambda change: change.mark))


def mirrored_at(jobs: Iterable[SampleJob]) -> str:
    """When the last sync began that has left nothing in the set but what the set's source has, "" without
    one."""
    return max((job.status.started for job in jobs if _has_mirrored(job)), default="")


def _has_mirrored(job: SampleJob) -> bool:
    options = job.spec.sync_options
    if options is None or job.type != "sync" or job.status.phase is not JobPhase.SUCCEEDED:
        return False
    is_filtered = bool(options.include or options.exclude or options.start or options.end)
    is_whole = not is_filtered and not options.source and _paths(job) == {ROOT}
    return options.delete_dst and not options.dry and is_whole


def _change(job: SampleJob) -> CacheChange | None:
    """A clear that has failed may have emptied some caches, unless it never ran, and a sync may have copied
    some files; a warmup that has failed has not filled the caches."""
    phase, mark = job.status.phase, CacheMark(_ended_at(job.status), job.key.name)
    if job.type == "clear" and phase in ENDED and job.status.started:
        return CacheChange(mark, Reason.CACHE_CLEARED)
    if job.type == "sync" and phase in ENDED and _has_copied(job.status):
        return CacheChange(mark, Reason.DATA_CHANGED, _paths(job) or frozenset([ROOT]))
    if job.type == "warmup" and phase is JobPhase.SUCCEEDED:
        return _warmed(job, mark)
    return None


def _warmed(job: SampleJob, mark: CacheMark) -> CacheChange:
    is_partly = job.status.reason_of(Cond.COMPLETE) == Reason.PARTLY_CACHED
    reason = Reason.PARTLY_CACHED if is_partly else Reason.WARMED
    operation = _warmup(job)
    return CacheChange(
        mark,
        reason,
        paths=_paths(job) if operation else frozenset(),
        file=operation.file if operation else "",
        sampler=operation.sampler if operation else None,
        bytes=int(job.status.progress.get("bytesDone") or 0),
        since=_began_at(job.status),
    )


def _warmup(job: SampleJob) -> WarmupOperation | None:
    """None when the options are not those of the run any more."""
    try:
        return warmup_operation(job.spec.warmup_options or WarmupOptions())
    except Invalid:
        return None


def _has_copied(status: JobStatus) -> bool:
    """Agents of older releases do not say what they have left as it was."""
    done, kept = (int(status.progress.get(name) or 0) for name in ("filesDone", "filesKept"))
    return done > kept


def _paths(job: SampleJob) -> frozenset[str]:
    """None when the options are not those of the run any more."""
    return frozenset(() if job.is_other_work else (use.path for use in job.uses if use.of == DATA))


def _began_at(status: JobStatus) -> str:
    return _last_of(status, _BEGIN_FACTS) or status.started


def _ended_at(status: JobStatus) -> str:
    return _last_of(status, _END_FACTS) or status.completed


def _last_of(status: JobStatus, facts: tuple[str, ...]) -> str:
    """To the millisecond: of small sets, a clear and the warmup after it end within a second."""
    return max((fact.at for fact in status.announcements if fact.fact in facts), default="")
