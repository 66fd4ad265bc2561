"""The kinds of failure. Adapters map errors to these in one place; any other exception is a bug."""
# ruff: noqa: N818 - the names say how to react to the failure.

from __future__ import annotations


class PaddlewheelError(Exception):
    """Base of all errors that this project raises deliberately."""

    exit_code = 1
    """Of a process that this error ends."""


class Retry(PaddlewheelError):
    """The effect did not happen and may succeed later.

    Args:
        reason: CamelCase identifier for metrics and conditions.
        message: human-readable description.
        after: seconds to wait before the next attempt; None leaves it to the caller's backoff.
    """

    def __init__(self, reason: str, message: str = "", *, after: float | None = None) -> None:
        super().__init__(f"{reason}: {message}" if message else reason)
        self.reason = reason
        self.message = message
        self.after = after


class Unavailable(Retry):
    """The peer is away for everybody: no connection, or a bus that is silent. Any other Retry is about this
    call, as an answer is, or a call that takes too long although the peer is up."""


class Permanent(PaddlewheelError):
    """The effect can never succeed as asked; `reason` is CamelCase, `message` names the remedy."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class NotFound(PaddlewheelError):
    """The named object, key or message does not exist."""


class AlreadyExists(PaddlewheelError):
    """An object or key with that name already exists."""


class Conflict(PaddlewheelError):
    """The object changed since it was read (HTTP 409, or a newer revision of a key)."""
