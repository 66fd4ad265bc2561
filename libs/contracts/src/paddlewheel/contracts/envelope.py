"""The CloudEvents envelope around every event, and its form on the wire (headers + proto3 JSON body)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel


@dataclass(frozen=True)
class Event:
    """One fact: a generated contract model plus where it belongs.

    `id` is deterministic (`<uid>/<fact>/<attempt>`), so publishing twice stores once.
    `type` is the proto full name (`paddlewheel.jobs.v1.JobRunning`), `subject` the NATS subject.
    """

    id: str
    type: str
    source: str
    subject: str
    time: datetime
    data: BaseModel
    traceparent: str = ""
