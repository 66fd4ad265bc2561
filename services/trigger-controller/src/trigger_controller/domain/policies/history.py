"""Which ended children are kept."""

from __future__ import annotations

from trigger_controller.domain.model import ChildRef, Observed, Outcome


def outdated(seen: Observed) -> tuple[ChildRef, ...]:
    """The oldest of those that ended, beyond the limits; nothing that still runs."""
    spec = seen.trigger.spec
    limits = {
        Outcome.SUCCEEDED: spec.successful_jobs_history_limit,
        Outcome.FAILED: spec.failed_jobs_history_limit,
    }
    return tuple(ref for outcome, limit in limits.items() for ref in _beyond(seen, outcome, limit))


def _beyond(seen: Observed, outcome: Outcome, limit: int) -> list[ChildRef]:
    ended = [child for child in seen.children if child.outcome is outcome]
    newest_first = sorted(ended, key=lambda child: (child.created_at, child.ref.name), reverse=True)
    return [child.ref for child in newest_first[limit:]]
