"""NATS's PUB and HPUB frames, made in one go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from paddlewheel.core.errors import Permanent

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BROKEN_SUBJECT = re.compile(r"^$|[ \t\r\n]")
_BREAKS = str.maketrans("\r\n", "  ")
_LINES = 2
"""Beside one per header: the version and the empty one."""


def header_block(headers: Mapping[str, str]) -> bytes:
    """Headers as they lie on the wire; breaks in a value become spaces. Raises Permanent for a bad name."""
    if not headers:
        return b""
    text = _joined(headers)
    if text.count("\n") != len(headers) + _LINES or text.count("\r") != len(headers) + _LINES:
        text = _joined({name: value.translate(_BREAKS) for name, value in headers.items()})
    return text.encode()


def publish_frame(subject: str, reply: bytes, block: bytes, data: bytes) -> bytes:
    """One message for the server. Raises Permanent for a subject that would break the protocol."""
    if _BROKEN_SUBJECT.search(subject):
        raise Permanent("NotStorable", f"subject {subject!r} is empty or has white space")
    place, size = subject.encode(), len(block) + len(data)
    if not block:
        return b"PUB %b %b %d\r\n%b\r\n" % (place, reply, size, data)
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (place, reply, len(block), size, block, data)


def _joined(headers: Mapping[str, str]) -> str:
    lines = [f"{_checked(name)}: {value.strip()}\r\n" for name, value in headers.items()]
    return f"NATS/1.0\r\n{''.join(lines)}\r\n"


@lru_cache(maxsize=512)
def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Permanent("NotStorable", f"header name {name!r} is not a token of printable ASCII")
    return name
