"""Actions on a job's Workload, as Kueue requires from an external framework."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from job_controller.core import names
from job_controller.core.gate import Gate
from job_controller.core.job import Job
from job_controller.core.model import Observed
from job_controller.core.parts import Workload
from job_controller.features.kueue.render import render_workload
from job_controller.features.kueue.rules import (
    ADMITTED,
    EVICTED,
    RESERVED,
    fits,
    takes_part,
    workload_key,
)
from paddlewheel.contracts.conditions import Condition, find, is_true, render_conditions, set_condition
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import seconds_stamp
from paddlewheel.operator.domain.plan import Action, Create, Delete, Patch

_WITHOUT_PODS = frozenset({Reason.SUSPENDED, Reason.SCALED_TO_ZERO})
_REQUEUED, _PREEMPTED = "Requeued", "Preempted"
"""A condition of a Workload; and the reason of an eviction after which it is queued again at once."""


def queue_actions(seen: Observed, gate: Gate, now: datetime) -> tuple[Action, ...]:
    """While no pods are created: make the Workload, replace it, or give back what it has reserved. Quota is
    given back once the last pod is gone, whatever else the job waits for then."""
    workload = seen.workload
    if seen.pods or seen.old_pods:
        return ()
    if not takes_part(seen) or gate.reason in _WITHOUT_PODS:
        return delete_workload(seen)
    if workload is None:
        is_next = gate.reason is Reason.WAITING_IN_QUEUE
        return (Create(names.WORKLOAD, render_workload(seen.job, seen.priority)),) if is_next else ()
    if not fits(seen.job, workload):
        return delete_workload(seen)
    is_due = workload.has_quota and is_true(workload.conditions, EVICTED)
    return (_give_back(seen.job, workload, now),) if is_due else ()


def finished_actions(seen: Observed) -> tuple[Action, ...]:
    """A job that has ended holds no quota once its last pod has, also of former epochs."""
    is_over = not any(pod.holds_node or pod.terminating for pod in (*seen.pods, *seen.old_pods))
    return delete_workload(seen) if is_over else ()


def refused_actions(seen: Observed) -> tuple[Action, ...]:
    """A job that can get no pods, as its spec is wrong, holds no quota once its last pod is gone."""
    return () if seen.pods or seen.old_pods else delete_workload(seen)


def needs_quota_still(seen: Observed) -> bool:
    """The Workload of a deleted job must not go before its pods."""
    return seen.workload is not None and bool(seen.pods or seen.old_pods)


def delete_workload(seen: Observed) -> tuple[Action, ...]:
    """Nothing when there is none."""
    workload = seen.workload
    if workload is None or workload.is_going:
        return ()
    return (Delete(names.WORKLOAD, workload_key(seen.job), workload.uid, vanishes=True),)


def _give_back(job: Job, workload: Workload, now: datetime) -> Patch:
    """Release the quota, as Kueue's own controllers of jobs do after an eviction."""
    evicted = find(workload.conditions, EVICTED) or Condition(EVICTED, "True")
    is_queued = "True" if evicted.reason == _PREEMPTED else "False"
    changes = (
        Condition(RESERVED, "False", "Pending", evicted.message),
        Condition(ADMITTED, "False", "NoReservation", "The workload has no reservation"),
        Condition(_REQUEUED, is_queued, evicted.reason, evicted.message),
    )
    conditions = workload.conditions
    for change in changes:
        known = find(conditions, change.type)
        fresh = replace(change, observed_generation=known.observed_generation if known else 0)
        conditions = set_condition(conditions, fresh, seconds_stamp(now))
    status = {"admission": None, "conditions": render_conditions(conditions)}
    patch = {"metadata": {"resourceVersion": workload.version}, "status": status}
    return Patch(names.WORKLOAD, workload_key(job), patch, uid=workload.uid, subresource="status")
