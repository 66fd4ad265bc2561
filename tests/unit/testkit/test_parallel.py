"""Which worker runs which tests, and in what order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paddlewheel.testkit.minutes import folder_of
from paddlewheel.testkit.parallel import FIRST, in_order, ports_of

ROOT = Path(__file__).parents[3]


class Item:
    """A test as the order sees it."""

    def __init__(self, nodeid: str, group: str = "") -> None:
        self.nodeid, self._group = nodeid, group

    def get_closest_marker(self, _: str) -> Any:
        return SimpleNamespace(args=(self._group,)) if self._group else None


def test_every_folder_of_the_order_exists() -> None:
    assert [path for path in FIRST if not (ROOT / path).is_dir()] == []


def test_slow_folders_start_first_and_a_group_stays_together() -> None:
    items: list[Any] = [
        Item("tests/unit/a.py::one"),
        Item("tests/integration/bus/b.py::one", "cluster"),
        Item("tests/integration/bus/c.py::one", "c"),
        Item("tests/e2e/d.py::one", "cluster"),
    ]
    assert [item.nodeid[6:] for item in in_order(items)] == [
        "integration/bus/b.py::one", "e2e/d.py::one", "integration/bus/c.py::one", "unit/a.py::one",
    ]  # fmt: skip


def test_no_two_workers_use_the_same_port() -> None:
    ports = range(12_000, 22_000)
    shares = [ports_of(ports, worker, 3) for worker in range(3)]
    assert sorted(port for share in shares for port in share) == list(ports)


@pytest.mark.parametrize(
    ("nodeid", "folder"),
    [
        ("tests/unit/core/test_a.py::test_b[x/y]", "tests/unit"),
        ("tests/integration/bus/test_a.py::test_b@group", "tests/integration/bus"),
        ("tests/contract/test_a.py::test_b", "tests/contract"),
        ("tests/e2e/docs/test_a.py::test_b", "tests/e2e"),
    ],
)
def test_minutes_are_counted_by_folder(nodeid: str, folder: str) -> None:
    assert folder_of(nodeid) == folder
