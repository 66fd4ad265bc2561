"""Changes of a PaddleJob as merge patches, or the reason why there is nothing to change. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from paddlewheel.contracts.crds import WORKER
from paddlewheel.contracts.job_names import RESTART
from paddlewheel.contracts.objects import is_deleting, key_of, spec_of, status_of
from paddlewheel.contracts.stamps import milliseconds_stamp
from paddlewheel.core.errors import Permanent

COMPLETED, FAILED, RUNNING = "Completed", "Failed", "Running"

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """A change of a job.

    Attributes:
        summary: a sentence about the change.
        patch: merge patch of the object; {} when there is nothing to change.
    """

    summary: str
    patch: Json = field(default_factory=dict)


def phase_of(job: Json) -> str:
    """The phase, "" before job-controller has seen the job."""
    return str(status_of(job).get("phase") or "")


def is_final(job: Json) -> bool:
    """True when the job has ended; it never runs again."""
    return phase_of(job) in (COMPLETED, FAILED)


def is_suspended(job: Json) -> bool:
    """True when the spec suspends the job."""
    return bool(spec_of(job).get("suspend"))


def scaling(job: Json, workers: int) -> Change:
    """Change the number of workers. Raises Permanent for a job that has ended or has no workers."""
    _check_active(job)
    role = spec_of(job).get(WORKER)
    if role is None:
        raise Permanent("NoWorkers", f"{key_of(job)} has no workers (spec.worker), so it cannot be scaled")
    before = role.get("replicas", 0)
    if before == workers:
        return Change(f"has {_counted(workers)} already")
    summary = f"{_counted(workers)} requested, {before} before"
    return Change(summary, {"spec": {WORKER: {"replicas": workers}}})


def suspension(job: Json) -> Change:
    """Suspend a job. Raises Permanent for a job that has ended."""
    _check_active(job)
    if is_suspended(job):
        return Change("is suspended already")
    summary = f"suspension requested; `paddlewheel job resume {key_of(job)}` starts it again"
    return Change(summary, {"spec": {"suspend": True}})


def resumption(job: Json) -> Change:
    """Resume a job. Raises Permanent for a job that has ended."""
    _check_active(job)
    if not is_suspended(job):
        return Change("is not suspended")
    return Change("resumption requested", {"spec": {"suspend": False}})


def restart(job: Json, now: datetime) -> Change:
    """Replace all pods. Raises Permanent for a job that has ended or is suspended."""
    _check_active(job)
    if is_suspended(job):
        advice = f"`paddlewheel job resume {key_of(job)}` starts it with new pods"
        raise Permanent("Suspended", f"{key_of(job)} is suspended and has no pods: {advice}")
    # Milliseconds: a second restart within the same second needs another value.
    return Change(
        "replacement of all pods requested", {"metadata": {"annotations": {RESTART: milliseconds_stamp(now)}}}
    )


def _check_active(job: Json) -> None:
    key = key_of(job)
    if is_deleting(job):
        raise Permanent(
            "BeingDeleted", f"{key} is being deleted: `paddlewheel job list` shows whether it still exists"
        )
    if is_final(job):
        ended = f"{key} has ended ({phase_of(job)}) and cannot run again"
        raise Permanent("Ended", f"{ended}: run `paddlewheel job delete {key}`, and create it again")


def _counted(workers: int) -> str:
    return f"{workers} worker{'s' * (workers != 1)}"
