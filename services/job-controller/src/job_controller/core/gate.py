"""The answer to the question whether pods may be created."""

from __future__ import annotations

from dataclasses import dataclass

from paddlewheel.contracts.reasons import Reason


@dataclass(frozen=True)
class Gate:
    """Whether pods may be created, and why."""

    is_open: bool
    reason: Reason
    message: str = ""
