"""The marks of the events that triggers have dealt with, a bounded number for each namespace.

A namespace has one entry for each beginning of a digest, and each entry keeps its newest marks. So a
namespace with many events forgets its own first, and the bucket has room for a dozen such namespaces.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

PREFIX_LENGTH = 2
"""Characters at the beginning of a digest, of 32: 1,024 entries for each namespace."""
MOST = 256
"""Marks in one entry, 17 bytes each."""

Marks = tuple[str, ...]


def key_of(namespace: str, digest: str) -> str:
    """The entry that has the mark of an event, if any has."""
    return f"marks.{namespace}.{digest[:PREFIX_LENGTH]}"


def read(value: bytes | None) -> Marks:
    """The digests, the newest last."""
    return tuple((value or b"").decode().split())


def write(marks: Iterable[str]) -> bytes:
    """The value of an entry."""
    return " ".join(marks).encode()


def added(marks: Marks, digests: Collection[str]) -> Marks:
    """Without the oldest when there are too many. Idempotent."""
    return (*marks, *(digest for digest in dict.fromkeys(digests) if digest not in marks))[-MOST:]
