"""From raw Kubernetes objects to the types of `model.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from job_controller.domain.model import Job, JobStatus, PodState, RoleStatus, SampleSet
from paddlewheel.contracts.announcements import parse_announcements
from paddlewheel.contracts.conditions import parse_conditions
from paddlewheel.contracts.crds import parse_paddle_job_spec
from paddlewheel.contracts.crds.paddlejob import ROLES
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.stamps import parse_stamp

Raw = Mapping[str, Any]


def parse_job(raw: Raw) -> Job:
    """A PaddleJob as the API server gives it. Raises Permanent, which names the field."""
    meta = raw["metadata"]
    return Job(
        obj=raw,
        key=Key(str(meta.get("namespace", "")), str(meta["name"])),
        uid=str(meta.get("uid", "")),
        generation=int(meta.get("generation", 0)),
        spec=parse_paddle_job_spec(raw),
        status=parse_status(raw.get("status") or {}),
        deleted_at=parse_stamp(meta.get("deletionTimestamp")),
    )


def parse_status(status: Raw) -> JobStatus:
    """The status as this service wrote it, or an older controller did."""
    return JobStatus(
        phase=str(status.get("phase", "")),
        mode=str(status.get("mode", "")),
        roles={role: _role_status(status[role]) for role in ROLES if status.get(role)},
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
