"""When gathered events fire."""

from __future__ import annotations

from datetime import datetime, timedelta

from trigger_controller.domain.model import Gathered, Observed, Outcome, Status

ALLOW, FORBID, REPLACE = "Allow", "Forbid", "Replace"


def gathers(seen: Observed) -> bool:
    """Events of this trigger are gathered first: for a batch, for their turn, or behind others that wait."""
    spec, status = seen.trigger.spec, seen.trigger.status
    waits = status.waiting is not None or status.firing is not None
    return waits or spec.batch is not None or spec.concurrency_policy != ALLOW


def wait_before_release(seen: Observed, status: Status, now: datetime) -> float | None:
    """Seconds until what waits may fire, 0 for now, None for not by the clock (or nothing waits)."""
    waiting, spec = status.waiting, seen.trigger.spec
    if waiting is None or status.firing is not None or spec.suspend:
        return None
    if spec.concurrency_policy == FORBID and is_busy(seen):
        return None
    return max(_until_quiet(seen, waiting, now), _until_retry(seen, status, now))


def is_busy(seen: Observed) -> bool:
    """Work that this trigger started goes on."""
    return any(child.outcome is Outcome.ACTIVE for child in seen.children)


def _until_quiet(seen: Observed, waiting: Gathered, now: datetime) -> float:
    batch = seen.trigger.spec.batch
    if batch is None or 0 < batch.max_events <= waiting.events:
        return 0.0
    quiet_at = waiting.until + timedelta(seconds=batch.quiet_seconds)
    return max(0.0, (quiet_at - now).total_seconds())


def _until_retry(seen: Observed, status: Status, now: datetime) -> float:
    """A refused template is tried again when it was changed, and now and then: quotas heal by themselves."""
    refused = status.refused
    if refused is None or refused.generation != seen.trigger.generation:
        return 0.0
    return max(0.0, (refused.retry_at - now).total_seconds())
