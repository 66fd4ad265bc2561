"""What mutmut found becomes a score and survivors with their places."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutants.config import ROOT, Accepted, load
from tests.mutants.report import Survivor, judge, lives, module_of, read_survivor

SOURCE = '''"""A module."""

X = 1


def twice(number: int) -> int:
    # Two of it.
    total = number
    total += number
    return total


class Box:
    def grow(self, by: int = 1) -> None:
        self.size = self.size + by

    async def shrink(self) -> None:
        self.size = self.size - 1
'''
SURVIVOR = Survivor("a.py", 9, "twice", "total += number", "total -= number", "survived")
ACCEPTED = Accepted("a.py", "total  += number", "total -= number", "nobody reads it")


def diff(start: int, *lines: str) -> str:
    return "\n".join(("--- a.py", "+++ a.py", f"@@ -{start},3 +{start},3 @@", *lines))


@pytest.mark.parametrize(
    ("key", "text", "line", "function"),
    [
        ("x_twice", diff(2, "     # Two of it.", "     total = number", "-    total += number"), 9, "twice"),
        ("x_twice", diff(1, "-def twice(number: int) -> int:"), 6, "twice"),
        ("xǁBoxǁgrow", diff(1, " def grow(", "-        self.size = self.size + by"), 15, "Box.grow"),
        ("xǁBoxǁshrink", diff(1, " async def", "-        self.size = self.size - 1"), 18, "Box.shrink"),
    ],
)
def test_a_survivor_has_the_place_of_its_first_change(key: str, text: str, line: int, function: str) -> None:
    found = read_survivor(f"box.{key}__mutmut_3", "survived", text, "a.py", SOURCE)
    assert (found.file, found.line, found.function) == ("a.py", line, function)


def test_of_equal_lines_the_nearest_is_meant() -> None:
    source = "def f():\n    g()\n    h()\n    g()\n"
    found = read_survivor("m.x_f__mutmut_1", "survived", diff(3, "     h()", "-    g()"), "a.py", source)
    assert found.line == 4


def test_a_survivor_reads_as_a_diff() -> None:
    assert SURVIVOR.text() == "a.py:9  twice (survived)\n    - total += number\n    + total -= number"


def test_the_score_counts_all_mutants() -> None:
    outcome = judge("box", ["killed", "timeout", "skipped", "survived", "killed"], [SURVIVOR], (), ["a.py"])
    assert (outcome.mutants, outcome.killed, outcome.score) == (4, 3, 75.0)
    assert not outcome.passes(85)
    assert outcome.passes(75)


def test_an_accepted_survivor_is_no_mutant() -> None:
    outcome = judge("box", ["killed", "survived"], [SURVIVOR], [ACCEPTED], ["a.py"])
    assert (outcome.mutants, outcome.score, outcome.survivors, outcome.accepted) == (1, 100.0, (), 1)
    assert outcome.passes(85)


def test_an_accepted_survivor_that_is_there_no_more_fails() -> None:
    outcome = judge("box", ["killed"], [], [ACCEPTED], ["a.py"])
    assert outcome.unused == (ACCEPTED,)
    assert not outcome.passes(85)


def test_what_is_accepted_elsewhere_is_no_concern() -> None:
    assert judge("box", ["killed"], [], [ACCEPTED], ["b.py"]).passes(85)


def test_without_mutants_nothing_passes() -> None:
    assert not judge("box", (), (), (), ()).passes(85)


@pytest.mark.parametrize(
    ("status", "is_alive"),
    [("killed", False), ("timeout", False), ("skipped", False), ("survived", True), ("no tests", True),
     ("suspicious", True), ("not checked", True)],
)  # fmt: skip
def test_only_what_a_test_noticed_is_dead(status: str, is_alive: bool) -> None:
    assert lives(status) == is_alive


def test_a_mutants_name_tells_its_module() -> None:
    assert (
        module_of("paddlewheel.control.queue.xǁKeyedQueueǁ__init____mutmut_8") == "paddlewheel.control.queue"
    )
    with pytest.raises(ValueError, match="no name of a mutant"):
        module_of("nonsense")


def test_every_package_of_the_list_exists() -> None:
    config = load()
    assert config.packages
    for package in config.packages.values():
        source = ROOT / package.source
        assert all(list(source.glob(pattern)) for pattern in package.mutate), package.name
        assert all(Path(ROOT, tests).exists() for tests in package.tests), package.name


def test_every_accepted_survivor_has_a_reason() -> None:
    assert [entry for entry in load().accepted if not entry.why.strip()] == []
