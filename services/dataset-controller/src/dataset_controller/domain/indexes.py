"""By what sets, jobs, nodes and pods are found, and what jobs see of their set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dataset_controller.domain.names import OWNER_ANNOTATION, Cond, JobPhase
from dataset_controller.domain.sampleset.policies.labels import HOME_PREFIX, PREFIX
from paddlewheel.contracts.dataset_names import node_label
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


@dataclass(frozen=True)
class SetAsJobsSee:
    """What a SampleJob depends on of its set; figures, conditions and facts are not among it.

    Args:
        request: identity and spec, from which a run's operation is made.
        stage: phase and mounted partitions, for which a run waits.
    """

    request: tuple[Any, ...]
    stage: tuple[Any, ...]


def as_jobs_see(sample_set: Object) -> SetAsJobsSee:
    status = status_of(sample_set)
    ready = (status.get("runtimeStatus") or {}).get("readyReplicas")
    return SetAsJobsSee(
        (uid_of(sample_set), generation_of(sample_set), deleted_at(sample_set)), (status.get("phase"), ready)
    )


@dataclass(frozen=True)
class JobAsOthersSee:
    """What other SampleJobs of a set depend on of one that they wait for: its end, its place in the line, and
    what is asked for.

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
    phase = status.get("phase")
    reasons = {each.get("type"): each.get("reason") for each in status.get("conditions") or ()}
    return JobAsOthersSee(
        tuple(set_of_job(job)),
        uid_of(job),
        generation_of(job),
        deleted_at(job),
        end=phase if phase in (_SUCCEEDED, _FAILED) else "",
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
    status = status_of(job)
    return not status.get("jobName") and not is_finished(job, is_request_same=True)


def is_finished(job: Object, is_request_same: bool) -> bool:
    """A failed job starts again when the set's spec, e.g. its source, changes what it asks for."""
    phase = status_of(job).get("phase")
    return phase == _SUCCEEDED or (phase == _FAILED and is_request_same)


def concerns_set(job: Object) -> bool:
    """The set's runtime Secret contains the keys of syncs under way, and jobs that ended may have changed its
    cache."""
    is_sync = "sync" in (spec_of(job).get("type"), status_of(job).get("type"))
    return is_sync or status_of(job).get("phase") in (_SUCCEEDED, _FAILED)


def label_of_set(obj: Object) -> list[str]:
    key = key_of(obj)
    return [node_label(key.namespace, key.name)]


def set_name(job: Object) -> str:
    """Of a job with a run, the set of the run: its spec may have been edited since."""
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
    """Of a node."""
    return [name for name in labels_of(obj) if name.startswith((PREFIX, HOME_PREFIX))]


def runtime_of_pod(obj: Object) -> list[str]:
    """Pods by `<namespace>/<set>-runtime`; other kinds have no such label."""
    name = labels_of(obj).get("name")
    return [str(Key(key_of(obj).namespace, name))] if name else []


def owner_of_volume(obj: Object) -> list[str]:
    """Volumes by the uid of their set; other kinds have no such annotation."""
    uid = annotations_of(obj).get(OWNER_ANNOTATION)
    return [uid] if uid else []
