# Generated from protos/paddlewheel/triggers/v1/triggers.proto by `make gen`; do not edit.
"""Facts about Triggers. Subject: pw.evt.triggers.trigger.<fact>.v1.<namespace>.<uid>"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Int64, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class TriggerFired(WireModel):
    """The trigger has created its object in the API server: once for each event, or once for a batch of events."""

    proto_name: ClassVar[str] = "paddlewheel.triggers.v1.TriggerFired"

    trigger: ObjectRef | None = None
    event_id: str = ""
    """ce-id of the event that started the work; of a batch, of its newest event; of a schedule, schedule-<time>."""
    event_type: str = ""
    """ce-type of that event; Schedule for a time of a schedule."""
    events: Int64 = 0
    """Events for which the object was created; more than 1 only for a batch."""
    kind: str = ""
    """SampleJob or PaddleJob."""
    created: ObjectRef | None = None
    """The object that was created."""


class TriggerFailed(WireModel):
    """The API server refused the object that the trigger's template renders. The events are kept in the trigger's status;
    one object is created for all of them once the template is corrected.
    """

    proto_name: ClassVar[str] = "paddlewheel.triggers.v1.TriggerFailed"

    trigger: ObjectRef | None = None
    event_id: str = ""
    """ce-id of the event that should have started the work; of a batch, of its newest event."""
    event_type: str = ""
    """ce-type of that event."""
    events: Int64 = 0
    """Waiting events."""
    reason: str = ""
    """CamelCase, as the API server gave it, e.g. Forbidden or Invalid."""
    message: str = ""
    """The API server's message."""
