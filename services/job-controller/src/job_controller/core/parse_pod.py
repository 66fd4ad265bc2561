"""Parses pods."""

from __future__ import annotations

from datetime import datetime, timedelta

from job_controller.core import names
from job_controller.core.parse_failure import (
    cause_of_end,
    disruption_of,
    failure_of,
    first_container,
    terminated,
)
from job_controller.core.pods import (
    DEFAULT_SCHEDULER,
    Awaited,
    Failure,
    Pod,
    PodId,
    PodState,
    ProgramEnd,
    Raw,
    parse_epoch,
)
from job_controller.timing import (
    CLOCK_SKEW_GRACE_SECONDS,
    LONGEST_PROGRAM_END_GRACE_SECONDS,
    PROGRAM_END_GRACE_SECONDS,
)
from paddlewheel.contracts.crds import ROLES
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.core.log_reason import reason_line
from paddlewheel.operator.domain.hindrance import Hindrance, find_hindrance

_BEGAN = ("Running", "Succeeded", "Failed")
_DEFAULT_POD_GRACE_SECONDS = 30
_LONGEST_POD_GRACE_SECONDS = 10**8
"""Kubernetes accepts any int64, which no date can take."""


def parse_pod(raw: Raw) -> Pod | None:
    """A pod of a job; None when its name or role is not one that this service gives."""
    role, job = pod_role(raw), _controller_name(raw)
    meta, status = raw["metadata"], raw.get("status") or {}
    index = names.pod_index(job, role, str(meta["name"]))
    if role not in ROLES or index is None:
        return None
    return Pod(
        id=PodId(role, index),
        job=job,
        name=str(meta["name"]),
        uid=str(meta.get("uid", "")),
        state=pod_state(raw),
        ip=str(status.get("podIP") or ""),
        terminating=bool(meta.get("deletionTimestamp")),
        created_at=str(meta.get("creationTimestamp") or ""),
        started_at=str(status.get("startTime") or ""),
        termination_message=_termination_message(raw),
        failure=_failure(raw),
        hindrance=_hindrance(raw),
        container=first_container(raw),
        node=str((raw.get("spec") or {}).get("nodeName") or ""),
        finalizers=tuple(meta.get("finalizers") or ()),
        ends_by=str(meta.get("deletionTimestamp") or ""),
        deletion_asked_at=_deletion_asked_at(meta),
        epoch=parse_epoch(_annotation(raw, names.ANNOTATION_EPOCH)) or 0,
        template=_annotation(raw, names.ANNOTATION_TEMPLATE),
        elastic_workers=_elastic_workers(raw),
        restart=_annotation(raw, names.ANNOTATION_RESTART),
        began=_has_begun(raw),
        disruption=disruption_of(raw),
        group=str(((raw.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or ""),
        data_node=_annotation(raw, names.ANNOTATION_DATA_NODE),
        unprepared_since=_unprepared_since(raw),
        program_end=_program_end_beside_others(raw),
        restarts=_restarts(raw),
        unseen_scheduler=unseen_scheduler(raw),
        at_gate="running" in _gate_state(status),
        awaited=_awaited(raw),
        gate_failure=_gate_failure(raw),
    )


def _awaited(raw: Raw) -> Awaited | None:
    has_passed = "terminated" in _gate_state(raw.get("status") or {})
    if has_passed or pod_state(raw) not in (PodState.PENDING, PodState.STARTING):
        return None
    inits = (raw.get("spec") or {}).get("initContainers") or ()
    commands = (c.get("command") or () for c in inits if c.get("name") == names.GATE_CONTAINER)
    options = (option for command in commands for option in command)
    found = next((option for option in options if option in names.FILE_GATES), None)
    annotation = names.FILE_GATES[found] if found else ""
    return Awaited(annotation, _annotation(raw, annotation)) if annotation else None


def _annotation(raw: Raw, name: str) -> str:
    return str((raw["metadata"].get("annotations") or {}).get(name, ""))


def _controller_name(raw: Raw) -> str:
    owners = raw["metadata"].get("ownerReferences") or ()
    return next((str(owner["name"]) for owner in owners if owner.get("controller")), "")


def pod_role(raw: Raw) -> str:
    """The role that the pod is labelled with, "" when it is not."""
    return str((raw["metadata"].get("labels") or {}).get(names.LABEL_TYPE, ""))


def pod_state(raw: Raw) -> PodState:
    """The contract's counting rule; a terminating pod counts as pending, since it will be replaced, unless it
    had ended before."""
    asked = _deletion_asked_at(raw["metadata"])
    if asked and (end := _program_end(raw)) and _counts_at(end) < asked:
        return end.state
    if raw["metadata"].get("deletionTimestamp") and not _ended_before_deletion(raw):
        return PodState.PENDING
    status = raw.get("status") or {}
    phase = status.get("phase", "")
    if phase == "Failed":
        return PodState.SUCCEEDED if _only_others_failed(raw) else PodState.FAILED
    if phase == "Succeeded":
        return PodState.SUCCEEDED
    if phase == "Running":
        return PodState.RUNNING if _all_started(raw) else PodState.STARTING
    return PodState.STARTING if _gate_began(status) else PodState.PENDING


def _counts_at(end: ProgramEnd) -> datetime:
    """A time on the node's clock. Exit code 0 counts unless the clocks leave a doubt whether it came before
    the deletion: programs may handle SIGTERM."""
    skew = timedelta(seconds=CLOCK_SKEW_GRACE_SECONDS)
    return end.ended_at + (min(skew, end.grace) if end.state is PodState.SUCCEEDED else end.grace)


def _ended_before_deletion(raw: Raw) -> bool:
    """The pod ended by itself: its last container had ended when its deletion was asked for.

    Programs may handle SIGTERM and exit with any code, so where the clocks leave a doubt the deletion is the
    cause.
    """
    has_ended = str((raw.get("status") or {}).get("phase")) in ("Failed", "Succeeded")
    asked, ends = _deletion_asked_at(raw["metadata"]), [end for _, end in terminated(raw)]
    times = [at for end in ends if (at := parse_stamp(end.get("finishedAt")))]
    # To a pod that has ended the API server gives no grace period, whatever was asked for.
    was_alive = _grace_seconds(raw["metadata"]) > 0
    if not has_ended or was_alive or asked is None or not times:
        return False
    is_certain = any(cause_of_end(end) is Reason.OOM_KILLED for end in ends)
    return max(times) + (timedelta() if is_certain else timedelta(seconds=CLOCK_SKEW_GRACE_SECONDS)) < asked


def _deletion_asked_at(meta: Raw) -> datetime | None:
    """The API server adds the grace period to the time of the request."""
    ends = parse_stamp(meta.get("deletionTimestamp"))
    return ends - timedelta(seconds=_grace_seconds(meta)) if ends else None


def _grace_seconds(meta: Raw) -> int:
    """0 once the kubelet has confirmed the pod's end: the API server then moves the time back as well."""
    return min(int(meta.get("deletionGracePeriodSeconds") or 0), _LONGEST_POD_GRACE_SECONDS)


def _all_started(raw: Raw) -> bool:
    """All containers are ready, or have done their work: the pod itself succeeds a moment later. The first
    container trains, so the job goes on without another one that failed for good."""
    containers = (raw.get("spec") or {}).get("containers") or ()
    statuses = (raw.get("status") or {}).get("containerStatuses") or ()
    first = first_container(raw)
    return len(statuses) >= len(containers) and all(
        s.get("ready") or _is_done(s) or (s.get("name") != first and _has_failed_for_good(raw, s))
        for s in statuses
    )


def _is_done(container: Raw) -> bool:
    return _terminated_state(container).get("exitCode") == 0


def _has_failed_for_good(raw: Raw, container: Raw) -> bool:
    return bool(_terminated_state(container).get("exitCode")) and not _is_restarted(raw, container)


def _terminated_state(container: Raw) -> Raw:
    return (container.get("state") or {}).get("terminated") or {}


def _is_restarted(raw: Raw, container: Raw) -> bool:
    """The kubelet starts this container again after its end."""
    policy = (raw.get("spec") or {}).get("restartPolicy") or "Always"
    has_failed = bool(_terminated_state(container).get("exitCode"))
    return policy == "Always" or (policy == "OnFailure" and has_failed)


def _program_end(raw: Raw) -> ProgramEnd | None:
    """None while the first container runs or may run again, and for a pod without other containers, whose
    phase is enough."""
    statuses = (raw.get("status") or {}).get("containerStatuses") or ()
    first = next((s for s in statuses if s.get("name") == first_container(raw)), None)
    if first is None or len(statuses) == 1 or not _terminated_state(first) or _is_restarted(raw, first):
        return None
    ended = _terminated_state(first)
    ended_at = parse_stamp(ended.get("finishedAt"))
    if ended_at is None:
        return None
    grace = (raw.get("spec") or {}).get("terminationGracePeriodSeconds")
    asked = _DEFAULT_POD_GRACE_SECONDS if grace is None else int(grace)
    wait = min(asked + PROGRAM_END_GRACE_SECONDS, LONGEST_PROGRAM_END_GRACE_SECONDS)
    failure = failure_of(raw) if ended.get("exitCode") else None
    state = PodState.FAILED if failure else PodState.SUCCEEDED
    return ProgramEnd(state, failure, ended_at, timedelta(seconds=wait))


def has_ended_program(raw: Raw) -> bool:
    """The pod has ended, or the container that trains has; maybe only for now."""
    status, first = raw.get("status") or {}, first_container(raw)
    statuses = status.get("containerStatuses") or ()
    has_ended = any(s.get("name") == first and _terminated_state(s) for s in statuses)
    return has_ended or status.get("phase") in ("Failed", "Succeeded")


def _has_begun(raw: Raw) -> bool:
    """A pod that its node refuses has failed without a start."""
    status = raw.get("status") or {}
    if str(status.get("phase")) not in _BEGAN:
        return False
    return disruption_of(raw) is not Reason.REJECTED_BY_NODE or any(terminated(raw))


def _program_end_beside_others(raw: Raw) -> ProgramEnd | None:
    """None also once all containers have ended: the kubelet reports the pod's phase a moment later."""
    status = raw.get("status") or {}
    all_ended = all(_terminated_state(s) for s in status.get("containerStatuses") or ())
    is_over = all_ended or status.get("phase") != "Running" or raw["metadata"].get("deletionTimestamp")
    return None if is_over else _program_end(raw)


def _only_others_failed(raw: Raw) -> bool:
    """The first container has succeeded, and nothing has ended the whole pod."""
    end = _program_end(raw)
    was_ended = disruption_of(raw) or (raw.get("status") or {}).get("reason")
    return end is not None and end.state is PodState.SUCCEEDED and not was_ended


def _gate_began(status: Raw) -> bool:
    state = _gate_state(status)
    return "running" in state or "terminated" in state


def _gate_state(status: Raw) -> Raw:
    inits = status.get("initContainerStatuses") or ()
    gate = next((s for s in inits if s.get("name") == names.GATE_CONTAINER), None)
    return (gate or {}).get("state") or {}


def _gate_failure(raw: Raw) -> str:
    """A gate that passes writes a termination message only when it falls back."""
    ended = _gate_state(raw.get("status") or {}).get("terminated") or {}
    return "" if ended.get("exitCode") else reason_line(str(ended.get("message") or ""))


def _hindrance(raw: Raw) -> Hindrance | None:
    """The hindrance of a pod that should run."""
    is_going = bool(raw["metadata"].get("deletionTimestamp"))
    if is_going or pod_state(raw) not in (PodState.PENDING, PodState.STARTING):
        return None
    return find_hindrance(raw)


def _restarts(raw: Raw) -> int:
    statuses = (raw.get("status") or {}).get("containerStatuses") or ()
    first = first_container(raw)
    return next((int(s.get("restartCount") or 0) for s in statuses if s.get("name") == first), 0)


def is_scheduled(raw: Raw) -> bool:
    """A scheduler has looked at the pod."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    has_node = bool((raw.get("spec") or {}).get("nodeName"))
    return has_node or any(c.get("type") == "PodScheduled" for c in conditions)


def unseen_scheduler(raw: Raw) -> str:
    """The scheduler that the pod waits for, "" when it waits for none.

    A scheduler that finds no room for a pod sets the condition `PodScheduled` too. The rest of the status
    comes from a kubelet.
    """
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    fields = ("conditions", "podIP", "initContainerStatuses", "containerStatuses")
    has_begun = spec.get("nodeName") or status.get("phase", "Pending") != "Pending"
    if any(map(status.get, fields)) or has_begun or raw["metadata"].get("deletionTimestamp"):
        return ""
    return str(spec.get("schedulerName") or DEFAULT_SCHEDULER)


def _unprepared_since(raw: Raw) -> str:
    """From the kubelet's condition, which is False before the pod's own containers and init containers."""
    if raw["metadata"].get("deletionTimestamp") or pod_state(raw) is not PodState.PENDING:
        return ""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    since = (c.get("lastTransitionTime") for c in conditions if _is_unprepared(c))
    return str(next(since, None) or "")


def _is_unprepared(condition: Raw) -> bool:
    return (condition.get("type"), condition.get("status")) == ("PodReadyToStartContainers", "False")


def _termination_message(raw: Raw) -> str:
    """The termination message of containers[0]."""
    first = first_container(raw)
    return next((str(e.get("message") or "") for name, e in terminated(raw) if name == first), "")


def _elastic_workers(raw: Raw) -> str:
    first: Raw = next(iter((raw.get("spec") or {}).get("containers") or ()), {})
    given = (v.get("value") for v in first.get("env") or () if v.get("name") == names.ELASTIC_WORKERS)
    return str(next(given, None) or "")


def _failure(raw: Raw) -> Failure | None:
    return failure_of(raw) if pod_state(raw) is PodState.FAILED else None
