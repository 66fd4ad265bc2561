"""Keys are spread over the members. A change of members moves only the necessary keys."""

from __future__ import annotations

from collections import Counter

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.operator.sharding import Shard, rendezvous

KEYS = [Key(f"team-{i % 7}", f"job-{i}") for i in range(3000)]


def test_spreads_evenly() -> None:
    shares = Counter(rendezvous({"a", "b", "c"}, key) for key in KEYS)
    assert all(850 < share < 1150 for share in shares.values())


def test_the_order_of_the_members_does_not_matter() -> None:
    assert all(rendezvous(["a", "b", "c"], key) == rendezvous(["c", "a", "b"], key) for key in KEYS)


def test_a_member_that_leaves_moves_only_its_own_keys() -> None:
    moved = [key for key in KEYS if rendezvous("abc", key) != rendezvous("ab", key)]
    assert all(rendezvous("abc", key) == "c" for key in moved)


def test_every_key_has_one_owner_and_a_dead_replica_owns_none() -> None:
    shards = [Shard(me, lambda: frozenset("ab")) for me in "abc"]
    owners = [[shard.owns(key) for shard in shards] for key in KEYS]
    assert all(sum(row) == 1 and not row[2] for row in owners)


def test_nobody_is_an_error_and_a_shard_without_members_owns_nothing() -> None:
    with pytest.raises(ValueError):
        rendezvous([], Key("a", "b"))
    assert not Shard("a", frozenset).owns(Key("a", "b"))
