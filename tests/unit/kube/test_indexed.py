"""Objects with indexes: order, replacement, and no leftovers of removed objects."""

from __future__ import annotations

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.indexed import IndexedObjects
from paddlewheel.kube.ports import Object

A, B = Key("n", "a"), Key("n", "b")


def obj(name: str, *teams: str) -> Object:
    return {"metadata": {"namespace": "n", "name": name}, "teams": list(teams)}


def indexed() -> IndexedObjects:
    return IndexedObjects({"team": lambda found: found["teams"]})


def test_an_object_is_found_under_each_of_its_values() -> None:
    objects = indexed()
    objects.put(A, obj("a", "x", "y"))
    objects.put(B, obj("b", "y"))
    assert objects.by_index("team", "x") == [obj("a", "x", "y")]
    assert objects.by_index("team", "y") == [obj("a", "x", "y"), obj("b", "y")]
    assert [objects.count_by_index("team", value) for value in "xyz"] == [1, 2, 0]


def test_a_value_returned_twice_counts_once() -> None:
    objects = indexed()
    objects.put(A, obj("a", "x", "x"))
    assert objects.by_index("team", "x") == [obj("a", "x", "x")]
    objects.put(A, obj("a", "y"))
    assert (objects.count_by_index("team", "x"), objects.count_by_index("team", "y")) == (0, 1)


def test_a_replaced_object_keeps_its_place() -> None:
    objects = indexed()
    objects.put(A, obj("a", "x"))
    objects.put(B, obj("b", "x"))
    objects.put(A, obj("a", "x", "new"))
    assert objects.keys() == [A, B]
    assert objects.by_index("team", "x") == [obj("a", "x", "new"), obj("b", "x")]


def test_nothing_is_kept_of_values_that_nobody_has() -> None:
    objects = indexed()
    for turn in range(100):
        objects.put(A, obj("a", f"x-{turn}"))
        objects.put(B, obj("b", f"x-{turn}"))
    objects.remove(A)
    objects.remove(B)
    objects.remove(B)
    assert objects.keys() == []
    assert objects._indexes == {"team": {}}
    assert objects._values == {"team": {}}
