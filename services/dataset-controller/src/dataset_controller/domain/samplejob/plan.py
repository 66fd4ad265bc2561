"""The plan for one SampleJob: pure, from what is observed to what is to be done. Start reading here."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from dataset_controller.domain.actions import CancelRun, ForgetRun, RecordAction, WriteRun
from dataset_controller.domain.events import refusal_events
from dataset_controller.domain.invalid import Invalid, Problem
from dataset_controller.domain.limits import MESSAGE_MAX
from dataset_controller.domain.names import Cond, JobPhase, job_finalizer
from dataset_controller.domain.operations import unused_sync_options
from dataset_controller.domain.runs import is_ended, make_run
from dataset_controller.domain.samplejob.credentials import SYNC, problem_of_keys, unread_keys_of
from dataset_controller.domain.samplejob.model import JobPlan, JobStatus, ObservedJob
from dataset_controller.domain.samplejob.policies.deletion import plan_deletion
from dataset_controller.domain.samplejob.policies.dependencies import decide_dependencies
from dataset_controller.domain.samplejob.policies.expiry import decide_expiry
from dataset_controller.domain.samplejob.policies.termination import (
    cancelled_by,
    cancels_left,
    decide_termination,
    has_more_to_cancel,
    without_ended,
)
from dataset_controller.domain.samplejob.policies.turns import decide_turn
from dataset_controller.domain.samplejob.request import Request, is_prepared_for, read_request
from dataset_controller.domain.samplejob.status import (
    end_of,
    ended_status,
    present_status,
    progress_of,
    running_status,
    unstarted_status,
    with_run,
)
from dataset_controller.timing import (
    CORRECTION_CHECK_INTERVAL_SECONDS,
    KNOWN_RUNS_CHECK_INTERVAL_SECONDS,
    PROGRESS_WRITE_INTERVAL_SECONDS,
    RUN_CHECK_INTERVAL_SECONDS,
    RUN_RECORD_GRACE_SECONDS,
)
from paddlewheel.contracts.generated.cache_v1 import RunState
from paddlewheel.contracts.generated.datasets_v1 import SampleJobFailed
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import AT_ONCE, KubernetesEvent, earliest

RUN_AGAIN = "to run it again, edit its options or create it anew"


def plan(seen: ObservedJob, now: datetime) -> JobPlan:
    """What to do about the job now."""
    job = seen.job
    if job.deleted_at:
        return plan_deletion(seen, now)
    finalizer = job_finalizer(job.key.name)
    metadata = None if finalizer in job.finalizers else {"finalizers": [*job.finalizers, finalizer]}
    seen = without_ended(seen)
    todo = _plan_live(seen, now)
    again = AT_ONCE if has_more_to_cancel(seen, todo.status) else todo.requeue_after
    actions = (*cancels_left(seen, todo.status), *todo.actions)
    return replace(todo, metadata=metadata, actions=actions, requeue_after=again)


def _plan_live(seen: ObservedJob, now: datetime) -> JobPlan:
    match seen.status.phase:
        case JobPhase.SUCCEEDED:
            return _expire(seen, _rest(seen), now)
        case JobPhase.PENDING | JobPhase.RUNNING:
            return _follow(seen, now)
        case JobPhase.FAILED:
            return _look_for_changes(seen, now)
    return _begin(seen, now)


def _begin(seen: ObservedJob, now: datetime) -> JobPlan:
    """Check, wait for other jobs, the set and the job's turn or end the others, and record the run's id."""
    try:
        request = read_request(seen)
    except Invalid as invalid:
        return _refuse(seen, invalid.problem, now)
    status = present_status(seen).with_condition(Cond.ACCEPTED, True, Reason.ACCEPTED, _remark(seen), now)
    if (by := cancelled_by(seen)) is not None:
        message = _with_remedy(_cancelled(by))
        return _fail_unstarted(seen, _next_run(seen, request), Reason.CANCELLED, message, now)
    wait = decide_dependencies(seen, now)
    if wait.is_in_vain:
        run = _next_run(seen, request)
        return _fail_unstarted(seen, run, Reason.DEPENDENCY_FAILED, wait.message, now)
    if wait.message:
        status = status.with_condition(Cond.STARTED, False, Reason.WAITING_FOR_JOBS, wait.message, now)
        return JobPlan(status, requeue_after=wait.wake_after)
    if not is_prepared_for(seen.sample_set, seen.job.spec.type):
        return JobPlan(
            status.with_condition(Cond.STARTED, False, Reason.WAITING_FOR_SAMPLE_SET, _waiting(seen), now)
        )
    if not seen.are_records_known:
        message = "waits for the bus: which runs there are is not known yet"
        status = status.with_condition(Cond.STARTED, False, Reason.WAITING_FOR_TURN, message, now)
        return JobPlan(status, requeue_after=KNOWN_RUNS_CHECK_INTERVAL_SECONDS)
    others = decide_termination(seen, status, now)
    if not others.may_start:
        return JobPlan(others.status, requeue_after=others.wake_after)
    turn = decide_turn(seen, others.status.cancelled_runs)
    if turn.message:
        status = others.status.with_condition(Cond.STARTED, False, Reason.WAITING_FOR_TURN, turn.message, now)
        return JobPlan(status, requeue_after=turn.wake_after)
    run = _next_run(seen, request)
    status = others.status.with_condition(Cond.STARTED, False, Reason.RUN_REQUESTED, "", now)
    event = KubernetesEvent("Normal", Reason.RUN_REQUESTED, f"requested {seen.job.spec.type} as run {run}")
    return JobPlan(with_run(seen, status, run), events=(event,), requeue_after=AT_ONCE)


def _next_run(seen: ObservedJob, request: Request) -> str:
    return request.run_id(seen.job.uid, seen.status.attempt(SampleJobFailed) + 1)


def _fail_unstarted(seen: ObservedJob, run: str, reason: Reason, message: str, now: datetime) -> JobPlan:
    status = unstarted_status(seen, run, reason, message, now)
    event = KubernetesEvent("Warning", reason, message)
    return JobPlan(status, events=(event,), requeue_after=seen.job.spec.ttl_seconds_after_finished)


def _cancelled(by: str) -> str:
    return f"SampleJob {by}, which has spec.terminate, has cancelled it"


def _refuse(seen: ObservedJob, problem: Problem, now: datetime) -> JobPlan:
    status = present_status(seen)
    status = status.with_condition(Cond.ACCEPTED, False, problem.reason, problem.message, now)
    return JobPlan(
        status, events=refusal_events(seen.status, status), requeue_after=CORRECTION_CHECK_INTERVAL_SECONDS
    )


def _fail_untaken(seen: ObservedJob, message: str, now: datetime) -> JobPlan:
    """Cancelled, and the bus has no state of the run: nobody is to take it, or to begin it again. One that is
    taken all the same, as after an outage, leaves the bus as those of all jobs that have ended."""
    if seen.status.phase is JobPhase.RUNNING:
        todo = _fail(seen, None, Reason.CANCELLED, message, now)
    else:
        todo = _fail_unstarted(seen, seen.status.run_id, Reason.CANCELLED, _with_remedy(message), now)
    return replace(todo, actions=_own_forget(seen))


def _own_forget(seen: ObservedJob) -> tuple[ForgetRun, ...]:
    """Also of a run that no agent has written a state of."""
    return (ForgetRun(seen.sample_set.run_key(seen.status.run_id)),) if seen.sample_set else ()


def _remark(seen: ObservedJob) -> str:
    options = seen.job.spec.sync_options if seen.job.spec.type == SYNC else None
    unused = unused_sync_options(options) if options else []
    options_note = f"without effect: {', '.join(unused)} (the runtime distributes the work itself)"
    spec = seen.sample_set.spec if seen.sample_set else None
    keys_note = unread_keys_of(seen.job, seen.secret, spec.source if spec else None)
    return "; ".join(filter(None, (options_note if unused else "", keys_note)))


def _waiting(seen: ObservedJob) -> str:
    if seen.sample_set is not None and seen.sample_set.deleted_at:
        return f"SampleSet {seen.job.set_name} is being deleted"
    phase = seen.sample_set.status.phase.value if seen.sample_set else ""
    return f"SampleSet {seen.job.set_name} is in phase {phase!r}"


def _follow(seen: ObservedJob, now: datetime) -> JobPlan:
    """A run is under way: make sure of its record, record its progress, notice its end."""
    state = seen.state
    if state is not None and is_ended(state):
        return _end(seen, state, now)
    if gone := _gone(seen):
        return _fail(seen, None, Reason.SAMPLE_SET_NOT_FOUND, gone, now)
    return _go_on(seen, now)


def _go_on(seen: ObservedJob, now: datetime) -> JobPlan:
    """The run has not ended. One that the bus does not have is written again unless it must not be."""
    is_missing = seen.state is None and seen.are_records_known
    by = cancelled_by(seen)
    if by is not None and is_missing:
        return _fail_untaken(seen, _cancelled(by), now)
    request, problem = _request_or_problem(seen)
    if request is not None and is_missing and _is_edited(seen, request):
        return _start_anew(seen, now)
    if not is_missing:
        problem = problem_of_keys(seen.job, seen.secret)
    records = _records(seen, request, by is not None, now)
    status = _present_progress(seen, now)
    if seen.state is not None or seen.are_records_known:
        status = _with_acceptance(seen, status, problem, now)
    is_early = seen.state is not None and status.progress != progress_of(seen.state)
    again = (
        PROGRESS_WRITE_INTERVAL_SECONDS
        if is_early
        else CORRECTION_CHECK_INTERVAL_SECONDS
        if problem
        else RUN_CHECK_INTERVAL_SECONDS
    )
    return JobPlan(status, records, events=refusal_events(seen.status, status), requeue_after=again)


def _present_progress(seen: ObservedJob, now: datetime) -> JobStatus:
    return present_status(seen) if seen.state is None else running_status(seen, seen.state, now)


def _with_acceptance(
    seen: ObservedJob, status: JobStatus, problem: Problem | None, now: datetime
) -> JobStatus:
    """Why the run of a job that has begun cannot be written, until it can, or an agent has taken it; then why
    its keys cannot be read."""
    accepted = status.condition(Cond.ACCEPTED)
    if problem is not None:
        return status.with_condition(Cond.ACCEPTED, False, problem.reason, problem.message, now)
    if accepted is None or accepted.status == "True":
        return status
    return status.with_condition(Cond.ACCEPTED, True, Reason.ACCEPTED, _remark(seen), now)


def _gone(seen: ObservedJob) -> str:
    """Why there is no set that the run could go on on, "" while it is the one that it was requested for."""
    if seen.sample_set is None:
        return f"SampleSet {seen.job.set_name} is gone"
    if seen.status.set_uid not in ("", seen.sample_set.uid):
        return f"SampleSet {seen.job.set_name} of this run is gone; another one has its name now"
    return ""


def _request_or_problem(seen: ObservedJob) -> tuple[Request | None, Problem | None]:
    """What the job asks for now, or why that cannot be done."""
    try:
        return read_request(seen), None
    except Invalid as invalid:
        return None, invalid.problem


def _is_edited(seen: ObservedJob, request: Request) -> bool:
    """It asks for something else than its run, which is never written as what it was not requested as."""
    return seen.job.is_other_work or seen.status.run_id != _next_run(seen, request)


def _start_anew(seen: ObservedJob, now: datetime) -> JobPlan:
    """The bus has no such run, and what it was to do is known no more. One that had begun has failed."""
    if seen.status.phase is JobPhase.RUNNING:
        message = "the bus has lost the run, and the job, or its set, was edited since it was requested"
        return _fail(seen, None, Reason.OPTIONS_CHANGED, message, now)
    return JobPlan(_restarted(seen, now), _own_forget(seen), requeue_after=AT_ONCE)


def _records(
    seen: ObservedJob, request: Request | None, is_cancelled: bool, now: datetime
) -> tuple[RecordAction, ...]:
    record = _record(seen, request, now)
    cancel = _own_cancel(seen) if is_cancelled else ()
    if record is None or (is_cancelled and seen.state is None):
        return cancel
    return (*cancel, record)


def _own_cancel(seen: ObservedJob) -> tuple[CancelRun, ...]:
    return (CancelRun(seen.sample_set.run_key(seen.status.run_id)),) if seen.sample_set else ()


def _record(seen: ObservedJob, request: Request | None, now: datetime) -> WriteRun | None:
    """The run's record; writing it again changes nothing. Those of a set that is being deleted are removed,
    and none comes back."""
    if request is None or seen.sample_set is None or _is_edited(seen, request):
        return None
    if seen.sample_set.deleted_at:
        return None
    run = seen.status.run_id
    owner = seen.sample_set.identity
    return WriteRun(make_run(owner, run, request.partitions, request.for_run(run), now))


def _end(seen: ObservedJob, state: RunState, now: datetime) -> JobPlan:
    phase, reason, message = end_of(state)
    if phase is JobPhase.FAILED:
        return _fail(seen, state, reason, message, now)
    status = ended_status(seen, state, phase, reason, message, now)
    done = f"{state.files_done} files, {state.bytes_done} bytes"
    said = "; ".join(filter(None, (done, message)))
    event = KubernetesEvent("Normal", Reason.COMPLETED, said)
    return JobPlan(status, events=(event,), requeue_after=_next_look(seen))


def _fail(seen: ObservedJob, state: RunState | None, reason: str, why: str, now: datetime) -> JobPlan:
    message = _with_remedy(why)
    status = ended_status(seen, state, JobPhase.FAILED, reason, message, now)
    event = KubernetesEvent("Warning", reason, message)
    return JobPlan(status, events=(event,), requeue_after=_next_look(seen))


def _with_remedy(why: str) -> str:
    """Of a run that has failed. The reason is cut before the remedy is."""
    return "; ".join(filter(None, (why[: MESSAGE_MAX - len(RUN_AGAIN) - 2], RUN_AGAIN)))


def _next_look(seen: ObservedJob) -> float | None:
    """After the end: the records leave the bus then, and maybe the job."""
    return earliest(RUN_RECORD_GRACE_SECONDS, seen.job.spec.ttl_seconds_after_finished)


def _look_for_changes(seen: ObservedJob, now: datetime) -> JobPlan:
    """A failed job starts again, under a new run id, when its author asks for something else. Not when its
    set or a new release does: what deletes files would delete others than its author meant."""
    forget = _forget(seen)
    if not seen.job.is_edited_since_end:
        return _expire(seen, JobPlan(_with_digest(seen), forget), now)
    return JobPlan(_restarted(seen, now), forget, requeue_after=AT_ONCE)


def _with_digest(seen: ObservedJob) -> JobStatus:
    """A release before did not record what was asked for: that is what stands there while nobody edits it."""
    status = present_status(seen)
    if status.request_digest or seen.job.ended_generation != seen.job.generation:
        return status
    return replace(status, request_digest=seen.job.request_digest)


def _restarted(seen: ObservedJob, now: datetime) -> JobStatus:
    """As a new one. Started tells from now on since when it waits."""
    before = present_status(seen).without_conditions(Cond.STARTED, Cond.COMPLETE, Cond.OTHERS_CANCELLED)
    status = JobStatus(
        observed_generation=before.observed_generation,
        creation_version=before.creation_version,
        conditions=before.conditions,
        announcements=before.announcements,
    )
    return status.with_condition(Cond.STARTED, False, Reason.OPTIONS_CHANGED, "", now)


def _rest(seen: ObservedJob) -> JobPlan:
    """Succeeded is final; each later edit is answered once, with a Warning."""
    status = present_status(seen)
    if seen.status.observed_generation == status.observed_generation:
        return JobPlan(status, _forget(seen))
    message = "the job has succeeded; a new run needs a new SampleJob"
    event = KubernetesEvent("Warning", Reason.EDITS_IGNORED, message)
    return JobPlan(status, _forget(seen), events=(event,))


def _expire(seen: ObservedJob, rest: JobPlan, now: datetime) -> JobPlan:
    """The plan of a job that has ended, and the job's own end when its time is over."""
    expiry = decide_expiry(seen, now)
    return replace(rest, expiry=expiry.event, requeue_after=expiry.wake_after)


def _forget(seen: ObservedJob) -> tuple[ForgetRun, ...]:
    """How the run has ended is in the status; nobody asks its records any more."""
    return tuple(ForgetRun(run) for run in seen.recorded)
