"""Which events count as dealt with although nothing remembers them: facts that come back start nothing."""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlewheel.contracts.crds import TriggerStatus

RECALL = timedelta(days=13)
"""How old an event may be for its absence from the memory to mean anything: a day less than the bucket's age
(`streams.FIRED`). A stream keeps no fact that long, so an older one is a repetition from a status."""


def is_too_old(happened: datetime, now: datetime) -> bool:
    """The memory may have forgotten the event by now."""
    return now - happened > RECALL


def is_known(status: TriggerStatus, happened: datetime, lost_until: datetime) -> bool:
    """The memory has lost the events up to a time, this one among them. As long as the status holds all that
    the trigger ever took in, it can tell by itself."""
    return happened <= lost_until and status.events > len(status.recent)
