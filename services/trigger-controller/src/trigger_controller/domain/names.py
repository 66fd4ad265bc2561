"""The names, labels, annotations and condition types of this service.

Reasons are in `paddlewheel.contracts.reasons`.
"""

from __future__ import annotations

import base64
import hashlib

SERVICE = "trigger-controller"

API_VERSION = "events.paddlepaddle.org/v1alpha1"
TRIGGER = "Trigger"
SAMPLE_JOB = "SampleJob"
PADDLE_JOB = "PaddleJob"
API_VERSIONS = {SAMPLE_JOB: "batch.paddlepaddle.org/v1alpha1", PADDLE_JOB: "batch.paddlepaddle.org/v1"}
"""Kinds of objects that a trigger can create, with their API versions."""

LABEL_TRIGGER = "events.paddlepaddle.org/trigger"
"""The label of children with the name of their trigger."""
ANNOTATION_EVENT = "events.paddlepaddle.org/event"
"""The annotation of children with the ce-id of the event whose values fill the template."""
ANNOTATION_EVENTS = "events.paddlepaddle.org/events"
"""The annotation of children with the number of events for which they were created."""
ANNOTATION_CHAIN = "events.paddlepaddle.org/chain"
"""The annotation of children with the uids of the triggers that led to them, the oldest first, joined by
commas."""

ANNOTATION_RETRY = "events.paddlepaddle.org/retry"
"""The annotation of a Trigger that requests a retry: when its value changes, failed actions are tried again
at once."""
ANNOTATION_LOST = "events.paddlepaddle.org/lost-known"
"""The annotation of a Trigger with the number of lost events that the user has acknowledged."""

CONDITION_READY = "Ready"
CONDITION_LOOP = "LoopGuarded"
CONDITION_BLOCKED = "Blocked"
CONDITION_LOST = "EventsLost"
CONDITIONS = (CONDITION_READY, CONDITION_LOOP, CONDITION_BLOCKED, CONDITION_LOST)

FINALIZER = "events.paddlepaddle.org/facts"
"""The finalizer of every Trigger. It keeps a deleted trigger until its facts are published."""

DIGEST_LENGTH = 16
_SHORT = 10


def digest(trigger_uid: str, event_id: str) -> str:
    """The digest that identifies an event of a trigger: 80 bits as 16 letters and digits."""
    hashed = hashlib.sha256(f"{trigger_uid}\0{event_id}".encode()).digest()
    return base64.b32encode(hashed[: DIGEST_LENGTH * 5 // 8]).decode().lower()


def child_name(trigger: str, trigger_uid: str, event_id: str) -> str:
    """The name of the object for an event. It is the same in all attempts."""
    return f"{trigger}-{digest(trigger_uid, event_id)[:_SHORT]}"
