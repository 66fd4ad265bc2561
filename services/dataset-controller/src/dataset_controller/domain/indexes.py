"""By what sets, jobs, nodes and pods are found, what jobs see of their set, and what is kept of pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dataset_controller.domain.names import OWNER_ANNOTATION, SET_ANNOTATION, Cond, JobPhase, SetPhase
from dataset_controller.domain.sampleset.policies.labels import HOME_PREFIX, PREFIX
from paddlewheel.contracts.dataset_names import contract_runtime_name, node_label, runtime_name
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import (
    Object,
    annotations_of,
    deleted_at,
    generation_of,
    key_of,
    labels_of,
    spec_of,
    status_of,
    uid_of,
)
from paddlewheel.contracts.reasons import Reason

_SUCCEEDED, _FAILED = JobPhase.SUCCEEDED.value, JobPhase.FAILED.value


def as_jobs_see(sample_set: Object) -> tuple[Any, ...]:
    """The parts of a SampleSet that its SampleJobs depend on: identity and spec, from which a run's operation
    is made, and phase and mounted partitions, for which a run waits; no figures, conditions or facts."""
    status = status_of(sample_set)
    ready = (status.get("runtimeStatus") or {}).get("readyReplicas")
    request = uid_of(sample_set), generation_of(sample_set), deleted_at(sample_set)
    return (*request, status.get("phase"), ready)


def moving_since(sample_set: Object) -> str:
    """When its runtime began to move to the namespace of the release; "" while it does not move."""
    conditions = status_of(sample_set).get("conditions") or ()
    found = (each for each in conditions if each.get("type") == Cond.RUNTIME_MIGRATION_PENDING)
    moving = (each for each in found if each.get("status") == "True" and each.get("reason") == Reason.MOVING)
    return next((str(each.get("lastTransitionTime") or "") for each in moving), "")


@dataclass(frozen=True)
class JobAsOthersSee:
    """The parts of a SampleJob that other jobs depend on while they wait for it: its end, its place in the
    line, and its request.

    Args:
        sets: where they find it; one, or none.
        is_in_line: it waits for its turn and for nothing else.
        awaits: keys of jobs that it waits for, which are not deleted before it has begun.
    """

    sets: tuple[str, ...]
    uid: str
    generation: int
    deleted_at: str
    end: str
    cancels: bool
    is_in_line: bool
    awaits: tuple[Key, ...]


def as_others_see(job: Object) -> JobAsOthersSee:
    status = status_of(job)
    reasons = {each.get("type"): each.get("reason") for each in status.get("conditions") or ()}
    return JobAsOthersSee(
        tuple(set_of_job(job)),
        uid_of(job),
        generation_of(job),
        deleted_at(job),
        end=str(status.get("phase")) if is_finished(job) else "",
        cancels=Cond.OTHERS_CANCELLED in reasons,
        is_in_line=reasons.get(Cond.STARTED) == Reason.WAITING_FOR_TURN
        and reasons.get(Cond.ACCEPTED) == Reason.ACCEPTED,
        awaits=_awaited_by(job),
    )


def _awaited_by(job: Object) -> tuple[Key, ...]:
    if not is_waiting(job) or deleted_at(job):
        return ()
    return tuple(Key(key_of(job).namespace, str(name)) for name in spec_of(job).get("after") or ())


def is_waiting(job: Object) -> bool:
    """Its run was not requested yet."""
    return not status_of(job).get("jobName") and not is_finished(job)


def is_finished(job: Object) -> bool:
    """Nothing that happens to its set makes it run again."""
    return status_of(job).get("phase") in (_SUCCEEDED, _FAILED)


def concerns_set(job: Object) -> bool:
    """The set's runtime Secret contains the keys of syncs under way, and jobs that ended may have changed its
    cache."""
    return is_finished(job) or "sync" in (spec_of(job).get("type"), status_of(job).get("type"))


def is_being_bound(sample_set: Object) -> bool:
    """Its claim is bound before the runtimes of others are made: pods that use it wait for that. Not one that
    is refused, or whose children are: it is tried again and again."""
    status = status_of(sample_set)
    is_unbound = status.get("phase", "") in ("", SetPhase.NOT_BOUND)
    judged = (c for c in status.get("conditions") or () if c.get("type") in (Cond.ACCEPTED, Cond.RECONCILED))
    is_refused = any(each.get("status") != "True" for each in judged)
    return is_unbound and not is_refused and not deleted_at(sample_set)


def label_of_set(obj: Object) -> list[str]:
    key = key_of(obj)
    return [node_label(key.namespace, key.name)]


def set_name(job: Object) -> str:
    """The set of the job's run, if it has one: the job's spec may have been edited since."""
    running_on = status_of(job).get("sampleSetName") if status_of(job).get("jobName") else ""
    return str(running_on or (spec_of(job).get("sampleSetRef") or {}).get("name") or "")


def set_of_job(obj: Object) -> list[str]:
    return [str(Key(key_of(obj).namespace, name))] if (name := set_name(obj)) else []


def set_of_waiting_job(obj: Object) -> list[str]:
    is_waiting = spec_of(obj).get("terminate") and not status_of(obj).get("jobName")
    return set_of_job(obj) if is_waiting else []


def run_of_job(obj: Object) -> list[str]:
    run = status_of(obj).get("jobName")
    return [str(run)] if run else []


def labels_of_node(obj: Object) -> list[str]:
    """The labels of sets on a node."""
    return list(as_sets_see(obj))


def as_sets_see(node: Object) -> dict[str, str]:
    """The part of a node that SampleSets depend on: the labels of sets."""
    return {name: value for name, value in labels_of(node).items() if name.startswith((PREFIX, HOME_PREFIX))}


def labels_to_wake(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    """The labels of the sets that a change of a node's labels concerns. A node may hold many sets: if a
    change woke all of them, a thousand sets would wake each other without end."""
    named = {*before, *after}
    found: set[str] = set()
    for changed in (name for name in named if before.get(name) != after.get(name)):
        about = [name for name in named if _is_about(changed, name)]
        if not about:
            return named
        found.update(about)
    return found


def _is_about(label: str, exact: str) -> bool:
    """A label of any of the three kinds is about the set with this exact one; see `policies.labels`."""
    whose = exact.removeprefix(PREFIX)
    if whose == exact or "." not in whose:
        return False
    if label.startswith(HOME_PREFIX):
        return whose == label.removeprefix(HOME_PREFIX)
    return label == exact or whose.endswith(f".{label.removeprefix(PREFIX)}")


def kept_of_pod(pod: Object) -> dict[str, Any]:
    """The parts of a runtime pod that are read. Containers and volumes, which are most of a pod, are not."""
    spec = {name: value for name, value in spec_of(pod).items() if name == "nodeName"}
    return {**pod, "spec": spec}


def runtime_of_pod(obj: Object) -> list[str]:
    """Pods by the key of their runtime's StatefulSet; other kinds have no such label."""
    name = labels_of(obj).get("name")
    return [str(Key(key_of(obj).namespace, name))] if name else []


def runtimes_of_set(obj: Object, home: str) -> list[str]:
    """The key of a SampleSet's runtime in the namespace of the release, and the one of earlier releases."""
    key = key_of(obj)
    runtime = Key(home, runtime_name(key.namespace, key.name, home))
    return list({str(runtime), str(Key(key.namespace, contract_runtime_name(key.name)))})


def set_of_runtime(obj: Object) -> Key | None:
    """The key of the set of a StatefulSet or Service in the namespace of the release."""
    namespace, _, name = annotations_of(obj).get(SET_ANNOTATION, "").partition("/")
    return Key(namespace, name) if name else None


def owner_of_volume(obj: Object) -> list[str]:
    """Volumes by the uid of their set; other kinds have no such annotation."""
    uid = annotations_of(obj).get(OWNER_ANNOTATION)
    return [uid] if uid else []
