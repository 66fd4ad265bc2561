"""Splits the output of a container into lines of bounded length."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator

LONGEST = 1 << 20
"""Maximum bytes of a line. A longer line is split."""
# A carriage return at the end of a chunk waits for the next chunk, which may begin with its line feed.
_END = re.compile(rb"\r?\n|\r(?=[^\n])")


async def log_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The lines with their line ends. The carriage return of a progress bar ends a line, too."""
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
