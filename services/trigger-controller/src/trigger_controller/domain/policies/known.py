"""Decides which events count as handled although their marks are gone, so that old facts create nothing
again."""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlewheel.contracts.crds import TriggerStatus
from trigger_controller.timing import EVENT_RECALL_GRACE_SECONDS


def is_too_old(happened: datetime, now: datetime) -> bool:
    """Whether the mark of the event may have expired."""
    return now - happened > timedelta(seconds=EVENT_RECALL_GRACE_SECONDS)


def is_known(status: TriggerStatus, happened: datetime, lost_until: datetime) -> bool:
    """Whether the event counts as handled, because marks up to `lost_until` are lost.

    If the status still contains all events of the trigger, it shows by itself which ones were handled.
    """
    return happened <= lost_until and status.events > len(status.recent)
