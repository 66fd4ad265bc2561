"""Deleting a SampleJob: its run is cancelled, its records go, that is told, and then the object goes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from dataset_controller.domain.actions import CancelRun, ForgetRun, Patch
from dataset_controller.domain.names import Fact, job_finalizer
from dataset_controller.domain.objects import deleted_at, uid_of, version_of
from dataset_controller.domain.runs import is_ended
from dataset_controller.domain.samplejob.model import JobPlan, ObservedJob
from dataset_controller.domain.text import age
from paddlewheel.contracts.run_keys import RunKey

CANCEL_SECONDS = 30.0
"""How long the agents may take to stop; without agents nobody says so."""
BUS_SECONDS = 600.0
"""How long the bus is waited for before the object goes without it."""
LOOK_AGAIN_SECONDS = 2.0


def plan_deletion(seen: ObservedJob, now: datetime) -> JobPlan:
    """Cancel, wait, forget, tell, release."""
    finalizer = job_finalizer(seen.key.name)
    finalizers = seen.obj["metadata"].get("finalizers") or ()
    if finalizer not in finalizers:
        return JobPlan()
    since = age(deleted_at(seen.obj), now)
    runs = _runs(seen)
    is_running = seen.state is not None and not is_ended(seen.state)
    if is_running and runs and since < CANCEL_SECONDS:
        return JobPlan(tuple(CancelRun(run) for run in runs), requeue_after=LOOK_AGAIN_SECONDS)
    kept = [f for f in finalizers if f != finalizer]
    patch = {"metadata": {"finalizers": kept, "resourceVersion": version_of(seen.obj)}}
    return JobPlan(
        actions=tuple(ForgetRun(run) for run in runs),
        status=replace(seen.status, journal=seen.status.journal.declare(Fact.JOB_DELETED, now)),
        release=Patch("SampleJob", seen.key, patch),
        release_anyway=since > BUS_SECONDS,
        requeue_after=LOOK_AGAIN_SECONDS,
    )


def _runs(seen: ObservedJob) -> tuple[RunKey, ...]:
    """The run's records, also of a set that was replaced by one of the same name."""
    run = seen.status.run_id
    if not run:
        return ()
    present = (RunKey(uid_of(seen.sample_set), run),) if seen.sample_set else ()
    return tuple(dict.fromkeys((*seen.recorded, *present)))
