"""What the facts of a SampleJob say."""

from __future__ import annotations

from dataset_controller.domain.names import Cond, Fact
from dataset_controller.domain.objects import generation_of, version_of
from dataset_controller.domain.samplejob.model import JobStatus, ObservedJob
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.generated import datasets_v1 as facts
from paddlewheel.contracts.generated.cache_v1 import RunState
from paddlewheel.contracts.generated.common_v1 import ObjectRef


def job_fact(fact: str, seen: ObservedJob, status: JobStatus) -> WireModel | None:
    """The message of a fact, told with what is known now; None when it is no fact of a SampleJob."""
    ref = ObjectRef(
        namespace=seen.key.namespace,
        name=seen.key.name,
        uid=seen.uid,
        generation=generation_of(seen.obj),
        resource_version=version_of(seen.obj),
    )
    state = seen.runs.get(status.run_id) or _remembered(status)
    run, of_set, kind = status.run_id, seen.set_name, seen.type
    match fact:
        case Fact.JOB_STARTED:
            return facts.SampleJobStarted(sample_job=ref, sample_set=of_set, type=kind, run_id=run)
        case Fact.JOB_SUCCEEDED:
            return facts.SampleJobSucceeded(
                sample_job=ref,
                sample_set=of_set,
                type=kind,
                run_id=run,
                files=state.files_done,
                bytes=state.bytes_done,
                cached_percent=state.cached_percent,
            )
        case Fact.JOB_FAILED:
            found = status.journal.condition(Cond.COMPLETE)
            reason, message = (found.reason, found.message) if found else ("", "")
            return facts.SampleJobFailed(
                sample_job=ref, sample_set=of_set, type=kind, run_id=run, reason=reason, message=message
            )
        case Fact.JOB_DELETED:
            return facts.SampleJobDeleted(sample_job=ref, sample_set=of_set, type=kind, run_id=run)
    return None


def _remembered(status: JobStatus) -> RunState:
    """What the status keeps of a run whose record the bus has lost."""
    progress = status.progress
    return RunState(
        files_done=int(progress.get("filesDone", 0)),
        bytes_done=int(progress.get("bytesDone", 0)),
        cached_percent=float(progress.get("cachedPercent", 0)),
    )
