"""The kinds of failure. Each adapter maps its errors to these in one place. Any other exception is a bug."""
# ruff: noqa: N818 - a name describes how to react to the failure.

from __future__ import annotations


class PaddlewheelError(Exception):
    """Base of all errors that this project raises deliberately."""

    exit_code = 1
    """Exit code of a process that this error ends."""


class Retry(PaddlewheelError):
    """The operation failed, and may succeed later.

    Args:
        reason: CamelCase identifier for metrics and conditions.
        message: human-readable description.
        after: seconds to wait before the next attempt. None means the caller's backoff.
    """

    def __init__(self, reason: str, message: str = "", *, after: float | None = None) -> None:
        super().__init__(f"{reason}: {message}" if message else reason)
        self.reason = reason
        self.message = message
        self.after = after


class Unavailable(Retry):
    """The server is unreachable for every call: there is no connection, or the bus does not answer.

    Any other Retry concerns one call: the server answered with an error, or this call took too long.
    """


class Permanent(PaddlewheelError):
    """The operation can never succeed as requested.

    Args:
        reason: CamelCase identifier for metrics and conditions.
        message: what is wrong, and what to do.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class NotFound(PaddlewheelError):
    """The named object, key or message does not exist."""


class AlreadyExists(PaddlewheelError):
    """An object or key with that name already exists."""


class Conflict(PaddlewheelError):
    """The object has changed since it was read (HTTP 409, or a newer revision of a key)."""
