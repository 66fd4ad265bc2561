"""Marks of handled events: bounded for each namespace, the newest stay."""

from __future__ import annotations

import pytest

from trigger_controller.domain import marks
from trigger_controller.domain.names import digest

MANY = tuple(f"{number:016}" for number in range(marks.MOST))


@pytest.mark.parametrize(
    ("before", "new", "after"),
    [
        ((), ("a",), ("@9", "a")),
        (("@9", "a"), ("b", "c", "b"), ("@9", "a", "b", "c")),
        (("@8", "a"), ("b",), ("@8", "a", "@9", "b")),
        (("a", "b"), ("a",), ("a", "b")),
        (MANY, ("z",), ("@9", *MANY[1:], "z")),
        (("@8", *MANY), ("z",), ("@8", *MANY[1:], "@9", "z")),
        (("@7", MANY[0], "@8", *MANY[1:]), ("z",), ("@8", *MANY[1:], "@9", "z")),
        (MANY, (MANY[0],), MANY),
    ],
)
def test_the_newest_marks_stay(before: marks.Marks, new: tuple[str, ...], after: marks.Marks) -> None:
    assert marks.added(before, new, 9) == after
    assert marks.read(marks.write(after)) == after


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        (("a", "@3", "b", "c", "@9", "d"), ("@9", "d"), 0),
        (("@3", "b", "@4", "c", "@9", "d"), ("@9", "d"), 1),
        (("@4", "b", "c"), ("@4", "c", "@9", "d"), 1),
        (("@4", "b"), ("@4", "b", "@9", "d"), 0),
        (("a", "b"), ("c",), 0),
    ],
)
def test_marks_that_are_forgotten_early_are_counted(
    before: marks.Marks, after: marks.Marks, count: int
) -> None:
    """The days after day 3 count. Marks without a day are of an earlier release."""
    assert marks.forgotten(before, after, 3) == count


def test_a_namespace_has_a_bounded_number_of_entries() -> None:
    entries = {marks.key_of("team-a", digest("uid", f"{number}")) for number in range(20_000)}
    assert len(entries) == 32**marks.PREFIX_LENGTH
    days = tuple(f"@{20_000 + day}" for day in range(14))
    assert len(marks.write((*days, *MANY))) * len(entries) < 5 << 20
    assert marks.key_of("team-b", digest("uid", "1")) not in entries
    assert marks.read(None) == ()
