"""Parses raw Kubernetes objects into the types of the core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.job_status import GangStatus, JobStatus, RoleStatus
from job_controller.core.parts import Flavor, LostMount, PodGroup, Priority, SampleSet, Workload
from job_controller.core.pods import PodState
from paddlewheel.contracts import crds
from paddlewheel.contracts.conditions import parse_conditions
from paddlewheel.contracts.crds import parse_paddle_job_spec, parse_paddle_job_status
from paddlewheel.contracts.crds.paddlejob import GangKind
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import (
    annotations_of,
    is_controlled_by,
    is_deleting,
    spec_of,
    status_of,
    uid_of,
    version_of,
)
from paddlewheel.contracts.stamps import parse_stamp

Raw = Mapping[str, Any]
ParseJob = Callable[[dict[str, Any]], Job | None]
"""Parses a job. None for one that cannot be parsed, which its own pass reports."""


def parse_job(raw: Raw) -> Job:
    """A PaddleJob as the API server gives it. Raises Permanent, which names the field."""
    meta = raw["metadata"]
    return Job(
        obj=raw,
        key=Key(str(meta.get("namespace", "")), str(meta["name"])),
        uid=str(meta.get("uid", "")),
        generation=int(meta.get("generation", 0)),
        spec=parse_paddle_job_spec(raw),
        status=parse_status(raw),
        deleted_at=parse_stamp(meta.get("deletionTimestamp")),
    )


def parse_status(raw: Raw) -> JobStatus:
    """The job's status as this service wrote it, or an older controller did. Raises Permanent."""
    status = parse_paddle_job_status(raw)
    return JobStatus(
        phase=status.phase,
        mode=status.mode,
        ready=status.ready,
        selector=status.selector,
        roles={name: _role_status(role) for name, role in status.roles.items()},
        start_time=status.start_time or "",
        completion_time=status.completion_time or "",
        observed_generation=status.observed_generation,
        conditions=status.conditions,
        announcements=status.announcements,
        results=status.results,
        saved_model=status.saved_model,
        stuck_on=tuple(status.stuck_on),
        epoch=status.epoch,
        restarts=status.restarts,
        budgets=status.budgets,
        last_restart=status.last_restart,
        world=status.world,
        replacing=tuple(status.replacing),
        suspensions=status.suspensions,
        progress=status.progress,
        gang=_gang_status(status.gang),
    )


def _gang_status(gang: crds.paddlejob.GangStatus | None) -> GangStatus | None:
    if gang is None:
        return None
    kind = next((kind for kind in GangKind if kind == gang.kind), GangKind.NONE)
    return GangStatus(kind, gang.pod_group, gang.min_available, gang.phase, gang.message)


def _role_status(role: crds.RoleStatus) -> RoleStatus:
    counts = {state: int(getattr(role, state.value)) for state in PodState}
    return RoleStatus(counts, tuple(role.refs), tuple(role.succeeded_indexes))


def parse_sample_set(raw: Raw) -> SampleSet:
    """The fields of a SampleSet that matter to its jobs."""
    status = raw.get("status") or {}
    partitions = int((raw.get("spec") or {}).get("partitions") or 0)
    phase, message, reason = (str(status.get(field, "")) for field in ("phase", "message", "reason"))
    told = (status.get("cacheStatus") or {}).get("nodes") or ()
    measured = [each for each in told if "partition" in each]
    nodes = {int(each["partition"]): str(each.get("node", "")) for each in measured}
    cached = {int(each["partition"]): int(each.get("cachedPercent") or 0) for each in measured}
    runtime = status.get("runtimeStatus") or {}
    lost = {str(each.get("node", "")): _lost_mount(each) for each in runtime.get("lostMounts") or ()}
    mounted = int(runtime.get("readyReplicas") or 0)
    return SampleSet(phase, partitions, message, reason, nodes, cached, lost, mounted)


def _lost_mount(raw: Raw) -> LostMount:
    since, message, reason = (str(raw.get(field, "")) for field in ("since", "message", "reason"))
    return LostMount(parse_stamp(since), message, reason)


def recorded_epoch(job: Raw) -> int:
    """The epoch in the job's status."""
    return int(status_of(job).get("epoch") or 0)


def has_ended(job: Raw) -> bool:
    """The phase in the job's status is Completed or Failed."""
    return status_of(job).get("phase") in names.FINAL_PHASES


_LACKS_ROOM = "Unschedulable"


def parse_workload(raw: Raw) -> Workload:
    """A Workload of the job that controls it."""
    status = status_of(raw)
    admission = status.get("admission") or {}
    return Workload(
        uid=uid_of(raw),
        version=version_of(raw),
        digest=str(annotations_of(raw).get(names.ANNOTATION_TEMPLATE, "")),
        is_active=bool(spec_of(raw).get("active", True)),
        is_going=is_deleting(raw),
        conditions=parse_conditions(status.get("conditions")),
        has_quota=bool(admission),
        flavors={
            str(assigned["name"]): tuple(sorted(set((assigned.get("flavors") or {}).values())))
            for assigned in admission.get("podSetAssignments") or ()
        },
    )


def parse_flavor(raw: Raw) -> Flavor:
    """The fields of a ResourceFlavor that pods get."""
    spec = spec_of(raw)
    return Flavor(dict(spec.get("nodeLabels") or {}), tuple(spec.get("tolerations") or ()))


def parse_priority(kind: str, raw: Raw) -> Priority:
    """The priority in a PriorityClass of either kind."""
    return Priority(kind, str(raw["metadata"]["name"]), int(raw.get("value") or 0))


def parse_pod_group(kind: GangKind, raw: Raw, job_uid: str) -> PodGroup | None:
    """A PodGroup of the job's name; None when something else controls it."""
    meta, status = raw["metadata"], raw.get("status") or {}
    is_own = is_controlled_by(raw, job_uid)
    if not is_own and any(owner.get("controller") for owner in meta.get("ownerReferences") or ()):
        return None
    said = [c for c in status.get("conditions") or () if c.get("type") == _LACKS_ROOM]
    return PodGroup(
        kind=kind,
        uid=str(meta.get("uid", "")),
        spec=raw.get("spec") or {},
        is_own=is_own,
        is_going=bool(meta.get("deletionTimestamp")),
        phase=str(status.get("phase") or ""),
        message=next((str(c.get("message") or "") for c in said if c.get("status") == "True"), ""),
    )
