"""The result of a rule that may keep a job's pods from being created."""

from __future__ import annotations

from dataclasses import dataclass

from paddlewheel.contracts.reasons import Reason


@dataclass(frozen=True)
class Gate:
    """Whether pods may be created, and why."""

    is_open: bool
    reason: Reason
    message: str = ""
