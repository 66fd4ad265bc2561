"""Decides when gathered events fire."""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.crds.trigger import StatusGathered
from trigger_controller.domain.facts import outbox_room
from trigger_controller.domain.model import Observed, Outcome
from trigger_controller.timing import CHILDREN_LIST_INTERVAL_SECONDS, RELEASE_RETRY_INTERVAL_SECONDS

ALLOW, FORBID, REPLACE = "Allow", "Forbid", "Replace"


def gathers(seen: Observed) -> bool:
    """Whether events of this trigger are gathered: for a batch, until a job ends, or because others wait
    already."""
    spec, status = seen.trigger.spec, seen.status
    waits = status.waiting is not None or status.firing is not None
    is_direct = spec.batch is None and spec.concurrency_policy == ALLOW and not seen.trigger.template.problems
    return waits or not is_direct


def may_fire(seen: Observed) -> bool:
    """Whether gathered events may fire when their time has come."""
    trigger = seen.trigger
    is_wrong = bool(trigger.template.problems or trigger.ungranted or trigger.unscheduled)
    return not (seen.is_blind or trigger.spec.suspend or is_wrong)


def wait_before_release(seen: Observed, status: TriggerStatus, now: datetime) -> float | None:
    """Seconds until waiting events may fire; None if no events wait, or if they wait for something else than
    time."""
    waiting = status.waiting
    if waiting is None or status.firing is not None or not may_fire(seen):
        return None
    if seen.trigger.spec.concurrency_policy == FORBID and is_busy(seen):
        return None
    room = 0.0 if outbox_room(status) else RELEASE_RETRY_INTERVAL_SECONDS
    sure = CHILDREN_LIST_INTERVAL_SECONDS if seen.is_cached else 0.0
    return max(room, sure, _until_quiet(seen, waiting, now), _until_retry(seen, status, now))


def is_busy(seen: Observed) -> bool:
    """Whether a job of this trigger is running."""
    return any(child.outcome is Outcome.ACTIVE for child in seen.children)


def _until_quiet(seen: Observed, waiting: StatusGathered, now: datetime) -> float:
    batch = seen.trigger.spec.batch
    if batch is None or 0 < batch.max_events <= waiting.events:
        return 0.0
    quiet_at = waiting.until + timedelta(seconds=batch.quiet_seconds)
    return max(0.0, (quiet_at - now).total_seconds())


def _until_retry(seen: Observed, status: TriggerStatus, now: datetime) -> float:
    """Seconds until a refused template is tried again: 0 if it was changed, otherwise after an interval."""
    refused = status.refused
    if refused is None or refused.generation != seen.trigger.generation:
        return 0.0
    return max(0.0, (refused.retry_at - now).total_seconds())
