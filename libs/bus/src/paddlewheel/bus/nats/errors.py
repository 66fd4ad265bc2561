"""NATS errors become ours here, once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import nats.errors
from nats.js.errors import APIError

from paddlewheel.core.errors import Permanent, Retry

MESSAGE_TOO_LARGE = 10054
STORE_FULL = 10077
WRONG_LAST_SEQUENCE = (10071, 10164)
CONSUMER_NOT_FOUND = 10014
STREAM_NAME_IN_USE = 10058


class FeedLostError(Exception):
    """Messages no longer come in: the connection, the consumer or the stream is gone."""


@contextmanager
def mapped(what: str) -> Iterator[None]:
    """Run a NATS call. Raises Permanent for what can never work, Retry for everything else that failed."""
    try:
        yield
    except (nats.errors.MaxPayloadError, nats.errors.BadSubjectError, nats.errors.BadHeaderError) as error:
        raise Permanent("NotStorable", f"{what}: {error}") from error
    except APIError as error:
        raise _from_server(what, error) from error
    except (nats.errors.Error, OSError) as error:
        raise Retry("BusUnreachable", f"{what}: {str(error) or type(error).__name__}") from error


def _from_server(what: str, error: APIError) -> Permanent | Retry:
    text = f"{what}: {error.description or type(error).__name__}"
    if error.err_code == MESSAGE_TOO_LARGE:
        return Permanent("TooLarge", text)
    if error.err_code == STORE_FULL:
        return Retry("BusFull", text)
    return Retry("BusRefused", text)
