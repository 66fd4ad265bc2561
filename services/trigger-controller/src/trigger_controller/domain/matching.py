"""Which triggers an event concerns."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.crds import TriggerSpec
from paddlewheel.contracts.crds.trigger import FactSource, ObjectStoreSource
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.objectstore_v1 import ObjectCreated, ObjectRemoved
from paddlewheel.contracts.subjects import parse_event_subject
from trigger_controller.domain import names
from trigger_controller.domain.model import Occurrence, Trigger

CLOCK_SKEW = timedelta(seconds=5)
"""How far the clocks of the API server and of those who tell facts may lie apart."""

_KINDS = {("jobs", "job"): names.PADDLE_JOB, ("datasets", "samplejob"): names.SAMPLE_JOB}


def read_occurrence(event: Event, published_at: datetime) -> Occurrence | None:
    """The event as triggers see it; None for one that names no object."""
    if isinstance(event.data, (ObjectCreated, ObjectRemoved)):
        told = Occurrence(event.id, event.type, published_at)
        return replace(told, source=event.data.source, bucket=event.data.bucket, key=event.data.key)
    ref = _object_of(event)
    if ref is None:
        return None
    told = Occurrence(event.id, event.type, event.time)
    place = parse_event_subject(event.subject)
    kind = _KINDS.get((place.context, place.entity), "")
    return replace(told, namespace=ref.namespace, name=ref.name, uid=ref.uid, kind=kind)


def index_values(namespace: str, spec: TriggerSpec) -> list[str]:
    """Under what a trigger is found; one of them equals `index_value` of each event it may concern."""
    when = spec.when
    if when and when.fact:
        return [_fact_index(namespace, when.fact.type)]
    if when and when.object_store:
        return [_store_index(when.object_store.source, when.object_store.bucket)]
    return []


def index_value(occurrence: Occurrence) -> str:
    """What to look triggers up by."""
    if occurrence.is_notification:
        return _store_index(occurrence.source, occurrence.bucket)
    return _fact_index(occurrence.namespace, occurrence.type)


def concerns(trigger: Trigger, occurrence: Occurrence) -> bool:
    """The trigger is to act on the event: it is of its kind and place, and no older than the trigger."""
    when = trigger.spec.when
    if when is None or occurrence.at < trigger.created_at - CLOCK_SKEW:
        return False
    if when.object_store is not None:
        return occurrence.is_notification and _is_stored_there(when.object_store, occurrence)
    if when.fact is None or occurrence.namespace != trigger.key.namespace:
        return False
    return _is_fact(when.fact, occurrence)


def _is_fact(wanted: FactSource, occurrence: Occurrence) -> bool:
    name = wanted.object.name if wanted.object else ""
    creator = wanted.object.created_by if wanted.object else ""
    return (
        occurrence.type == wanted.type
        and name in ("", occurrence.name)
        and creator in ("", occurrence.creator)
    )


def _is_stored_there(wanted: ObjectStoreSource, occurrence: Occurrence) -> bool:
    return (
        (occurrence.source, occurrence.bucket) == (wanted.source, wanted.bucket)
        and occurrence.key.startswith(wanted.prefix)
        and occurrence.key.endswith(wanted.suffix)
        and occurrence.type.rpartition(".")[2] in wanted.events
    )


def _object_of(event: Event) -> ObjectRef | None:
    """The object a fact is about: its message's field of that type."""
    if not isinstance(event.data, WireModel):
        return None
    values = (getattr(event.data, name) for name in type(event.data).model_fields)
    return next((v for v in values if isinstance(v, ObjectRef)), None)


def _fact_index(namespace: str, type_: str) -> str:
    return f"fact/{namespace}/{type_}"


def _store_index(source: str, bucket: str) -> str:
    return f"store/{source}/{bucket}"
