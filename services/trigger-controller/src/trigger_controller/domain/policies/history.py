"""The ended children that are kept, and the running child that is replaced."""

from __future__ import annotations

from collections.abc import Collection

from paddlewheel.contracts.crds.trigger import StatusChild
from trigger_controller.domain.model import Observed, Outcome
from trigger_controller.domain.policies.release import REPLACE


def outdated(seen: Observed) -> tuple[StatusChild, ...]:
    """The oldest ended children beyond the limits.

    A child whose event may be delivered again is kept; otherwise it would be created again. A child is also
    kept while its facts wait for the bus, because its deletion waits only for a limited time.
    """
    spec = seen.trigger.spec
    limits = {
        Outcome.SUCCEEDED: spec.successful_jobs_history_limit,
        Outcome.FAILED: spec.failed_jobs_history_limit,
    }
    beyond = (ref for outcome, limit in limits.items() for ref in _beyond(seen, outcome, limit))
    return tuple(ref for ref in beyond if ref.uid not in seen.unrecorded)


def replaced(seen: Observed, new: Collection[str]) -> tuple[StatusChild, ...]:
    """The running children that new ones replace. `new` has the names of the new ones."""
    if seen.trigger.spec.concurrency_policy != REPLACE or not new:
        return ()
    active = (c.ref for c in seen.children if c.outcome is Outcome.ACTIVE)
    return tuple(ref for ref in active if ref.name not in new)


def _beyond(seen: Observed, outcome: Outcome, limit: int) -> list[StatusChild]:
    ended = [child for child in seen.children if child.outcome is outcome]
    newest_first = sorted(ended, key=lambda child: (child.created_at, child.ref.name), reverse=True)
    return [child.ref for child in newest_first[limit:] if not child.has_pending_facts]
