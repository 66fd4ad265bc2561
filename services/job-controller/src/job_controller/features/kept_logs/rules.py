"""The choice of the pods whose last lines are kept when a finished job's pods are deleted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from job_controller.core.clean_up import pods_to_delete
from job_controller.core.job import Job
from job_controller.core.model import Observed
from job_controller.core.pods import Pod
from job_controller.timing import KEPT_LOGS_TIMEOUT_SECONDS
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.operator.domain.plan import shorten

LINES = 200
BYTES = 8 * 1024
"""Kept of each pod at most."""
PODS = 8
"""With `BYTES` this is what a finished job takes up in etcd, 64 KiB."""
_CUT = "[...]\n"
_NEVER = datetime.max.replace(tzinfo=UTC)


def pods_to_read(seen: Observed) -> tuple[Pod, ...]:
    """The first failures, then rank 0 of each role, then the other pods."""
    pods = pods_to_delete(seen) if seen.job.status.final else ()
    return tuple(sorted(pods, key=_importance)[:PODS])


def _importance(pod: Pod) -> tuple[object, ...]:
    """A program that has failed beside a sidecar counts here at once: its pod is still running."""
    failure = pod.failure or (pod.program_end.failure if pod.program_end else None)
    failed = (1,) if failure is None else (0, pod.ended_at or _NEVER, pod.name)
    return failed, pod.id.ordinal > 0, pod.id


def is_patience_over(job: Job, now: datetime) -> bool:
    """The pods are deleted though their logs could not be kept."""
    ended = parse_stamp(job.status.completion_time)
    return ended is None or now >= ended + timedelta(seconds=KEPT_LOGS_TIMEOUT_SECONDS)


def kept(logs: Mapping[str, str]) -> dict[str, str]:
    """The data of the ConfigMap, from the end of each pod's log; pods that wrote nothing are left out."""
    return {pod: _end_of(text) for pod, text in logs.items() if text}


def not_read(why: str) -> str:
    """Kept in place of a log."""
    return f"[not read: {shorten(' '.join(why.split()))}]\n"


def _end_of(text: str) -> str:
    raw = text.encode()
    if len(raw) <= BYTES:
        return text
    tail = raw[len(_CUT) - BYTES :]
    whole_lines = tail.partition(b"\n")[2] or tail
    return _CUT + whole_lines.decode(errors="ignore")
