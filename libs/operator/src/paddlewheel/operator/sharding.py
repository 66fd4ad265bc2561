"""Assigns each key to one live replica."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection

from paddlewheel.contracts.keys import Key


def rendezvous(members: Collection[str], key: Key) -> str:
    """The member with the highest hash for the key. When a member leaves, only its keys move.

    Raises:
        ValueError: there is no member.
    """
    return max(members, key=lambda member: (_weight(member, key), member))


def _weight(member: str, key: Key) -> bytes:
    return hashlib.blake2b(f"{member}\0{key}".encode(), digest_size=8).digest()


class Shard:
    """The keys that belong to one replica."""

    def __init__(self, me: str, members: Callable[[], Collection[str]]) -> None:
        self._me = me
        self._members = members

    def owns(self, key: Key) -> bool:
        """True when the key belongs to this replica. False while this replica is not a live member."""
        members = self._members()
        return self._me in members and rendezvous(members, key) == self._me
