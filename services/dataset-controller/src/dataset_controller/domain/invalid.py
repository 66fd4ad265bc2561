"""What a user must mend, as one exception that becomes a condition."""

from __future__ import annotations


class Invalid(Exception):  # noqa: N818 - a verdict on input, not a failure
    """Something the user wrote cannot work.

    Args:
        reason: CamelCase word of the condition.
        message: names the field or key and the remedy; never holds a secret's value.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
