"""`spec.ttlSecondsAfterFinished`: a job is deleted some time after its end, as a Job of Kubernetes is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dataset_controller.domain.names import SAMPLE_JOB
from dataset_controller.domain.samplejob.model import ObservedJob
from dataset_controller.domain.samplejob.policies.dependencies import is_awaited
from dataset_controller.domain.samplejob.policies.notice import is_note_awaited
from dataset_controller.timing import SET_NOTICE_CHECK_INTERVAL_SECONDS
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import age
from paddlewheel.operator.domain.plan import Delete, KubernetesEvent


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
    if is_note_awaited(seen, now):
        return Expiry(wake_after=SET_NOTICE_CHECK_INTERVAL_SECONDS)
    event = KubernetesEvent("Normal", Reason.TTL_EXPIRED, f"deleted {ttl} s after its end")
    return Expiry((Delete(SAMPLE_JOB, job.key, job.uid),), (event,))
