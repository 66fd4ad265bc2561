"""Marks of handled events: bounded for each namespace, the newest stay."""

from __future__ import annotations

import pytest

from trigger_controller.domain import marks
from trigger_controller.domain.names import digest

MANY = tuple(f"{number:016}" for number in range(marks.MOST))


@pytest.mark.parametrize(
    ("before", "new", "after"),
    [
        ((), ("a",), ("a",)),
        (("a",), ("b", "c", "b"), ("a", "b", "c")),
        (("a", "b"), ("a",), ("a", "b")),
        (MANY, ("z",), (*MANY[1:], "z")),
        (MANY, (MANY[0],), MANY),
    ],
)
def test_the_newest_marks_stay(before: marks.Marks, new: tuple[str, ...], after: marks.Marks) -> None:
    assert marks.added(before, new) == after
    assert marks.read(marks.write(after)) == after


def test_a_namespace_has_a_bounded_number_of_entries() -> None:
    entries = {marks.key_of("team-a", digest("uid", f"{number}")) for number in range(20_000)}
    assert len(entries) == 32**marks.PREFIX_LENGTH
    assert len(marks.write(MANY)) * len(entries) < 5 << 20
    assert marks.key_of("team-b", digest("uid", "1")) not in entries
    assert marks.read(None) == ()
