"""What `paddlewheel job` asks of a PaddleJob: merge patches, or why there is nothing to ask for. Pure."""

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
    """What to ask for.

    Args:
        said: it in words.
        patch: of the object; {} when it is so already.
    """

    said: str
    patch: Json = field(default_factory=dict)


def phase_of(job: Json) -> str:
    """The phase, "" before job-controller has seen the job."""
    return str(status_of(job).get("phase") or "")


def is_final(job: Json) -> bool:
    """The job has ended, and never runs again."""
    return phase_of(job) in (COMPLETED, FAILED)


def is_suspended(job: Json) -> bool:
    """It is asked to give up its pods."""
    return bool(spec_of(job).get("suspend"))


def scaling(job: Json, workers: int) -> Change:
    """To this number of workers. Raises Permanent for a job that has ended, or that has no workers."""
    _check_goes_on(job)
    role = spec_of(job).get(WORKER)
    if role is None:
        raise Permanent(
            "NoWorkers", f"{key_of(job)} has no workers (spec.worker), so there is nothing to scale"
        )
    before = role.get("replicas", 0)
    if before == workers:
        return Change(f"has {_counted(workers)} already")
    said = f"asked for {_counted(workers)}, {before} before"
    return Change(said, {"spec": {WORKER: {"replicas": workers}}})


def suspension(job: Json) -> Change:
    """To give up its pods. Raises Permanent for a job that has ended."""
    _check_goes_on(job)
    if is_suspended(job):
        return Change("is suspended already")
    said = f"asked to give up its pods; `paddlewheel job resume {key_of(job)}` starts it again"
    return Change(said, {"spec": {"suspend": True}})


def resumption(job: Json) -> Change:
    """To go on. Raises Permanent for a job that has ended."""
    _check_goes_on(job)
    if not is_suspended(job):
        return Change("is not suspended")
    return Change("asked to go on", {"spec": {"suspend": False}})


def restart(job: Json, now: datetime) -> Change:
    """To make all pods anew. Raises Permanent for a job that has ended or is suspended."""
    _check_goes_on(job)
    if is_suspended(job):
        remedy = f"`paddlewheel job resume {key_of(job)}` starts it with new pods"
        raise Permanent("Suspended", f"{key_of(job)} is suspended and has no pods: {remedy}")
    # To the millisecond: a second restart within the same second is another value.
    return Change(
        "asked to make all pods anew", {"metadata": {"annotations": {RESTART: milliseconds_stamp(now)}}}
    )


def _check_goes_on(job: Json) -> None:
    key = key_of(job)
    if is_deleting(job):
        raise Permanent("BeingDeleted", f"{key} is being deleted: `paddlewheel job list` shows what is left")
    if is_final(job):
        never = f"{key} has ended ({phase_of(job)}), and never runs again"
        raise Permanent("Ended", f"{never}: `paddlewheel job delete {key}`, and create it again")


def _counted(workers: int) -> str:
    return f"{workers} worker{'s' * (workers != 1)}"
