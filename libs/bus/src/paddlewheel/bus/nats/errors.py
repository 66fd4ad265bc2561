"""The only place where NATS errors become errors of this project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import nats.errors
from nats.js.errors import APIError

from paddlewheel.bus.streams import BUS_FULL
from paddlewheel.core.errors import Permanent, Retry, Unavailable

MESSAGE_TOO_LARGE = 10054
HEADERS_TOO_LARGE = 10097
STORE_FULL = 10077
WRONG_LAST_SEQUENCE = (10071, 10164)
CONSUMER_EXISTS = 10148
"""The existing consumer has another configuration than the one to create."""
STREAM_NAME_IN_USE = 10058
NO_MESSAGE = 10037
STREAM_NOT_FOUND = 10059
STREAM_MISSING = "StreamMissing"
"""Reason of the Retry for that error."""
UNCHANGEABLE = 10052
"""This field of a stream cannot be changed while it runs."""
NO_ROOM = (10005, 10074)
"""There are not enough servers for the requested replicas, or they are not joined."""
NO_STORAGE = (10023, 10047)
"""The limits of all streams add up to more bytes than the server has."""
STORAGE_TOO_SMALL = "BusStorageTooSmall"
"""Reason of the Retry for these errors."""
STORAGE_FIX = "raise nats.jetstream.maxFileStore"

_MALFORMED = (nats.errors.MaxPayloadError, nats.errors.BadSubjectError, nats.errors.BadHeaderError)


class FeedLostError(Exception):
    """No further message can arrive: the connection, the consumer or the stream is gone."""


@contextmanager
def mapped(what: str) -> Iterator[None]:
    """Run a NATS call.

    Raises:
        Permanent: the call can never succeed.
        Unavailable: no connection, or no answer in time.
        Retry: the server refused for now.
    """
    try:
        yield
    except (nats.errors.Error, OSError) as error:
        raise translated(what, error) from error


def translated(what: str, error: nats.errors.Error | OSError) -> Permanent | Retry:
    """The error of this project for an error of nats-py."""
    if isinstance(error, APIError):
        return from_server(what, error)
    if isinstance(error, _MALFORMED):
        return Permanent("NotStorable", f"{what}: {error}")
    if isinstance(error, nats.errors.NoRespondersError):
        return Retry("BusRefused", f"{what}: no responders")
    return Unavailable("BusUnreachable", f"{what}: {str(error) or type(error).__name__}")


def from_server(what: str, error: APIError) -> Permanent | Retry:
    text = f"{what}: {error.description or type(error).__name__}"
    if error.err_code in (MESSAGE_TOO_LARGE, HEADERS_TOO_LARGE):
        return Permanent("TooLarge", text)
    if error.err_code == STREAM_NOT_FOUND:
        return Retry(STREAM_MISSING, text)
    if error.err_code == STORE_FULL:
        return Retry(BUS_FULL, text)
    if error.err_code in NO_STORAGE:
        return Retry(STORAGE_TOO_SMALL, f"{text}: {STORAGE_FIX}")
    return Retry("BusRefused", text)
