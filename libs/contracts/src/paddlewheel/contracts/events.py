"""Creates the envelopes of facts. `EVENTS` is the registry of the types of all facts."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.generated.registry import EVENTS
from paddlewheel.contracts.subjects import event_subject, type_name
from paddlewheel.core.errors import Permanent

__all__ = ["EVENTS", "make_event"]


def make_event(
    data: BaseModel,
    *,
    id: str,  # noqa: A002 - the CloudEvents word
    source: str,
    namespace: str,
    uid: str,
    time: datetime,
    traceparent: str = "",
) -> Event:
    """Put a fact into its envelope.

    Args:
        data: the message; its model must be in `EVENTS`.
        id: `Announcement.event_id`; the stream stores one message for each id.
        source: name of the publishing service.
        namespace: namespace of the object that the fact is about.
        uid: uid of the object that the fact is about.
        time: when the fact became true, with a time zone.
        traceparent: W3C trace context; "" = none.

    Raises:
        Permanent: `data` is not a fact, or `namespace` or `uid` cannot be part of a subject.
    """
    type_ = type_name(data)
    if type_ not in EVENTS:
        raise Permanent("UnknownType", f"{type_} is a record, not a fact")
    return Event(id, type_, source, event_subject(type_, namespace, uid), time, data, traceparent)
