"""Which worker runs which tests, and in what order."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlewheel.testkit.minutes import folder_of
from paddlewheel.testkit.parallel import FIRST, TOGETHER, ports_of, rank_of, scope_of

ROOT = Path(__file__).parents[3]


def test_every_path_exists() -> None:
    assert [path for path in (*FIRST, *TOGETHER) if not (ROOT / path).exists()] == []


def test_tests_of_a_file_stay_together_but_unit_tests_go_anywhere() -> None:
    one, two = (
        "tests/integration/bus/test_tls.py::test_a",
        "tests/integration/bus/test_tls.py::test_b[x/y::z]",
    )
    assert scope_of(one) == scope_of(two)
    assert scope_of("tests/unit/a.py::test_a") != scope_of("tests/unit/a.py::test_b")


def test_files_may_share_a_worker() -> None:
    assert scope_of("tests/e2e/docs/test_pages.py::test_a") == scope_of("tests/e2e/test_digits.py::test_b")


def test_slow_folders_start_first() -> None:
    paths = [
        "tests/e2e/d.py::a",
        "tests/integration/bus/c.py::b",
        "tests/contract/b.py::c",
        "tests/unit/a.py::d",
    ]
    ranks = [rank_of(path) for path in paths]
    assert ranks == sorted(set(ranks))


def test_no_two_workers_use_the_same_port() -> None:
    ports = range(12_000, 22_000)
    shares = [ports_of(ports, worker, 3) for worker in range(3)]
    assert sorted(port for share in shares for port in share) == list(ports)


@pytest.mark.parametrize(
    ("nodeid", "folder"),
    [
        ("tests/unit/core/test_a.py::test_b[x/y]", "tests/unit"),
        ("tests/integration/bus/test_a.py::test_b", "tests/integration/bus"),
        ("tests/contract/test_a.py::test_b", "tests/contract"),
        ("tests/e2e/docs/test_a.py::test_b", "tests/e2e"),
    ],
)
def test_minutes_are_counted_by_folder(nodeid: str, folder: str) -> None:
    assert folder_of(nodeid) == folder
