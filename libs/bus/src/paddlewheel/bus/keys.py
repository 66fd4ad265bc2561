"""The syntax of keys and key patterns of a bucket."""

from __future__ import annotations

import re

from paddlewheel.core.errors import Permanent

_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_PATTERN = re.compile(r"(>|(\*|[A-Za-z0-9_-]+)(\.(\*|[A-Za-z0-9_-]+))*(\.>)?)")


def check_key(key: str) -> str:
    """The key itself. Raises Permanent for anything that is not `a.b.c` of [A-Za-z0-9_-]."""
    if not _KEY.fullmatch(key):
        raise Permanent("MalformedKey", f"key {key!r}: use tokens of A-Z a-z 0-9 _ - joined by dots")
    return key


def check_pattern(pattern: str) -> str:
    """The pattern itself. Raises Permanent unless it is a key with `*` tokens or a final `>`."""
    if not _PATTERN.fullmatch(pattern):
        raise Permanent(
            "MalformedKey", f"pattern {pattern!r}: use a key, with * for any token and a final > for any rest"
        )
    return pattern
