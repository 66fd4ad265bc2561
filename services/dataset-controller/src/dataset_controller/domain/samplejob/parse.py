"""From a raw SampleJob to the types of `model.py`."""

from __future__ import annotations

from dataclasses import replace

from dataset_controller.domain.invalid import Invalid, Problem
from dataset_controller.domain.names import JobPhase
from dataset_controller.domain.paths import DEFAULT_PLACES, Places, local_source
from dataset_controller.domain.samplejob.credentials import SYNC, job_source
from dataset_controller.domain.samplejob.model import JobStatus, SampleJob
from dataset_controller.domain.status import parse_common
from dataset_controller.domain.stored import parse_stored
from paddlewheel.contracts.crds import SampleJobSpec, parse_sample_job_spec
from paddlewheel.contracts.objects import (
    Object,
    status_of,
    version_of,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Permanent


def parse_job(obj: Object, places: Places = DEFAULT_PLACES) -> SampleJob:
    """A SampleJob as the API server gives it; never raises."""
    spec, problem = _spec_or_problem(obj)
    job = SampleJob(
        **parse_stored(obj),
        status=parse_status(obj),
        spec=spec,
        problem=problem,
    )
    return replace(job, problem=problem or _problem_of_source(job, places))


def _problem_of_source(job: SampleJob, places: Places) -> Problem | None:
    """Where it may not read from."""
    if job.spec.type != SYNC:
        return None
    try:
        source = job_source(job)
        if source is not None:
            local_source(source.uri, "spec.syncOptions.source", places)
    except Invalid as invalid:
        return invalid.problem
    return None


def _spec_or_problem(obj: Object) -> tuple[SampleJobSpec, Problem | None]:
    try:
        return parse_sample_job_spec(obj), None
    except Permanent as error:
        return SampleJobSpec(), Problem(Reason.INVALID_SPEC, error.message)


def parse_status(obj: Object) -> JobStatus:
    """Read `status`; an unknown phase starts again at the beginning."""
    raw = status_of(obj)
    phase, run_id = str(raw.get("phase") or ""), str(raw.get("jobName") or "")
    is_known = phase in set(JobPhase) and (run_id or phase != JobPhase.PENDING)
    return JobStatus(
        phase=JobPhase(phase) if is_known else JobPhase.NEW,
        run_id=run_id,
        set_name=str(raw.get("sampleSetName") or "") if run_id else "",
        set_uid=str(raw.get("sampleSetUid") or "") if run_id else "",
        type=str(raw.get("type") or "") if run_id else "",
        request_digest=str(raw.get("requestDigest") or "") if run_id else "",
        creation_version=str(raw.get("creationVersion") or "") if raw else version_of(obj),
        progress=dict(raw.get("progress") or {}),
        cancels_since=str(raw.get("cancellationTime") or ""),
        cancelled_runs=tuple(map(str, raw.get("cancelledRuns") or ())),
        started=str(raw.get("startTime") or ""),
        completed=str(raw.get("completionTime") or ""),
        **parse_common(raw),
    )
