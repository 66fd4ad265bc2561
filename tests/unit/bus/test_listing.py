"""The entries that a watch of a bucket yields for the messages of its consumer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from nats.aio.msg import Msg

from paddlewheel.bus.nats.kv import Listing
from paddlewheel.bus.ports import Entry


def message(key: str, revision: int, pending: int = 0, *, deleted: bool = False) -> Msg:
    metadata = SimpleNamespace(sequence=SimpleNamespace(stream=revision), num_pending=pending)
    headers = {"KV-Operation": "DEL"} if deleted else None
    return cast(Msg, SimpleNamespace(subject=f"$KV.b.{key}", data=b"v", headers=headers, metadata=metadata))


def rows(listing: Listing) -> list[tuple[str, int, bool] | None]:
    """Key, revision and whether it was stored."""
    return [(e.key, e.revision, e.is_stored) if e else None for e in listing.take()]


def test_what_was_there_is_told_from_what_comes_afterwards_also_after_a_lost_connection() -> None:
    known: set[str] = set()
    for _ in range(2):
        listing = Listing(known, 2, "$KV.b.")
        listing.read([message("a", 1, 1), message("b", 2)])
        assert rows(listing) == [("a", 1, True), ("b", 2, True), None]
        listing.read([message("a", 3), message("b", 4, deleted=True)])
        assert rows(listing) == [("a", 3, False), ("b", 4, False)]


def test_entries_are_the_same_whether_they_were_stored_or_not() -> None:
    assert Entry("a", b"v", 1) == Entry("a", b"v", 1, is_stored=True)
