"""`spec.ttlSecondsAfterFinished`: a job is deleted some time after its end, as a Job of Kubernetes is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dataset_controller.domain.names import SAMPLE_JOB
from dataset_controller.domain.samplejob.cache_changes import changes_of, mirrored_at
from dataset_controller.domain.samplejob.model import ObservedJob
from dataset_controller.domain.samplejob.policies.dependencies import is_awaited
from dataset_controller.domain.sampleset.policies.conditions import is_mirror_news
from dataset_controller.domain.sampleset.policies.warmth import is_news
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import age
from paddlewheel.operator.domain.plan import Delete, KubernetesEvent

NOTE_SECONDS = 60.0
"""Time that the set gets to take note of what the job has done to its files or its cache: it reads that from
the job. It begins anew with the service, without which no set takes note of anything."""
LOOK_AGAIN_SECONDS = 2.0


@dataclass(frozen=True)
class Expiry:
    """What becomes of a job that has ended. `wake_after`: when to look again, None for never."""

    actions: tuple[Delete, ...] = ()
    events: tuple[KubernetesEvent, ...] = ()
    wake_after: float | None = None


def decide_expiry(seen: ObservedJob, now: datetime) -> Expiry:
    """Delete the job, once its time is over, its set knows what it did, and no job has to see its end."""
    job, ttl = seen.job, seen.job.spec.ttl_seconds_after_finished
    if ttl is None or not seen.status.completed:
        return Expiry()
    since = age(seen.status.completed, now)
    if since < ttl:
        return Expiry(wake_after=ttl - since)
    if is_awaited(job, seen.others.values()):
        return Expiry()
    if min(since, seen.service_age) < NOTE_SECONDS and _is_set_to_take_note(seen):
        return Expiry(wake_after=LOOK_AGAIN_SECONDS)
    event = KubernetesEvent("Normal", Reason.TTL_EXPIRED, f"deleted {ttl} s after its end")
    return Expiry((Delete(SAMPLE_JOB, job.key, job.uid),), (event,))


def _is_set_to_take_note(seen: ObservedJob) -> bool:
    own = seen.sample_set
    if own is None:
        return False
    is_change = any(is_news(change, own.status) for change in changes_of([seen.job]))
    return is_change or is_mirror_news(own.status, mirrored_at([seen.job]))
