"""Requests to JetStream's API that no client of nats-py's has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nats.js.errors import APIError

from paddlewheel.bus.nats.connection import Connection

API = "$JS.API"


async def ask_api(
    connection: Connection,
    call: str,
    stream: str,
    body: Mapping[str, object] | None = None,
    absent: int | None = None,
) -> dict[str, Any]:
    """The answer of the stream's leader; {} for an error with code `absent`. Raises Retry."""
    async with connection.calling(f"{call} of {stream}"):
        request = b"" if body is None else json.dumps(body).encode()
        raw = await connection.request(f"{API}.{call}.{stream}", request)
        answer: dict[str, Any] = json.loads(raw)
        if error := answer.get("error"):
            if error["err_code"] == absent:
                return {}
            APIError.from_error(error)
        return answer
