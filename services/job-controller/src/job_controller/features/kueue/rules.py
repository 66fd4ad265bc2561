"""Kueue: a job with the label of a queue has a Workload, and pods only while Kueue has admitted that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from job_controller.core import names
from job_controller.core.changes import Change
from job_controller.core.gate import Gate
from job_controller.core.job import Job, make_digest
from job_controller.core.model import Observed
from job_controller.core.parts import Flavor, Priority, Workload
from job_controller.core.phase import missing_pods
from paddlewheel.contracts.conditions import find, is_true
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import labels_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import shorten

_VERSION = "1-"
"""The version of digests, which changes with the choice of their inputs."""
ADMITTED, RESERVED, EVICTED = "Admitted", "QuotaReserved", "Evicted"
"""Conditions of a Workload."""
_INADMISSIBLE = "Inadmissible"
"""Reason of `RESERVED`."""
PRIORITIES = {
    names.WORKLOAD_PRIORITY_CLASS: "kueue.x-k8s.io/workloadpriorityclass",
    names.PRIORITY_CLASS: "scheduling.k8s.io/priorityclass",
}
"""Kinds that give a Workload its priority, as its spec names them."""
_HELD = (" is stopped", " is inactive")
"""How Kueue's words about a queue end that its administrator holds, as for maintenance."""
_CHANGED = "the job now asks for other pods or another queue than Kueue has admitted it with"
_LEAVING = "the job has left its queue; pods are created when its Workload is gone"
_FORMER = "objects of the deleted job of this name still exist; the job is queued when they are gone"


def queue_gate(seen: Observed) -> Gate | None:
    """None for a job without a queue, or whose Workload is admitted."""
    if not takes_part(seen) or is_admitted(seen):
        return None
    if seen.workload is None and seen.waits_for_former:
        return Gate(False, Reason.FORMER_JOB_ENDING, _FORMER)
    if not seen.job.queue:
        return Gate(False, Reason.WAITING_IN_QUEUE, _LEAVING)
    if seen.trouble is not None and seen.trouble.kind in PRIORITIES:
        return Gate(False, Reason.QUEUE_NOT_USABLE, shorten(seen.trouble.shown_message))
    text = f"pods are created when Kueue has admitted the job in queue {seen.job.queue}"
    reason = Reason.QUEUE_NOT_USABLE if _is_inadmissible(seen) else Reason.WAITING_IN_QUEUE
    return Gate(False, reason, shorten(f"{text}: {_state(seen)}"))


def _is_inadmissible(seen: Observed) -> bool:
    """Kueue cannot take the job, as when there is no such queue; one that is held passes by itself."""
    workload = _present(seen)
    reserved = find(workload.conditions, RESERVED) if workload else None
    if reserved is None or reserved.message.endswith(_HELD):
        return False
    return (reserved.status, reserved.reason) == ("False", _INADMISSIBLE)


def withdrawal(seen: Observed) -> Change | None:
    """Why the pods that there are have to end, None when they may go on."""
    if not takes_part(seen) or is_admitted(seen):
        return None
    if evicted := eviction(seen):
        return evicted
    workload = seen.workload
    if workload is None or workload.is_going:
        return Change(Reason.NOT_ADMITTED, "the job has no Workload that Kueue has admitted")
    if not fits(seen.job, workload):
        return Change(Reason.NOT_ADMITTED, _CHANGED)
    return Change(Reason.EVICTED_BY_QUEUE, f"Kueue does not admit the job: {_state(seen)}")


def eviction(seen: Observed) -> Change | None:
    """An eviction by Kueue ends the pods, whatever the job asks for now. None without an eviction."""
    workload = seen.workload
    if not takes_part(seen) or workload is None or not is_true(workload.conditions, EVICTED):
        return None
    return Change(Reason.EVICTED_BY_QUEUE, f"Kueue does not admit the job: {_words(seen.job, workload)}")


def is_admitted(seen: Observed) -> bool:
    """Kueue has admitted what the job asks for now."""
    workload = _present(seen)
    if workload is None:
        return False
    return is_true(workload.conditions, ADMITTED) and not is_true(workload.conditions, EVICTED)


def _present(seen: Observed) -> Workload | None:
    """The Workload, if it is of the present spec and is not being deleted."""
    workload = seen.workload
    stays = workload is not None and not workload.is_going and fits(seen.job, workload)
    return workload if stays else None


def flavors_of(seen: Observed) -> dict[str, list[Flavor]]:
    """The flavors that Kueue has admitted each role with."""
    admitted = seen.workload.flavors if seen.workload and takes_part(seen) else {}
    known = seen.flavors
    return {role: [known[name] for name in found if name in known] for role, found in admitted.items()}


def needs_flavors(seen: Observed) -> tuple[str, ...]:
    """Names of the flavors of pods to be made now."""
    if not takes_part(seen) or seen.workload is None or not is_admitted(seen) or not missing_pods(seen):
        return ()
    return tuple(sorted({name for found in seen.workload.flavors.values() for name in found}))


def needed_priority(seen: Observed) -> tuple[str, str] | None:
    """Kind and name of the class that gives a Workload to be made now its priority, None without any.

    The job's label counts more than the priority of its pods, as Kueue does for its own kinds.
    """
    job = seen.job
    if not takes_part(seen) or not job.queue or seen.workload is not None:
        return None
    if name := str(labels_of(job.obj).get(names.LABEL_QUEUE_PRIORITY, "")):
        return names.WORKLOAD_PRIORITY_CLASS, name
    policy = job.spec.scheduling_policy
    templates = ((role.template.get("spec") or {}).get("priorityClassName") for role in job.roles)
    given = (policy.priority_class if policy else "", *templates)
    return next(((names.PRIORITY_CLASS, str(name)) for name in given if name), None)


def workload_key(job: Job) -> Key:
    """Address of the job's Workload."""
    return Key(job.key.namespace, names.workload_name(job.key.name))


def priority_fields(priority: Priority | None) -> dict[str, Any]:
    """Fields of a Workload's spec, but not of its digest: a new priority counts for the next Workload."""
    if priority is None:
        return {}
    return {
        "priorityClassSource": PRIORITIES[priority.kind],
        "priorityClassName": priority.name,
        "priority": priority.value,
    }


def workload_spec(job: Job) -> dict[str, Any]:
    """The pods of each role, which Kueue counts."""
    pod_sets = [
        {"name": role.name, "count": role.replicas, "template": _template(role.template)}
        for role in job.roles
        if role.replicas
    ]
    return {"queueName": job.queue, "podSets": pod_sets}


def _template(template: Mapping[str, Any]) -> dict[str, Any]:
    """Kueue takes no other metadata."""
    given = template.get("metadata") or {}
    metadata = {field: given[field] for field in ("labels", "annotations") if given.get(field)}
    return {"metadata": metadata, "spec": dict(template.get("spec") or {})}


def workload_digest(job: Job) -> str:
    """A digest of the spec of the Workload."""
    return make_digest(_VERSION, workload_spec(job))


def takes_part(seen: Observed) -> bool:
    """Kueue decides about the job: also about one that has left its queue, while it still has a Workload."""
    return seen.has_kueue and (bool(seen.job.queue) or seen.workload is not None)


def fits(job: Job, workload: Workload) -> bool:
    """It was made of what the job asks for now; one of another version of ours is not taken for outdated."""
    is_known = workload.digest.startswith(_VERSION)
    return bool(job.queue) and (not is_known or workload.digest == workload_digest(job))


def _state(seen: Observed) -> str:
    workload = _present(seen)
    return _words(seen.job, workload) if workload else "its Workload is being made"


def _words(job: Job, workload: Workload) -> str:
    """Kueue's, or what its user has to do."""
    if not workload.is_active:
        return f"Workload {workload_key(job)} is deactivated; set its spec.active to true"
    if is_true(workload.conditions, EVICTED) and (evicted := find(workload.conditions, EVICTED)):
        return evicted.message or evicted.reason
    said = (find(workload.conditions, type_) for type_ in (ADMITTED, RESERVED))
    words = [found.message for found in said if found and found.status == "False" and found.message]
    return words[-1] if words else "Kueue has not looked at it yet"
