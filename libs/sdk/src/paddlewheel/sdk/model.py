"""The event that a subscriber receives."""

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
    """A fact, and the Kubernetes object that it is about.

    Attributes:
        data: the message of the fact: `match event.data: case JobSucceeded(seconds=s): ...`.
        time: when the fact became true.
        id: id of the fact. It is the same each time that the event is delivered.
        object: the Kubernetes object. Its `uid` distinguishes it from an earlier object with the same name.
        attempt: number of the delivery under a durable name, from 1.
        sequence: sequence number in the stream.
        stored_at: when the bus stored the event.
    """

    object: ObjectRef
    attempt: int
    sequence: int
    stored_at: datetime


def received(delivery: Delivery) -> Event:
    """The event that a delivery contains."""
    event = delivery.event
    return Event(
        **{field.name: getattr(event, field.name) for field in fields(event)},
        object=about(event.data, event.subject),
        attempt=delivery.attempt,
        sequence=delivery.sequence,
        stored_at=delivery.published_at,
    )


def about(data: BaseModel, subject: str) -> ObjectRef:
    """The object that a fact is about. The subject has its namespace and uid, the message has its name."""
    place = parse_event_subject(subject)
    given = [value for _, value in data if isinstance(value, ObjectRef)]
    if found := next((ref for ref in given if ref.uid == place.uid), None):
        return found
    # Facts of the cache have no ObjectRef; they name their set in separate fields.
    return ObjectRef(namespace=place.namespace, uid=place.uid, name=getattr(data, "set_name", ""))
