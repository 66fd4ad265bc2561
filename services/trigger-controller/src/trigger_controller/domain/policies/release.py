"""When gathered events fire."""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.crds.trigger import StatusGathered
from trigger_controller.domain.facts import outbox_room
from trigger_controller.domain.model import Observed, Outcome
from trigger_controller.timing import CHILDREN_LIST_INTERVAL_SECONDS, RELEASE_RETRY_INTERVAL_SECONDS

ALLOW, FORBID, REPLACE = "Allow", "Forbid", "Replace"


def gathers(seen: Observed) -> bool:
    """Events of this trigger are gathered first: for a batch, for their turn, or behind others that wait."""
    spec, status = seen.trigger.spec, seen.status
    waits = status.waiting is not None or status.firing is not None
    is_direct = spec.batch is None and spec.concurrency_policy == ALLOW and not seen.trigger.template.problems
    return waits or not is_direct


def may_fire(seen: Observed) -> bool:
    """Nothing keeps gathered events from firing but their time."""
    trigger = seen.trigger
    is_wrong = bool(trigger.template.problems or trigger.ungranted or trigger.unscheduled)
    return not (seen.is_blind or trigger.spec.suspend or is_wrong)


def wait_before_release(seen: Observed, status: TriggerStatus, now: datetime) -> float | None:
    """Seconds until what waits may fire, 0 for now, None for not by the clock (or nothing waits)."""
    waiting = status.waiting
    if waiting is None or status.firing is not None or not may_fire(seen):
        return None
    if seen.trigger.spec.concurrency_policy == FORBID and is_busy(seen):
        return None
    room = 0.0 if outbox_room(status) else RELEASE_RETRY_INTERVAL_SECONDS
    sure = CHILDREN_LIST_INTERVAL_SECONDS if seen.is_cached else 0.0
    return max(room, sure, _until_quiet(seen, waiting, now), _until_retry(seen, status, now))


def is_busy(seen: Observed) -> bool:
    """Work that this trigger started goes on."""
    return any(child.outcome is Outcome.ACTIVE for child in seen.children)


def _until_quiet(seen: Observed, waiting: StatusGathered, now: datetime) -> float:
    batch = seen.trigger.spec.batch
    if batch is None or 0 < batch.max_events <= waiting.events:
        return 0.0
    quiet_at = waiting.until + timedelta(seconds=batch.quiet_seconds)
    return max(0.0, (quiet_at - now).total_seconds())


def _until_retry(seen: Observed, status: TriggerStatus, now: datetime) -> float:
    """A refused template is tried again when it was changed, and now and then: quotas recover."""
    refused = status.refused
    if refused is None or refused.generation != seen.trigger.generation:
        return 0.0
    return max(0.0, (refused.retry_at - now).total_seconds())
