"""`spec.ttlSecondsAfterFinished`: a job is deleted some time after its end, as a Job of Kubernetes is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from dataset_controller.domain.samplejob.model import ObservedJob, SampleJob
from dataset_controller.domain.samplejob.policies.dependencies import is_awaited
from dataset_controller.domain.samplejob.policies.notice import is_note_awaited
from dataset_controller.timing import SET_NOTICE_CHECK_INTERVAL_SECONDS
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import age, parse_stamp
from paddlewheel.operator.domain.plan import KubernetesEvent


@dataclass(frozen=True)
class Expiry:
    """The decision about a job that has ended.

    Args:
        event: the job is deleted, with this Kubernetes Event. None keeps it.
        wake_after: seconds until the next decision. None waits for a change.
    """

    event: KubernetesEvent | None = None
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
    return Expiry(KubernetesEvent("Normal", Reason.TTL_EXPIRED, f"deleted {ttl} s after its end"))


def expires_at(job: SampleJob) -> datetime | None:
    """When the time to live of a job that has ended is over. None without one."""
    seconds, ended = job.spec.ttl_seconds_after_finished, parse_stamp(job.status.completed)
    return None if seconds is None or ended is None else ended + timedelta(seconds=seconds)
