"""Requests of JetStream's API that nats-py does not offer, and reads of single stored messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nats.js.errors import APIError

from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.errors import NO_MESSAGE
from paddlewheel.bus.ports import RawMessage
from paddlewheel.contracts.base import read_time

API = "$JS.API"
MISSING = 404
"""The code of all errors about an object that does not exist."""
_FIRST_LINE = b"NATS/1.0\r\n"

Json = dict[str, Any]


@dataclass(frozen=True)
class Stored:
    """A stored message, its sequence, and when it was stored."""

    message: RawMessage
    sequence: int
    at: datetime


async def ask_api(
    connection: Connection, call: str, body: Mapping[str, object] | None = None, *, absent: int = MISSING
) -> Json | None:
    """The answer to an API request; None for the error `absent`.

    Args:
        call: the subject without the prefix `API`, or a whole subject for the API of another account.
        absent: the code of the error that returns None; 0 = every error is raised.

    Raises:
        Retry, Permanent: the server answered with another error.
    """
    subject = call if call.startswith("pw.") else f"{API}.{call}"
    async with connection.calling(call):
        request = b"" if body is None else json.dumps(body).encode()
        answer: Json = json.loads(await connection.request(subject, request))
        error = answer.get("error")
        if not error:
            return answer
        if absent in (error["code"], error["err_code"]):
            return None
        raise APIError(error["code"], error.get("description"), error["err_code"])


async def get_message(
    connection: Connection, stream: str, which: Mapping[str, object], *, absent: int = NO_MESSAGE
) -> Stored | None:
    """Read one message from the leader of its stream; None when there is none. nats-py's `get_msg` cannot
    read headers with other characters than ASCII."""
    answer = await ask_api(connection, f"STREAM.MSG.GET.{stream}", which, absent=absent)
    if answer is None:
        return None
    found = answer["message"]
    headers = _read_headers(base64.b64decode(found.get("hdrs", "")))
    message = RawMessage(found["subject"], base64.b64decode(found.get("data", "")), headers)
    return Stored(message, found["seq"], read_time(found["time"]))


def _read_headers(block: bytes) -> dict[str, str]:
    """Headers as they are stored. Bytes that are no text are replaced, and nameless headers are left out."""
    lines = block.removeprefix(_FIRST_LINE).decode(errors="replace").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, colon, value in pairs if colon and name.strip()}
