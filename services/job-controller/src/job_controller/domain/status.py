"""The job's status, computed fresh from what is observed now; and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from job_controller.domain import names
from job_controller.domain.model import Job, JobStatus, Observed, Pod, PodState, RoleStatus
from job_controller.domain.policies.dataset_gate import Gate
from job_controller.domain.policies.failure import REASON, failure_message, first_failure
from job_controller.domain.policies.phase import decide_phase
from job_controller.domain.policies.results import read_results
from job_controller.domain.policies.scaling import missing_pods
from job_controller.domain.policies.words import unknown_words
from paddlewheel.contracts.announcements import Announcements, declare, render_announcements
from paddlewheel.contracts.conditions import Condition, Conditions, render_conditions, set_condition

_WORD_CONDITIONS = (names.CONDITION_NETWORK_WORD, names.CONDITION_CLEAN_WORD)


def seconds_stamp(now: datetime) -> str:
    """RFC 3339 UTC to the second, as Kubernetes writes times."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def fact_stamp(now: datetime) -> str:
    """RFC 3339 UTC to the millisecond."""
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def with_condition(job: Job, status: JobStatus, condition: Condition, now: datetime) -> JobStatus:
    """Put one condition, stamped with the generation it was decided for."""
    stamped = replace(condition, observed_generation=job.generation)
    return replace(status, conditions=set_condition(status.conditions, stamped, seconds_stamp(now)))


def refused_status(job: Job, problems: tuple[str, ...], now: datetime) -> JobStatus:
    """The manifest makes no sense: say so and do nothing."""
    condition = Condition(names.CONDITION_ACCEPTED, "False", "InvalidSpec", "; ".join(problems))
    status = replace(job.status, phase=job.status.phase or names.PENDING, observed_generation=job.generation)
    return with_condition(job, status, condition, now)


def deleted_status(job: Job, now: datetime) -> JobStatus:
    """The last status, for as long as the last fact waits for the bus."""
    told = declare(job.status.announcements, names.JOB_DELETED, fact_stamp(now))
    return replace(
        job.status, phase=names.TERMINATING, observed_generation=job.generation, announcements=told
    )


def active_status(seen: Observed, gate: Gate, now: datetime) -> JobStatus:
    """Counts, phase, times, conditions and facts of a job that has not ended before now."""
    job = seen.job
    roles = count_roles(job, seen.pods)
    phase = decide_phase(job.spec, roles) if gate.is_open else names.PENDING
    status = replace(
        job.status,
        phase=phase,
        mode=job.spec.mode.value,
        roles=roles,
        observed_generation=job.generation,
    )
    status = _with_times(status, seen, now)
    status = replace(status, conditions=_conditions(seen, status, gate, now))
    return status.with_announcements(_declare_facts(seen, status, gate, fact_stamp(now)))


def count_roles(job: Job, pods: tuple[Pod, ...]) -> Mapping[str, RoleStatus]:
    """Wanted pods that exist, by role and state."""
    wanted = set(job.spec.pod_ids())
    return {
        r.role: _role_status(job, [p for p in pods if p.id in wanted and p.id.role == r.role])
        for r in job.spec.roles
    }


def _role_status(job: Job, pods: list[Pod]) -> RoleStatus:
    ordered = sorted(pods, key=lambda p: p.id.index)
    counts = {state: sum(p.state is state for p in pods) for state in PodState}
    return RoleStatus(counts, tuple(_ref(job, p) for p in ordered))


def _ref(job: Job, pod: Pod) -> Mapping[str, str]:
    """Without resourceVersion, or the status would change with every pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": job.key.namespace,
        "name": pod.name,
        "uid": pod.uid,
    }


def _with_times(status: JobStatus, seen: Observed, now: datetime) -> JobStatus:
    if status.phase == names.RUNNING and not status.start_time:
        return replace(status, start_time=seconds_stamp(now))
    if not status.final:
        return status
    # A job may be over before anybody saw it run.
    earliest = min((p.started_at for p in seen.pods if p.started_at), default="")
    results = read_results(seen.pods) if status.phase == names.COMPLETED else {}
    return replace(
        status,
        start_time=status.start_time or earliest or seconds_stamp(now),
        completion_time=seconds_stamp(now),
        results=results,
    )


def _conditions(seen: Observed, status: JobStatus, gate: Gate, now: datetime) -> Conditions:
    current = [
        Condition(names.CONDITION_ACCEPTED, "True", "ManifestValid"),
        Condition(names.CONDITION_ADMITTED, "True" if gate.is_open else "False", gate.reason, gate.message),
        _running_condition(status),
        *_end_conditions(seen, status),
        *_word_conditions(seen.job),
    ]
    stamp, conditions = seconds_stamp(now), status.conditions
    for condition in current:
        fresh = replace(condition, observed_generation=seen.job.generation)
        conditions = set_condition(conditions, fresh, stamp)
    return conditions


def _running_condition(status: JobStatus) -> Condition:
    if status.phase == names.RUNNING:
        return Condition(names.CONDITION_RUNNING, "True", "AllPodsRunning")
    return Condition(names.CONDITION_RUNNING, "False", status.phase)


def _end_conditions(seen: Observed, status: JobStatus) -> list[Condition]:
    if status.phase == names.COMPLETED:
        return [Condition(names.CONDITION_COMPLETE, "True", "PodsSucceeded")]
    failure = first_failure(seen.pods) if status.phase == names.FAILED else None
    if failure is None:
        return []
    return [Condition(names.CONDITION_FAILED, "True", REASON, failure_message(failure))]


def _word_conditions(job: Job) -> list[Condition]:
    unknown = {w.condition: w.message for w in unknown_words(job.spec)}
    raised = [Condition(type_, "True", "UnknownWord", message) for type_, message in unknown.items()]
    mended = [
        Condition(type_, "False", "WordKnown")
        for type_ in _WORD_CONDITIONS
        if type_ not in unknown and job.status.condition(type_)
    ]
    return raised + mended


def _declare_facts(seen: Observed, status: JobStatus, gate: Gate, at: str) -> Announcements:
    facts = {
        names.JOB_ACCEPTED: True,
        names.JOB_GATED: not gate.is_open,
        names.JOB_STARTING: gate.is_open and not missing_pods(seen.job, seen.pods),
        names.JOB_RUNNING: status.phase == names.RUNNING,
        names.JOB_SUCCEEDED: status.phase == names.COMPLETED,
        names.JOB_FAILED: status.phase == names.FAILED,
    }
    told = status.announcements
    for fact in (name for name, is_true in facts.items() if is_true):
        told = declare(told, fact, at)
    return told


def render_status(status: JobStatus) -> dict[str, Any]:
    """For `status` of the PaddleJob; what is empty is left out."""
    rendered: dict[str, Any] = {
        "phase": status.phase,
        "mode": status.mode,
        "startTime": status.start_time,
        "completionTime": status.completion_time,
        "results": dict(status.results),
        **{role: _render_role(r) for role, r in status.roles.items()},
    }
    return {
        **{name: value for name, value in rendered.items() if value},
        "observedGeneration": status.observed_generation,
        "conditions": render_conditions(status.conditions),
        "announcements": render_announcements(status.announcements),
    }


def _render_role(role: RoleStatus) -> dict[str, Any]:
    return {**{s.value: role.count(s) for s in PodState}, "refs": [dict(r) for r in role.refs]}


def status_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge patch from `old` to `new`; empty when nothing changed. A role that is gone is removed."""
    gone: dict[str, Any] = {role: None for role in names.ROLES if role in old and role not in new}
    return gone | {name: value for name, value in new.items() if old.get(name) != value}
