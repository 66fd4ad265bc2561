"""Own writes laid over a cache that lags."""

from __future__ import annotations

from typing import Any

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import ManualClock
from paddlewheel.kube.ports import Change, Object
from paddlewheel.operator.own_writes import PATIENCE, OwnWrites

KEY = Key("default", "a")


def make_obj(version: int, uid: str = "u", owner: str = "j", **metadata: Any) -> Object:
    return {
        "metadata": {
            "namespace": "default",
            "name": "a",
            "uid": uid,
            "resourceVersion": str(version),
            "ownerReferences": [{"uid": owner, "controller": True}],
            **metadata,
        }
    }


async def test_the_newer_of_cache_and_write_counts() -> None:
    own = OwnWrites(ManualClock())
    own.wrote(make_obj(10))
    assert own.newest(KEY, None) == make_obj(10)
    assert own.newest(KEY, make_obj(9)) == make_obj(10)
    assert own.newest(KEY, make_obj(11)) == make_obj(11)


async def test_a_write_is_forgotten_once_the_cache_has_it_or_it_is_gone() -> None:
    own = OwnWrites(ManualClock())
    own.wrote(make_obj(10))
    own.saw(Change("MODIFIED", make_obj(9)))
    assert own.newest(KEY, None) is not None
    own.saw(Change("MODIFIED", make_obj(10)))
    assert own.newest(KEY, None) is None
    own.wrote(make_obj(12))
    own.saw(Change("DELETED", make_obj(13)))
    assert own.newest(KEY, None) is None


async def test_children_written_since_are_listed_with_those_of_the_cache() -> None:
    own = OwnWrites(ManualClock())
    own.wrote(make_obj(10))
    assert own.lay_over("j", []) == [make_obj(10)]
    assert own.lay_over("j", [make_obj(9)]) == [make_obj(10)]
    assert own.lay_over("other", []) == []


async def test_a_deleted_object_is_known_until_the_cache_knows() -> None:
    own = OwnWrites(ManualClock())
    own.deleted(KEY, "u")
    assert own.is_deleted(make_obj(10))
    assert not own.is_deleted(make_obj(10, uid="successor"))
    own.saw(Change("MODIFIED", make_obj(11)))
    assert own.is_deleted(make_obj(11))
    own.saw(Change("MODIFIED", make_obj(12, deletionTimestamp="now")))
    assert not own.is_deleted(make_obj(12))


async def test_a_notice_that_never_comes_is_given_up() -> None:
    clock = ManualClock()
    own = OwnWrites(clock)
    own.wrote(make_obj(10))
    own.deleted(KEY, "u")
    await clock.advance(PATIENCE + 1)
    assert own.newest(KEY, None) is None
    assert own.lay_over("j", []) == []
    assert not own.is_deleted(make_obj(10))
