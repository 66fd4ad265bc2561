"""What a user has to correct: raised where it is found, kept as a value with the parsed object."""

from __future__ import annotations

from dataclasses import dataclass

from paddlewheel.contracts.reasons import Reason


@dataclass(frozen=True)
class Problem:
    """Something the user wrote that cannot work.

    Args:
        message: names the field or key and the remedy; never contains a Secret's value.
        takes_back: what was copied of the Secret must not be kept.
    """

    reason: Reason
    message: str
    takes_back: bool = False


class Invalid(Exception):  # noqa: N818 - a verdict on input, not a failure
    """Raises a `Problem`."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.problem = Problem(reason, message)
