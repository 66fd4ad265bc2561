"""What SampleJobs have done to the cache of their set."""

from __future__ import annotations

from collections.abc import Iterable

from dataset_controller.domain.names import Cond, JobPhase
from dataset_controller.domain.samplejob.model import SampleJob
from dataset_controller.domain.sampleset.model import CacheChange
from paddlewheel.contracts.reasons import Reason

_ENDED = (JobPhase.SUCCEEDED, JobPhase.FAILED)


def last_change(jobs: Iterable[SampleJob]) -> CacheChange | None:
    """Of the set's jobs that have ended, the last to change its cache."""
    changes = (change for job in jobs if (change := _change(job)) is not None)
    return max(changes, key=lambda change: (change.at, change.job), default=None)


def _change(job: SampleJob) -> CacheChange | None:
    """A clear that has failed may have emptied some caches; a warmup that has failed has not filled them."""
    phase, at = job.status.phase, job.status.completed
    if job.spec.type == "clear" and phase in _ENDED:
        return CacheChange(at, job.key.name, Reason.CACHE_CLEARED)
    if job.spec.type == "warmup" and phase is JobPhase.SUCCEEDED:
        complete = job.status.condition(Cond.COMPLETE)
        is_partly = complete is not None and complete.reason == Reason.PARTLY_CACHED
        return CacheChange(at, job.key.name, Reason.PARTLY_CACHED if is_partly else Reason.WARMED)
    return None
