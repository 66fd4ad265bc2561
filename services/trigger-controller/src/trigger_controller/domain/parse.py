"""Parses raw Kubernetes objects into the types of `model.py`."""

from __future__ import annotations

from typing import Any

from paddlewheel.contracts.crds import TriggerSpec, parse_trigger_spec, parse_trigger_status
from paddlewheel.contracts.crds.trigger import StatusChild, When
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import finalizers_of
from paddlewheel.contracts.stamps import EPOCH, parse_stamp
from trigger_controller.domain import names
from trigger_controller.domain.model import Child, Origin, Outcome, Raw, Template, Trigger
from trigger_controller.domain.policies.grants import Grants, find_missing_grant
from trigger_controller.domain.template import find_problems
from trigger_controller.domain.timetable import find_schedule_problem

_OUTCOMES = {
    "Succeeded": Outcome.SUCCEEDED,
    "Completed": Outcome.SUCCEEDED,
    "Failed": Outcome.FAILED,
}


def parse_trigger(raw: dict[str, Any], grants: Grants) -> Trigger:
    """Parse a Trigger. Raises Permanent; the message names the field."""
    meta, spec = raw["metadata"], parse_trigger_spec(raw)
    annotations = meta.get("annotations") or {}
    return Trigger(
        obj=raw,
        key=Key(str(meta["namespace"]), str(meta["name"])),
        uid=str(meta.get("uid", "")),
        generation=int(meta.get("generation", 0)),
        created_at=parse_stamp(meta.get("creationTimestamp")) or EPOCH,
        deleted_at=parse_stamp(meta.get("deletionTimestamp")),
        finalizers=tuple(finalizers_of(raw)),
        spec=spec,
        template=_template(raw, spec),
        retry=str(annotations.get(names.ANNOTATION_RETRY, "")),
        lost_known=str(annotations.get(names.ANNOTATION_LOST, "")),
        unscheduled=find_schedule_problem(spec.when.schedule if spec.when else None),
        ungranted=find_missing_grant(spec, str(meta["namespace"]), grants),
        status=parse_trigger_status(raw),
    )


def parse_child(raw: Raw) -> Child:
    """Parse a SampleJob or PaddleJob that a trigger created."""
    meta = raw["metadata"]
    status = raw.get("status") or {}
    ref = StatusChild(kind=str(raw["kind"]), name=str(meta["name"]), uid=str(meta["uid"]))
    event_id = str((meta.get("annotations") or {}).get(names.ANNOTATION_EVENT, ""))
    outcome = _OUTCOMES.get(str(status.get("phase", "")), Outcome.ACTIVE)
    is_pending = any(not fact.get("announced") for fact in status.get("announcements") or ())
    return Child(ref, outcome, str(meta.get("creationTimestamp", "")), event_id, is_pending)


def parse_origin(raw: Raw) -> Origin:
    """The origin of an object; empty if no trigger created it."""
    meta = raw["metadata"]
    chain = str((meta.get("annotations") or {}).get(names.ANNOTATION_CHAIN, ""))
    creator = str((meta.get("labels") or {}).get(names.LABEL_TRIGGER, ""))
    return Origin(creator, tuple(part for part in chain.split(",") if part))


def _template(raw: Raw, spec: TriggerSpec) -> Template:
    """The template as raw JSON, so that all of its fields are passed on."""
    create = (raw.get("spec") or {}).get("create") or {}
    kind = names.SAMPLE_JOB if "sampleJob" in create else names.PADDLE_JOB
    chosen = create.get("sampleJob") or create.get("paddleJob") or {}
    metadata, body = chosen.get("metadata") or {}, chosen.get("spec") or {}
    return Template(kind, metadata, body, find_problems([metadata, body], spec.when or When()))
