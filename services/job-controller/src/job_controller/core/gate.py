"""What keeps a job's pods from being created."""

from __future__ import annotations

from dataclasses import dataclass

from job_controller.core.model import Observed, Options
from paddlewheel.contracts.reasons import Reason


@dataclass(frozen=True)
class Gate:
    """Whether pods may be created, and why."""

    is_open: bool
    reason: Reason
    message: str = ""


_PASSED = Gate(True, Reason.NOTHING_TO_WAIT_FOR)


def decide_gate(seen: Observed, options: Options, *, has_ended: bool) -> Gate:
    """The first closed gate. When no gate is closed, an open gate with its reason. A job that has ended waits
    for nothing."""
    gates = [gate for feature in seen.features if (gate := feature.gate(seen, options))]
    closed = (gate for gate in gates if not gate.is_open and not has_ended)
    return next(closed, next((gate for gate in gates if gate.is_open), _PASSED))
