"""Splitting a container's output into lines of bounded length."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator

LONGEST = 1 << 20
"""Bytes of a line; a longer one is cut."""
# A carriage return at the end of a chunk waits for its line feed.
_END = re.compile(rb"\r?\n|\r(?=[^\n])")


async def log_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Lines with their ends; the carriage return of a progress bar ends one too."""
    rest = b""
    async for chunk in chunks:
        rest += chunk
        start = 0
        for end in _END.finditer(rest):
            yield rest[start : end.end()]
            start = end.end()
        rest = rest[start:]
        if len(rest) >= LONGEST:
            yield rest
            rest = b""
    if rest:
        yield rest
