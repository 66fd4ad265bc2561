"""From raw Kubernetes JSON to the words of `model.py`."""

from __future__ import annotations

from datetime import UTC, datetime

from paddlewheel.contracts.conditions import parse_conditions
from paddlewheel.contracts.crds import TriggerStatus, parse_trigger_spec, parse_trigger_status
from paddlewheel.contracts.crds.trigger import StatusChild, StatusEvent, StatusGathered, StatusRefused
from paddlewheel.contracts.keys import Key
from trigger_controller.domain import names
from trigger_controller.domain.model import (
    Child,
    ChildRef,
    Gathered,
    Occurrence,
    Origin,
    Outcome,
    Raw,
    Refused,
    Status,
    Template,
    Trigger,
)

_OUTCOMES = {
    "Succeeded": Outcome.SUCCEEDED,
    "Completed": Outcome.SUCCEEDED,
    "Failed": Outcome.FAILED,
}
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def parse_trigger(raw: Raw) -> Trigger:
    """A Trigger as the API server gives it. Raises Permanent, which names the field."""
    meta, raw_spec = raw["metadata"], raw.get("spec") or {}
    return Trigger(
        key=Key(str(meta["namespace"]), str(meta["name"])),
        uid=str(meta.get("uid", "")),
        generation=int(meta.get("generation", 0)),
        resource_version=str(meta.get("resourceVersion", "")),
        created_at=_time(str(meta.get("creationTimestamp", ""))),
        is_deleting="deletionTimestamp" in meta,
        spec=parse_trigger_spec(raw),
        template=_template(raw_spec.get("create") or {}),
        status=_status(raw),
        raw_status=raw.get("status") or {},
    )


def parse_child(raw: Raw) -> Child:
    """A SampleJob or PaddleJob that a trigger created."""
    meta = raw["metadata"]
    phase = str((raw.get("status") or {}).get("phase", ""))
    ref = ChildRef(str(raw["kind"]), str(meta["name"]), str(meta["uid"]))
    return Child(ref, _OUTCOMES.get(phase, Outcome.ACTIVE), str(meta.get("creationTimestamp", "")))


def parse_origin(raw: Raw) -> Origin:
    """Who created this object; empty for what no trigger did."""
    meta = raw["metadata"]
    chain = str((meta.get("annotations") or {}).get(names.ANNOTATION_CHAIN, ""))
    creator = str((meta.get("labels") or {}).get(names.LABEL_TRIGGER, ""))
    return Origin(creator, tuple(part for part in chain.split(",") if part))


def _template(create: Raw) -> Template:
    kind = names.SAMPLE_JOB if "sampleJob" in create else names.PADDLE_JOB
    chosen = create.get("sampleJob") or create.get("paddleJob") or {}
    return Template(kind, chosen.get("metadata") or {}, chosen.get("spec") or {})


def _status(raw: Raw) -> Status:
    parsed: TriggerStatus = parse_trigger_status(raw)
    return Status(
        observed_generation=parsed.observed_generation,
        conditions=parse_conditions((raw.get("status") or {}).get("conditions")),
        events=parsed.events,
        skipped=parsed.skipped,
        fired=parsed.fired,
        active=parsed.active,
        last_fired=_time(parsed.last_fired_time) if parsed.last_fired_time else None,
        last_event=parsed.last_event,
        last_child=_child_ref(parsed.last_child),
        waiting=_gathered(parsed.waiting),
        firing=_gathered(parsed.firing),
        refused=_refused(parsed.refused),
        recent=parsed.recent,
    )


def _gathered(parsed: StatusGathered | None) -> Gathered | None:
    if parsed is None or parsed.newest is None:
        return None
    return Gathered(parsed.events, _time(parsed.since), _time(parsed.until), _occurrence(parsed.newest))


def _occurrence(parsed: StatusEvent) -> Occurrence:
    return Occurrence(
        id=parsed.id,
        type=parsed.type,
        at=_time(parsed.time),
        namespace=parsed.object_namespace,
        name=parsed.object_name,
        uid=parsed.object_uid,
        source=parsed.store_source,
        bucket=parsed.store_bucket,
        key=parsed.store_key,
        chain=parsed.chain,
    )


def _refused(parsed: StatusRefused | None) -> Refused | None:
    return Refused(parsed.generation, _time(parsed.retry_at)) if parsed else None


def _child_ref(parsed: StatusChild | None) -> ChildRef | None:
    return ChildRef(parsed.kind, parsed.name, parsed.uid) if parsed else None


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text) if text else _BEGINNING
