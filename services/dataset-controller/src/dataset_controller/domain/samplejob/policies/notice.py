"""Whether the set has still to take note of what a job has done to its files or its cache: it reads that from
the job, which is kept until then."""

from __future__ import annotations

from datetime import datetime

from dataset_controller.domain.names import Cond
from dataset_controller.domain.samplejob.cache_changes import changes_of, mirrored_at
from dataset_controller.domain.samplejob.model import ObservedJob
from dataset_controller.domain.sampleset.model import SampleSet
from dataset_controller.domain.sampleset.policies.conditions import is_mirror_news
from dataset_controller.domain.sampleset.policies.warmth import is_news
from dataset_controller.timing import SET_NOTICE_TIMEOUT_SECONDS
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import age


def is_note_awaited(seen: ObservedJob, now: datetime) -> bool:
    """Of a job that has ended: its set takes note of it within a minute, unless it is gone or not served."""
    since = age(seen.status.completed, now)
    own = seen.sample_set
    return (
        min(since, seen.service_age) < SET_NOTICE_TIMEOUT_SECONDS
        and own is not None
        and _has_to_note(seen, own)
    )


def _has_to_note(seen: ObservedJob, own: SampleSet) -> bool:
    is_served = own.status.reason_of(Cond.ACCEPTED) != Reason.NAMESPACE_NOT_SERVED
    if own.deleted_at or seen.status.set_uid not in ("", own.uid) or not is_served:
        return False
    is_change = _says_warmed(own) and any(is_news(change, own.status) for change in changes_of([seen.job]))
    return is_change or is_mirror_news(own.status, mirrored_at([seen.job]))


def _says_warmed(own: SampleSet) -> bool:
    return own.spec is None or own.spec.warmup is not None
