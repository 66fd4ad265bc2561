"""Which live replica works on which key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection

from paddlewheel.contracts.keys import Key


def rendezvous(members: Collection[str], key: Key) -> str:
    """The member with the highest hash for the key; a member that leaves moves only its own keys.

    Raises:
        ValueError: there is no member.
    """
    return max(members, key=lambda member: (_weight(member, key), member))


def _weight(member: str, key: Key) -> bytes:
    return hashlib.blake2b(f"{member}\0{key}".encode(), digest_size=8).digest()


class Shard:
    """One replica's share of the keys."""

    def __init__(self, me: str, members: Callable[[], Collection[str]]) -> None:
        self._me = me
        self._members = members

    def owns(self, key: Key) -> bool:
        """False as well while this replica is not a live member itself."""
        members = self._members()
        return self._me in members and rendezvous(members, key) == self._me
