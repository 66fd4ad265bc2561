"""The one place where HTTP answers and broken connections become this project's errors."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp
import orjson

from paddlewheel.core.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    PaddlewheelError,
    Permanent,
    Retry,
    Unavailable,
)


class Expired(Retry):
    """410: the resourceVersion or the page token is too old; list again from the start."""


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> PaddlewheelError:
    """The error for an HTTP status other than 2xx, with the message of the server."""
    reason, message = _words(status, body)
    if status == 404:
        return NotFound(message)
    if status == 409:
        return AlreadyExists(message) if reason == "AlreadyExists" else Conflict(message)
    if status == 410:
        return Expired(reason, message)
    # 401: a service account token has just been rotated and is read again within a minute.
    if status in (401, 408, 429) or status >= 500:
        return Retry(reason, message, after=_retry_after(headers))
    return Permanent(reason, message)


def unreachable(error: Exception) -> Retry:
    """The server did not answer; whether the effect took place is not known.

    A time-out of a call that was sent may be due to this call alone, as to the admission webhook of a
    namespace: it is no `Unavailable`.
    """
    message = str(error) or type(error).__name__
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError):
        return Retry("ApiServerTimeout", message)
    return Unavailable("ApiServerUnreachable", message)


def _words(status: int, body: bytes) -> tuple[str, str]:
    """Reason and message of the `Status` object in the body, if it is one."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict):
        return f"Http{status}", body[:500].decode(errors="replace").strip()
    return str(parsed.get("reason") or f"Http{status}"), str(parsed.get("message", ""))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("Retry-After", "")
    return float(value) if value.isdigit() else None
