"""Finds the triggers that an event concerns."""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.crds import parse_trigger_spec
from paddlewheel.contracts.crds.trigger import FactSource, ObjectStoreSource, StatusEvent
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.objectstore_v1 import ObjectCreated, ObjectRemoved
from paddlewheel.contracts.subjects import parse_event_subject
from paddlewheel.core.errors import Permanent
from trigger_controller.domain import names
from trigger_controller.domain.model import Occurrence, Raw, Trigger
from trigger_controller.timing import CLOCK_SKEW_GRACE_SECONDS

_KINDS = {("jobs", "job"): names.PADDLE_JOB, ("datasets", "samplejob"): names.SAMPLE_JOB}


def read_occurrence(event: Event, published_at: datetime) -> Occurrence | None:
    """The event in the form that triggers use; None if it is not about an object."""
    if isinstance(event.data, (ObjectCreated, ObjectRemoved)):
        return Occurrence(
            StatusEvent(
                id=event.id,
                type=event.type,
                time=published_at,
                store_source=event.data.source,
                store_bucket=event.data.bucket,
                store_key=event.data.key,
            )
        )
    ref = _object_of(event)
    if ref is None:
        return None
    read = StatusEvent(
        id=event.id,
        type=event.type,
        time=event.time,
        object_namespace=ref.namespace,
        object_name=ref.name,
        object_uid=ref.uid,
    )
    place = parse_event_subject(event.subject)
    return Occurrence(read, kind=_KINDS.get((place.context, place.entity), ""))


def index_values(raw: Raw) -> list[str]:
    """The values of a Trigger in the index. Events that may concern it have one of them as `index_value`."""
    try:
        # Parse only a part of the spec, because the template is expensive to parse.
        when = parse_trigger_spec({"spec": {"when": (raw.get("spec") or {}).get("when")}}).when
    except Permanent:
        # The reconciler reports it on the object.
        return []
    if when and when.fact:
        return [_fact_index(str(raw["metadata"]["namespace"]), when.fact.type)]
    if when and when.object_store:
        return [_store_index(when.object_store.source, when.object_store.bucket)]
    return []


def index_value(occurrence: Occurrence) -> str:
    """The value in the index of the triggers that the event may concern."""
    event = occurrence.event
    if occurrence.is_notification:
        return _store_index(event.store_source, event.store_bucket)
    return _fact_index(event.object_namespace, event.type)


def concerns(trigger: Trigger, occurrence: Occurrence) -> bool:
    """Whether the trigger must handle the event: the spec selects it, and it is not older than the
    trigger."""
    when = trigger.spec.when
    wanted = when.fact.object if when and when.fact else None
    is_creators = wanted is None or wanted.created_by in ("", occurrence.creator)
    return is_creators and may_concern(trigger, occurrence)


def may_concern(trigger: Trigger, occurrence: Occurrence) -> bool:
    """Whether `concerns` can be true, before the creator of the object is known."""
    return not trigger.ungranted and is_wanted(trigger, occurrence)


def is_wanted(trigger: Trigger, occurrence: Occurrence) -> bool:
    """Whether the spec selects the event, without regard to the trigger's grants."""
    when = trigger.spec.when
    if when is None or occurrence.event.time < trigger.created_at - timedelta(
        seconds=CLOCK_SKEW_GRACE_SECONDS
    ):
        return False
    if when.object_store is not None:
        return _is_stored_there(when.object_store, occurrence.event)
    if when.fact is None or occurrence.event.object_namespace != trigger.key.namespace:
        return False
    return _is_fact(when.fact, occurrence)


def _is_fact(wanted: FactSource, occurrence: Occurrence) -> bool:
    name = wanted.object.name if wanted.object else ""
    return occurrence.event.type == wanted.type and name in ("", occurrence.event.object_name)


def _is_stored_there(wanted: ObjectStoreSource, event: StatusEvent) -> bool:
    return (
        (event.store_source, event.store_bucket) == (wanted.source, wanted.bucket)
        and event.store_key.startswith(wanted.prefix)
        and event.store_key.endswith(wanted.suffix)
        and event.type.rpartition(".")[2] in wanted.events
    )


def _object_of(event: Event) -> ObjectRef | None:
    """The object that a fact is about: the first ObjectRef in its message."""
    if not isinstance(event.data, WireModel):
        return None
    values = (getattr(event.data, name) for name in type(event.data).model_fields)
    return next((v for v in values if isinstance(v, ObjectRef)), None)


def _fact_index(namespace: str, type_: str) -> str:
    return f"fact/{namespace}/{type_}"


def _store_index(source: str, bucket: str) -> str:
    return f"store/{source}/{bucket}"
