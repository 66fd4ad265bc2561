"""The CloudEvents envelope of a fact. `wire` converts it to headers and a body."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel


@dataclass(frozen=True)
class Event:
    """A fact: its message and the attributes of a CloudEvent.

    Attributes:
        id: `<uid>/<fact>/<attempt>`. The stream stores one message for each id, so a fact may be published
            again.
        type: full name of the message in `protos/`, e.g. `paddlewheel.jobs.v1.JobRunning`.
        source: name of the service that publishes the fact.
        subject: NATS subject.
        time: when the fact became true, with a time zone.
        data: the message.
        traceparent: W3C trace context; "" = none.
    """

    id: str
    type: str
    source: str
    subject: str
    time: datetime
    data: BaseModel
    traceparent: str = ""
