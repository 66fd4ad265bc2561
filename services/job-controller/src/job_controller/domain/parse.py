"""From raw Kubernetes JSON to the words of `model.py`; tolerant of everything the schema lets through."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from job_controller.domain import names
from job_controller.domain.model import (
    Job,
    JobSpec,
    JobStatus,
    PodState,
    RoleSpec,
    RoleStatus,
    SampleSet,
    SampleSetRef,
)
from paddlewheel.contracts.announcements import parse_announcements
from paddlewheel.contracts.conditions import parse_conditions
from paddlewheel.contracts.keys import Key

Raw = Mapping[str, Any]


def owner_uid(raw: Raw) -> str:
    """Uid of the controlling owner, "" when there is none."""
    owner = _controller(raw)
    return str(owner.get("uid", "")) if owner else ""


def owner_key(raw: Raw) -> Key | None:
    """Address of the PaddleJob that controls this object."""
    owner = _controller(raw)
    if not owner or owner.get("kind") != "PaddleJob":
        return None
    return Key(str(raw["metadata"].get("namespace", "")), str(owner["name"]))


def _controller(raw: Raw) -> Raw | None:
    owners = raw["metadata"].get("ownerReferences") or ()
    return next((o for o in owners if o.get("controller")), None)


def key_of(raw: Raw) -> Key:
    """Namespace and name of any object."""
    return Key(str(raw["metadata"].get("namespace", "")), str(raw["metadata"]["name"]))


def parse_job(raw: Raw) -> Job:
    """A PaddleJob as the API server gives it."""
    meta = raw["metadata"]
    status = raw.get("status") or {}
    return Job(
        key=key_of(raw),
        uid=str(meta.get("uid", "")),
        generation=int(meta.get("generation", 0)),
        resource_version=str(meta.get("resourceVersion", "")),
        spec=parse_spec(raw.get("spec") or {}, str(meta.get("namespace", ""))),
        status=parse_status(status),
        annotations=dict(meta.get("annotations") or {}),
        finalizers=tuple(meta.get("finalizers") or ()),
        created_at=str(meta.get("creationTimestamp", "")),
        deleted_at=_time(meta.get("deletionTimestamp")),
        raw_status=status,
    )


def parse_spec(spec: Raw, namespace: str) -> JobSpec:
    """The spec; absent fields take the contract's defaults, `elastic: 0` is off."""
    return JobSpec(
        roles=tuple(_role(role, spec[role]) for role in names.ROLES if spec.get(role) is not None),
        intranet=str(spec.get("intranet") or ""),
        clean_pod_policy=str(spec.get("cleanPodPolicy") or ""),
        with_gloo=int(spec.get("withGloo") or 0),
        elastic=bool(spec.get("elastic")),
        sample_set=_sample_set_ref(spec.get("sampleSetRef"), namespace),
    )


def _role(role: str, raw: Raw) -> RoleSpec:
    return RoleSpec(role, int(raw.get("replicas") or 0), raw.get("template") or {})


def _sample_set_ref(raw: Raw | None, namespace: str) -> SampleSetRef | None:
    if not raw:
        return None
    home = str(raw.get("namespace") or namespace)
    return SampleSetRef(str(raw.get("name") or ""), home, str(raw.get("mountPath") or ""))


def parse_status(status: Raw) -> JobStatus:
    """The status as this service wrote it, or an older controller did."""
    return JobStatus(
        phase=str(status.get("phase", "")),
        mode=str(status.get("mode", "")),
        roles={role: _role_status(status[role]) for role in names.ROLES if status.get(role)},
        start_time=str(status.get("startTime") or ""),
        completion_time=str(status.get("completionTime") or ""),
        observed_generation=int(status.get("observedGeneration") or 0),
        conditions=parse_conditions(status.get("conditions")),
        announcements=parse_announcements(status.get("announcements")),
        results={str(k): float(v) for k, v in (status.get("results") or {}).items()},
    )


def _role_status(raw: Raw) -> RoleStatus:
    counts = {state: int(raw.get(state.value) or 0) for state in PodState}
    return RoleStatus(counts, tuple(raw.get("refs") or ()))


def parse_sample_set(raw: Raw) -> SampleSet:
    """The two things of a SampleSet that matter here."""
    phase = str((raw.get("status") or {}).get("phase", ""))
    return SampleSet(phase, int((raw.get("spec") or {}).get("partitions") or 0))


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None
