"""The end of a pass: what failed while the plan was executed becomes a part of the status."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from job_controller.core import names
from job_controller.core.environment import crowded_node, overlong_list, told_port
from job_controller.core.job_status import JobStatus, Plan
from job_controller.core.model import Observed
from job_controller.core.status import with_condition
from job_controller.core.verdict import is_held
from job_controller.timing import FIRST_STATUS_GRACE_SECONDS
from paddlewheel.contracts.conditions import Condition, find
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.core.errors import Conflict
from paddlewheel.operator.domain.plan import Applied, KubernetesEvent, Trouble, earliest

_BEGINNINGS = [
    {
        (names.CONDITION_ACCEPTED, Reason.ACCEPTED),
        (names.CONDITION_ADMITTED, Reason.NOTHING_TO_WAIT_FOR),
        (names.CONDITION_RUNNING, running),
    }
    for running in (Reason.PODS_PENDING, Reason.PODS_STARTING)
]
"""Conditions of a job whose pods start with nothing in their way."""


def conclude(seen: Observed, todo: Plan, applied: Applied, now: datetime) -> Plan:
    """Add what failed to the status; it is tried again later."""
    status = todo.status
    if status is None or (is_held(status) and status.phase != names.TERMINATING):
        return todo
    todo = _with_unkept_logs(todo, applied)
    trouble = _trouble(seen, status, applied)
    if trouble is None:
        left = _first_status_waits(seen, status, now)
        if left is not None and todo.requeue_after != 0.0:
            return replace(todo, status=None, events=(), requeue_after=earliest(todo.requeue_after, left))
        return replace(todo, status=_unblocked(seen, status, now))
    reason, message = trouble.shown_reason, trouble.shown_message
    condition = Condition(names.CONDITION_BLOCKED, "True", reason, message)
    before = find(seen.job.status.conditions, names.CONDITION_BLOCKED)
    is_known = before is not None and (before.status, before.message) == ("True", message)
    warnings = tuple(event for event in todo.events if event.type == "Warning")
    events = warnings if is_known else (*warnings, KubernetesEvent("Warning", reason, message))
    return replace(todo, status=with_condition(seen.job, status, condition, now), events=events)


def _first_status_waits(seen: Observed, status: JobStatus, now: datetime) -> float | None:
    """Seconds for which the first status of a job need not be written: there is nothing to say but that its
    pods start. None: write it now."""
    created = parse_stamp(seen.job.created_at)
    if seen.job.status.phase or created is None or not _merely_starts(status):
        return None
    age = (now - created).total_seconds()
    # An API server whose clock is ahead must not delay the status.
    return FIRST_STATUS_GRACE_SECONDS - age if 0 <= age < FIRST_STATUS_GRACE_SECONDS else None


def _merely_starts(status: JobStatus) -> bool:
    return status.gang is None and {(c.type, c.reason) for c in status.conditions} in _BEGINNINGS


def _trouble(seen: Observed, status: JobStatus, applied: Applied) -> Trouble | None:
    """The cause for Blocked; while a job is gated, an unreadable data set is the gate's own reason."""
    is_gated = status.condition(names.CONDITION_ADMITTED) == "False"
    beyond = {seen.job.pod_name(place) for place in seen.job.pod_ids if not seen.job.trains(place)}
    troubles = (t for t in applied.troubles if not _passes_by_itself(t))
    # A job that trains is not blocked by what keeps it from growing, as a quota may.
    children = replace(applied, troubles=tuple(t for t in troubles if not _is_of_pods(t, beyond)))
    return children.first or _crowd(seen, status) or (None if is_gated else seen.trouble)


def _passes_by_itself(trouble: Trouble) -> bool:
    """Logs block nothing, and a Workload that Kueue has changed meanwhile is patched as it is then."""
    has_changed = (trouble.kind, trouble.reason) == (names.WORKLOAD, Conflict.__name__)
    return trouble.kind == names.KEPT_LOGS or has_changed


def _is_of_pods(trouble: Trouble, pods: Collection[str]) -> bool:
    return trouble.kind == names.POD and trouble.key.name in pods


def _crowd(seen: Observed, status: JobStatus) -> Trouble | None:
    """The reason for which the pods cannot get their addresses."""
    if status.final or seen.job.deleted_at is not None:
        return None
    causes = {
        Reason.HOST_PORTS_EXHAUSTED: crowded_node(seen),
        Reason.INVALID_SPEC: overlong_list(seen, told_port(seen.job)),
    }
    troubles = (
        Trouble("create", names.CONFIG_MAP, seen.job.key, reason, message)
        for reason, message in causes.items()
        if message
    )
    return next(troubles, None)


def _with_unkept_logs(todo: Plan, applied: Applied) -> Plan:
    """Logs that cannot be kept block nothing; a refusal is final, so its Event is emitted once."""
    trouble = next((t for t in applied.troubles if t.kind == names.KEPT_LOGS), None)
    if trouble is None:
        return todo
    event = KubernetesEvent("Warning", trouble.shown_reason, trouble.shown_message)
    return replace(todo, events=(event,) if trouble.is_refusal else ())


def _unblocked(seen: Observed, status: JobStatus, now: datetime) -> JobStatus:
    if seen.job.status.condition(names.CONDITION_BLOCKED) != "True":
        return status
    condition = Condition(names.CONDITION_BLOCKED, "False", Reason.RECOVERED)
    return with_condition(seen.job, status, condition, now)
