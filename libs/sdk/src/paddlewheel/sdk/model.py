"""An event as a subscriber receives it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from pydantic import BaseModel

from paddlewheel.bus.ports import Delivery
from paddlewheel.contracts import envelope
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.subjects import parse_event_subject


@dataclass(frozen=True, kw_only=True)
class Event(envelope.Event):
    """One fact, and which Kubernetes object it is about.

    `data` is the typed fact (`match event.data: case JobSucceeded(seconds=s): ...`), `time` when it became
    true, `id` the same however often the event is delivered. `object.uid` distinguishes an object from an
    earlier one of the same name. `attempt` counts deliveries under a durable name, from 1; `stored_at` is
    when the bus stored it.
    """

    object: ObjectRef
    attempt: int
    sequence: int
    stored_at: datetime


def received(delivery: Delivery) -> Event:
    """The event in a delivery."""
    event = delivery.event
    return Event(
        **{field.name: getattr(event, field.name) for field in fields(event)},
        object=about(event.data, event.subject),
        attempt=delivery.attempt,
        sequence=delivery.sequence,
        stored_at=delivery.published_at,
    )


def about(data: BaseModel, subject: str) -> ObjectRef:
    """The object with the namespace and uid of the subject; only the fact has its name."""
    place = parse_event_subject(subject)
    given = [value for _, value in data if isinstance(value, ObjectRef)]
    if found := next((ref for ref in given if ref.uid == place.uid), None):
        return found
    # Facts of the data plane identify their set by separate fields.
    return ObjectRef(namespace=place.namespace, uid=place.uid, name=getattr(data, "set_name", ""))
