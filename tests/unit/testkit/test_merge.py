"""JSON merge patch: the cases of RFC 7396, appendix A, that concern objects."""

from __future__ import annotations

from typing import Any

import pytest

from paddlewheel.testkit.memory_cluster.merge import merge

CASES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "expected"), CASES)
def test_merge(target: Any, patch: Any, expected: Any) -> None:
    assert merge(target, patch) == expected


def test_neither_argument_is_changed() -> None:
    target, patch = {"a": {"b": 1}}, {"a": {"c": 2}}
    merge(target, patch)["a"]["d"] = 3
    assert (target, patch) == ({"a": {"b": 1}}, {"a": {"c": 2}})
