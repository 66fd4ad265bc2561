"""Which events count as dealt with although nothing remembers them: facts that come back start nothing."""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlewheel.contracts.crds import TriggerStatus
from trigger_controller.timing import EVENT_RECALL_GRACE_SECONDS


def is_too_old(happened: datetime, now: datetime) -> bool:
    """The memory may have forgotten the event by now."""
    return now - happened > timedelta(seconds=EVENT_RECALL_GRACE_SECONDS)


def is_known(status: TriggerStatus, happened: datetime, lost_until: datetime) -> bool:
    """The memory has lost the events up to a time, this one among them. As long as the status holds all that
    the trigger ever took in, it can tell by itself."""
    return happened <= lost_until and status.events > len(status.recent)
