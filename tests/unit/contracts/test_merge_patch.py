"""JSON merge patches: applying the difference gives the new object."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.contracts.merge_patch import merge_patch
from paddlewheel.testkit.memory_cluster.merge import merge

NAMES = st.sampled_from("abcd")
SCALARS = st.integers(0, 3) | st.sampled_from(["x", "y", ""])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_applying_the_patch_gives_the_new_object(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert merge(old, merge_patch(old, new)) == new


@given(OBJECTS)
def test_equal_objects_need_no_patch(value: dict[str, Any]) -> None:
    assert merge_patch(value, dict(value)) == {}


@given(OBJECTS, OBJECTS)
def test_equal_fields_are_not_sent(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert not {name for name in merge_patch(old, new) if name in old and old[name] == new.get(name)}


def test_nested_objects_are_patched_and_lists_replaced() -> None:
    old = {"a": {"b": 1, "c": 2}, "items": [{"x": 1}], "gone": 1}
    new = {"a": {"b": 1, "d": 3}, "items": [{"x": 2}]}
    assert merge_patch(old, new) == {"a": {"c": None, "d": 3}, "items": [{"x": 2}], "gone": None}
