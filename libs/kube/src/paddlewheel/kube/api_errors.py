"""The only place that maps HTTP responses and broken connections to the errors of this project."""

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
    """HTTP 410: the resourceVersion or the page token is too old. List again from the start."""


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> PaddlewheelError:
    """The error for an HTTP status that is not 2xx, with the message of the server."""
    reason, message = _reason_and_message(status, body)
    if status == 404:
        return NotFound(message)
    if status == 409:
        return AlreadyExists(message) if reason == "AlreadyExists" else Conflict(message)
    if status == 410:
        return Expired(reason, message)
    # 401: the service account token was rotated. The client reads the new token within a minute.
    if status in (401, 408, 429) or status >= 500:
        return Retry(reason, message, after=_retry_after(headers))
    return Permanent(reason, message)


def unreachable(error: Exception) -> Retry:
    """The error for a call without a response. It is unknown whether the call had an effect.

    The time-out of a call that was sent is not `Unavailable`: it may concern this call only, for example when
    the admission webhook of one namespace is slow.
    """
    message = str(error) or type(error).__name__
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError):
        return Retry("ApiServerTimeout", message)
    return Unavailable("ApiServerUnreachable", message)


def _reason_and_message(status: int, body: bytes) -> tuple[str, str]:
    """Reason and message of the `Status` object in the body, or the HTTP status and the body."""
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
