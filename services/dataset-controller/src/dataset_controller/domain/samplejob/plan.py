"""The plan for one SampleJob: pure, from what was observed to what shall be. Start reading here."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from dataset_controller.domain.actions import ForgetRun, Notice, Patch, WriteRun
from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.journal import notices_of
from dataset_controller.domain.names import Cond, Fact, JobPhase, Reason, job_finalizer
from dataset_controller.domain.objects import deleted_at, key_of, spec_of, status_of, uid_of, version_of
from dataset_controller.domain.operations import unused_sync_options
from dataset_controller.domain.runs import SetIdentity, is_ended, make_run
from dataset_controller.domain.samplejob.model import JobPlan, JobStatus, ObservedJob, progress_of
from dataset_controller.domain.samplejob.policies.deletion import plan_deletion
from dataset_controller.domain.samplejob.policies.termination import decide_termination
from dataset_controller.domain.samplejob.request import Request, is_set_prepared, read_request
from dataset_controller.domain.text import stamp
from paddlewheel.contracts.crds.operations import WORDS, operation_for_word
from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunState

RECHECK_SECONDS = 30.0
"""How often something that the user must mend is looked at without being told of a change."""
RUN_SECONDS = 15.0
"""How often the record of an unfinished run is made sure of."""
PROGRESS_SECONDS = 2.0
"""The least time between two writes of progress."""


def plan(seen: ObservedJob, now: datetime) -> JobPlan:
    """What to do about the job now."""
    if deleted_at(seen.obj):
        return plan_deletion(seen, now)
    if job_finalizer(seen.key.name) not in (seen.obj["metadata"].get("finalizers") or ()):
        return JobPlan(actions=(_hold(seen),))
    match seen.status.phase:
        case JobPhase.SUCCEEDED:
            return _rest(seen)
        case JobPhase.PENDING | JobPhase.RUNNING:
            return _follow(seen, now)
        case JobPhase.FAILED:
            return _look_for_changes(seen, now)
    return _begin(seen, now)


def _hold(seen: ObservedJob) -> Patch:
    """The finalizer goes on before anything runs."""
    finalizers = [*(seen.obj["metadata"].get("finalizers") or ()), job_finalizer(seen.key.name)]
    metadata = {"finalizers": finalizers, "resourceVersion": version_of(seen.obj)}
    return Patch("SampleJob", seen.key, {"metadata": metadata})


def _begin(seen: ObservedJob, now: datetime) -> JobPlan:
    """Check, wait for the set, end the others if asked to, and put the run's id into the status."""
    before = seen.status
    try:
        request = read_request(seen)
    except Invalid as problem:
        return _refuse(before, problem, now)
    journal = before.journal.note(Cond.ACCEPTED, True, Reason.ACCEPTED, _remark(seen), now)
    if not is_set_prepared(seen):
        journal = journal.note(Cond.STARTED, False, Reason.WAITING_FOR_SET, _waiting(seen), now)
        return JobPlan(status=replace(before, journal=journal))
    others = decide_termination(seen, journal, now)
    if not others.may_begin:
        return JobPlan(
            others.actions, replace(before, journal=others.journal), requeue_after=others.wake_after
        )
    run = request.run_id(seen.uid, _attempt(before))
    journal = others.journal.note(Cond.STARTED, False, "Pending", "", now)
    after = JobStatus(phase=JobPhase.PENDING, run_id=run, journal=journal)
    told = Notice("Normal", f"Create{_word(seen)}Successfully", f"run {run} is handed to the runtime")
    return JobPlan(status=after, notices=(told,))


def _refuse(before: JobStatus, problem: Invalid, now: datetime) -> JobPlan:
    journal = before.journal.note(Cond.ACCEPTED, False, problem.reason, problem.message, now)
    return JobPlan(
        status=replace(before, journal=journal),
        notices=notices_of(before.journal, journal),
        requeue_after=RECHECK_SECONDS,
    )


def _remark(seen: ObservedJob) -> str:
    unused = unused_sync_options(spec_of(seen.obj).get("syncOptions") or {}) if seen.type == "sync" else []
    return f"without effect: {', '.join(unused)} (the runtime spreads the work itself)" if unused else ""


def _waiting(seen: ObservedJob) -> str:
    phase = str(status_of(seen.sample_set or {}).get("phase") or "")
    return f"SampleSet {seen.set_name} is in phase {phase!r}"


def _attempt(status: JobStatus) -> int:
    """Counts finished failures, so that a new run never bears an old one's id."""
    return status.journal.attempt(Fact.JOB_FAILED) + 1


def _follow(seen: ObservedJob, now: datetime) -> JobPlan:
    """A run is under way: see that its record stands, tell how far it is, notice its end."""
    state = seen.state
    if state is not None and is_ended(state):
        return _end(seen, state, now)
    if seen.sample_set is None:
        return _fail(seen, RunState(), Reason.SET_NOT_EXIST, f"SampleSet {seen.set_name} is gone", now)
    record = _record(seen, now)
    after = seen.status if state is None else _running(seen, state, now)
    return JobPlan((record,) if record else (), after, requeue_after=RUN_SECONDS)


def _record(seen: ObservedJob, now: datetime) -> WriteRun | None:
    """The run's record; writing it again changes nothing, also after the job was edited."""
    try:
        request = read_request(seen)
    except Invalid:
        return None
    if seen.sample_set is None:
        return None
    run, key = seen.status.run_id, key_of(seen.sample_set)
    owner = SetIdentity(key.namespace, key.name, uid_of(seen.sample_set))
    return WriteRun(make_run(owner, run, request.partitions, request.for_run(run), now))


def _running(seen: ObservedJob, state: RunState, now: datetime) -> JobStatus:
    before = seen.status
    journal = before.journal.note(Cond.STARTED, True, "Running", "", now)
    journal = journal.declare(Fact.JOB_STARTED, now, _attempt(before))
    is_early = before.phase is JobPhase.RUNNING and not seen.progress_due
    return replace(
        before,
        phase=JobPhase.RUNNING,
        started=before.started or stamp(now),
        progress=before.progress if is_early else progress_of(state),
        journal=journal,
    )


def _end(seen: ObservedJob, state: RunState, now: datetime) -> JobPlan:
    if state.phase is RunPhase.CANCELLED:
        return _fail(seen, state, Reason.CANCELLED, state.message or "the run was cancelled", now)
    if state.phase is not RunPhase.SUCCEEDED:
        return _fail(seen, state, state.reason or f"ErrorDo{_word(seen)}", state.message, now)
    after = _over(seen, state, JobPhase.SUCCEEDED, now)
    journal = after.journal.note(Cond.COMPLETE, True, "Succeeded", "", now)
    journal = journal.declare(Fact.JOB_SUCCEEDED, now, _attempt(seen.status))
    amount = f"{state.files_done} files, {state.bytes_done} bytes"
    told = Notice("Normal", f"Do{_word(seen)}Successfully", amount)
    return JobPlan(status=replace(after, journal=journal), notices=(told,))


def _fail(seen: ObservedJob, state: RunState, reason: str, message: str, now: datetime) -> JobPlan:
    attempt = _attempt(seen.status)
    after = _over(seen, state, JobPhase.FAILED, now)
    journal = after.journal.note(Cond.COMPLETE, False, reason, message, now)
    journal = journal.declare(Fact.JOB_FAILED, now, attempt)
    return JobPlan(
        status=replace(after, journal=journal), notices=(Notice("Warning", f"ErrorDo{_word(seen)}", message),)
    )


def _over(seen: ObservedJob, state: RunState, phase: JobPhase, now: datetime) -> JobStatus:
    running = _running(seen, state, now)
    return replace(running, phase=phase, completed=stamp(now), progress=progress_of(state))


def _word(seen: ObservedJob) -> str:
    """`Job` when the type is unknown."""
    return operation_for_word(seen.type).event_word if seen.type in WORDS else "Job"


def _look_for_changes(seen: ObservedJob, now: datetime) -> JobPlan:
    """A failed job begins anew, under a new id, when its options are not those that failed."""
    before = seen.status
    try:
        request = read_request(seen)
    except Invalid:
        return JobPlan(status=before)
    if before.run_id == _last_id(seen, request):
        return JobPlan(status=before)
    forget = tuple(ForgetRun(run) for run in seen.recorded)
    journal = before.journal.note(Cond.STARTED, False, "OptionsChanged", "", now)
    kept = tuple(c for c in journal.conditions if c.type not in (Cond.COMPLETE, Cond.OTHERS_CANCELLED))
    return JobPlan(forget, JobStatus(journal=replace(journal, conditions=kept)))


def _last_id(seen: ObservedJob, request: Request) -> str:
    return request.run_id(seen.uid, _attempt(seen.status) - 1)


def _rest(seen: ObservedJob) -> JobPlan:
    """Succeeded is final; somebody who edits the job is told so once for each edit."""
    before = seen.status
    if status_of(seen.obj).get("observedGeneration") == before.journal.observed_generation:
        return JobPlan(status=before)
    told = Notice("Warning", Reason.EDITS_IGNORED, "the job has succeeded; a new run needs a new SampleJob")
    return JobPlan(status=before, notices=(told,))
