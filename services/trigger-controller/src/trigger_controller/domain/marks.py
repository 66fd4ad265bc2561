"""The marks of events that triggers have handled, a limited number for each namespace.

A namespace has one entry for each beginning of a digest, and each entry keeps its newest marks. A namespace
with many events displaces only its own marks. The bucket has room for a dozen such namespaces.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

PREFIX_LENGTH = 2
"""Characters at the beginning of a digest. There are 32 characters, so a namespace has up to 1,024
entries."""
MOST = 256
"""Marks in one entry, at most. Each has 17 bytes."""

Marks = tuple[str, ...]


def key_of(namespace: str, digest: str) -> str:
    """The key of the entry that may contain the mark of an event."""
    return f"marks.{namespace}.{digest[:PREFIX_LENGTH]}"


def read(value: bytes | None) -> Marks:
    """Parse an entry: the digests, the newest last."""
    return tuple((value or b"").decode().split())


def write(marks: Iterable[str]) -> bytes:
    """Render an entry."""
    return " ".join(marks).encode()


def added(marks: Marks, digests: Collection[str]) -> Marks:
    """Add digests, and remove the oldest marks if there are too many. Idempotent."""
    return (*marks, *(digest for digest in dict.fromkeys(digests) if digest not in marks))[-MOST:]
