"""Whether a finished job's pods and Services are deleted."""

from __future__ import annotations

from job_controller.domain import names

_DELETED_AT = {
    "": {names.COMPLETED},
    "Always": {names.COMPLETED, names.FAILED},
    "OnFailure": {names.FAILED},
    "OnCompletion": {names.COMPLETED},
    "Never": set[str](),
}


def deletes_children(policy: str, phase: str) -> bool:
    """The contract's clean-up table; any other word means Never."""
    return phase in _DELETED_AT.get(policy, set())
