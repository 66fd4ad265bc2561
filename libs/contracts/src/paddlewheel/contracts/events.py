"""Facts as envelopes; `EVENTS` is the registry of all types on the bus."""

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
        data: one of the models in `EVENTS`.
        id: deterministic (`Announcement.event_id`); the stream stores one message per id.
        source: name of the publishing service.
        namespace: of the object the fact is about.
        uid: of the object the fact is about.
        time: when the fact became true, aware.
        traceparent: W3C trace context, "" = none.

    Raises:
        Permanent: `data` is not a fact, or namespace or uid is not valid in a subject.
    """
    type_ = type_name(data)
    if type_ not in EVENTS:
        raise Permanent("UnknownType", f"{type_} is a record, not a fact")
    return Event(id, type_, source, event_subject(type_, namespace, uid), time, data, traceparent)
