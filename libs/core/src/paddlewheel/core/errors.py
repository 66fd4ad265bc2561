"""The three kinds of failure. Adapters map what they meet to these once; everything else is a bug."""
# ruff: noqa: N818 - these name what to do about the failure, not that it is one.

from __future__ import annotations


class PaddlewheelError(Exception):
    """Base of every error this project raises on purpose."""


class Retry(PaddlewheelError):
    """The effect did not happen and may succeed later.

    Args:
        reason: CamelCase word for metrics and conditions.
        message: what happened, for a person.
        after: seconds to wait before the next try; None lets the caller's backoff decide.
    """

    def __init__(self, reason: str, message: str = "", *, after: float | None = None) -> None:
        super().__init__(f"{reason}: {message}" if message else reason)
        self.reason = reason
        self.message = message
        self.after = after


class Unavailable(Retry):
    """Nobody answered: no connection, or a time-out. Any other Retry is an answer, so the peer is up."""


class Permanent(PaddlewheelError):
    """The effect can never succeed as asked; `reason` is CamelCase, `message` names the remedy."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class NotFound(PaddlewheelError):
    """The named object, key or message does not exist."""


class AlreadyExists(PaddlewheelError):
    """An object or key of that name exists already."""


class Conflict(PaddlewheelError):
    """The object changed since it was read (HTTP 409, or a key's revision moved on)."""
