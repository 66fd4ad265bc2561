"""A client that no message can bring down.

The server stores whatever bytes a stranger calls headers, and subjects that are no text. nats-py's reading
loop ends for good at either, without a word to anybody: consumers would be deaf while the message lies there.
"""

from __future__ import annotations

import base64

from nats.aio.client import Client
from nats.aio.msg import Msg

UNREADABLE = "unreadable-headers"
"""The header that holds, in base64, the bytes that were to be headers."""

_FIRST_LINE = b"NATS/1.0\r\n"


class SturdyClient(Client):
    """Reads what can be read and shows the rest as it is."""

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        try:
            read: dict[str, str] | None = await super()._process_headers(headers)
        except (IndexError, ValueError):
            return {UNREADABLE: base64.b64encode(headers or b"").decode()}
        return read

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        text = bytes(subject).decode(errors="backslashreplace")
        message: Msg = super()._build_message(sid, text.encode(), reply, data, headers)
        return message


def read_headers(block: bytes) -> dict[str, str]:
    """Headers as they lie in a stream."""
    return Client._parse_header_lines(block.removeprefix(_FIRST_LINE))
