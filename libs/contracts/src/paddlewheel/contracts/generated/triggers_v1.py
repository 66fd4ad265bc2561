# Generated from protos/paddlewheel/triggers/v1/triggers.proto by `make gen`; do not edit.
"""Facts about Triggers. Subject: pw.evt.triggers.trigger.<fact>.v1.<namespace>.<uid>"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Int64, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class TriggerFired(WireModel):
    """The trigger has created an object, for one event or for a batch of events."""

    proto_name: ClassVar[str] = "paddlewheel.triggers.v1.TriggerFired"

    trigger: ObjectRef | None = None
    event_id: str = ""
    """ce-id of the event; for a batch, of its newest event; for a schedule, schedule-<time>."""
    event_type: str = ""
    """ce-type of that event; Schedule for a schedule."""
    events: Int64 = 0
    """Number of events for which the object was created; more than 1 only for a batch."""
    kind: str = ""
    """Kind of the created object: SampleJob or PaddleJob."""
    created: ObjectRef | None = None
    """The created object."""


class TriggerFailed(WireModel):
    """The API server has refused the object that the trigger's template renders. The trigger's status keeps the events. Once the
    template is corrected, one object is created for all of them.
    """

    proto_name: ClassVar[str] = "paddlewheel.triggers.v1.TriggerFailed"

    trigger: ObjectRef | None = None
    event_id: str = ""
    """ce-id of the event; for a batch, of its newest event."""
    event_type: str = ""
    """ce-type of that event."""
    events: Int64 = 0
    """Number of waiting events."""
    reason: str = ""
    """Reason of the API server, as one CamelCase word, e.g. Forbidden or Invalid."""
    message: str = ""
    """Message of the API server."""
