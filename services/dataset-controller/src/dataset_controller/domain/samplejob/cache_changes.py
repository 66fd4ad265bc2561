"""What SampleJobs have done to the cache of their set."""

from __future__ import annotations

from collections.abc import Iterable

from dataset_controller.domain.names import ENDED, Cond, JobPhase
from dataset_controller.domain.samplejob.model import JobStatus, SampleJob
from dataset_controller.domain.sampleset.model import CacheChange, CacheMark
from paddlewheel.contracts.generated.datasets_v1 import SampleJobFailed, SampleJobSucceeded
from paddlewheel.contracts.reasons import Reason

_END_FACTS = (SampleJobSucceeded.__name__, SampleJobFailed.__name__)


def last_change(jobs: Iterable[SampleJob]) -> CacheChange | None:
    """Of the set's jobs that have ended, the last to change its cache."""
    changes = (change for job in jobs if (change := _change(job)) is not None)
    return max(changes, key=lambda change: change.mark, default=None)


def _change(job: SampleJob) -> CacheChange | None:
    """A clear that has failed may have emptied some caches, unless it never ran; a warmup that has failed has
    not filled them."""
    phase, mark = job.status.phase, CacheMark(_ended_at(job.status), job.key.name)
    if job.type == "clear" and phase in ENDED and job.status.started:
        return CacheChange(mark, Reason.CACHE_CLEARED)
    if job.type == "warmup" and phase is JobPhase.SUCCEEDED:
        complete = job.status.condition(Cond.COMPLETE)
        is_partly = complete is not None and complete.reason == Reason.PARTLY_CACHED
        return CacheChange(mark, Reason.PARTLY_CACHED if is_partly else Reason.WARMED)
    return None


def _ended_at(status: JobStatus) -> str:
    """To the millisecond: of small sets, a clear and the warmup after it end within a second."""
    ends = (fact.at for fact in status.announcements if fact.fact in _END_FACTS)
    return max(ends, default=status.completed)
