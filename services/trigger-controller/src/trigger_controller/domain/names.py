"""Every name, label, annotation and condition type of this service, and the digests in names.

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
"""What a trigger can create."""

LABEL_TRIGGER = "events.paddlepaddle.org/trigger"
"""On every child: the trigger's name."""
ANNOTATION_EVENT = "events.paddlepaddle.org/event"
"""On every child: ce-id of the event whose values filled the template."""
ANNOTATION_EVENTS = "events.paddlepaddle.org/events"
"""On every child: how many events it was created for."""
ANNOTATION_CHAIN = "events.paddlepaddle.org/chain"
"""On every child: uids of the triggers that led to it, oldest first, joined by commas."""

ANNOTATION_RETRY = "events.paddlepaddle.org/retry"
"""On a Trigger: each new value has everything that failed tried again at once."""
ANNOTATION_LOST = "events.paddlepaddle.org/lost-known"
"""On a Trigger: the number of lost events that somebody has seen to."""

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
    """Identifies an event in a trigger's memory: 80 bits as letters and digits."""
    hashed = hashlib.sha256(f"{trigger_uid}\0{event_id}".encode()).digest()
    return base64.b32encode(hashed[: DIGEST_LENGTH * 5 // 8]).decode().lower()


def child_name(trigger: str, trigger_uid: str, event_id: str) -> str:
    """Name of the object created for an event: the same at every attempt."""
    return f"{trigger}-{digest(trigger_uid, event_id)[:_SHORT]}"
