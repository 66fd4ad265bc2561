"""Each HTTP status becomes one of our errors, with the message of the server."""

from __future__ import annotations

import aiohttp
import orjson
import pytest

from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Permanent, Retry, Unavailable
from paddlewheel.kube.api_errors import Expired, error_of, unreachable


def status(code: int, reason: str) -> bytes:
    return orjson.dumps({"kind": "Status", "code": code, "reason": reason, "message": f"said {reason}"})


MAPPING = [
    (404, "NotFound", NotFound),
    (409, "AlreadyExists", AlreadyExists),
    (409, "Conflict", Conflict),
    (410, "Expired", Expired),
    (400, "BadRequest", Permanent),
    (403, "Forbidden", Permanent),
    (413, "RequestEntityTooLarge", Permanent),
    (415, "UnsupportedMediaType", Permanent),
    (422, "Invalid", Permanent),
    (401, "Unauthorized", Retry),
    (408, "Timeout", Retry),
    (429, "TooManyRequests", Retry),
    (500, "InternalError", Retry),
    (503, "ServiceUnavailable", Retry),
    (504, "Timeout", Retry),
]


@pytest.mark.parametrize(("code", "reason", "kind"), MAPPING)
def test_mapping(code: int, reason: str, kind: type[Exception]) -> None:
    error = error_of(code, {}, status(code, reason))
    assert type(error) is kind
    assert f"said {reason}" in str(error)


def test_permanent_carries_reason_and_message() -> None:
    error = error_of(422, {}, status(422, "Invalid"))
    assert isinstance(error, Permanent)
    assert (error.reason, error.message) == ("Invalid", "said Invalid")


@pytest.mark.parametrize(
    ("headers", "after"), [({"Retry-After": "7"}, 7.0), ({}, None), ({"Retry-After": "x"}, None)]
)
def test_the_server_says_how_long_to_wait(headers: dict[str, str], after: float | None) -> None:
    error = error_of(429, headers, status(429, "TooManyRequests"))
    assert isinstance(error, Retry)
    assert error.after == after


@pytest.mark.parametrize("body", [b"upstream is gone", b"", b"[1]", b"\xff\xfe"])
def test_a_body_that_is_no_status_object_is_survived(body: bytes) -> None:
    error = error_of(502, {}, body)
    assert isinstance(error, Retry)
    assert error.reason == "Http502"


@pytest.mark.parametrize(
    "error", [aiohttp.ConnectionTimeoutError(), aiohttp.ServerDisconnectedError(), ConnectionRefusedError()]
)
def test_a_server_without_a_connection_is_away(error: Exception) -> None:
    found = unreachable(error)
    assert isinstance(found, Unavailable)
    assert found.reason == "ApiServerUnreachable"


@pytest.mark.parametrize("error", [TimeoutError(), aiohttp.SocketTimeoutError()])
def test_a_call_that_takes_too_long_says_nothing_about_others(error: Exception) -> None:
    """The admission webhook of one namespace may hang while the server is available."""
    found = unreachable(error)
    assert not isinstance(found, Unavailable)
    assert found.reason == "ApiServerTimeout"
