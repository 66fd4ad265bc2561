"""Which worker runs which tests, and in what order."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlewheel.testkit.parallel import FIRST, TOGETHER, ports_of, rank_of, scope_of

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("path", [*TOGETHER, *FIRST])
def test_what_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_tests_of_a_group_stay_together_and_all_others_are_alone() -> None:
    one, two = "tests/e2e/test_digits.py::test_a", "tests/e2e/test_digits.py::test_b[x]"
    assert scope_of(one) == scope_of(two)
    assert scope_of("tests/unit/a.py::test_a") != scope_of("tests/unit/a.py::test_b")


def test_what_a_module_shares_is_made_by_one_worker_only() -> None:
    folders = (ROOT / "tests/integration", ROOT / "tests/e2e")
    files = [path for folder in folders for path in folder.rglob("test_*.py")]
    shared = [str(path.relative_to(ROOT)) for path in files if 'scope="module"' in path.read_text()]
    assert len(shared) > 5
    assert [path for path in shared if scope_of(f"{path}::a") != scope_of(f"{path}::b")] == []


def test_files_may_share_a_group() -> None:
    folder = "tests/integration/cache_runtime"
    assert scope_of(f"{folder}/test_runs.py::test_a") == scope_of(f"{folder}/test_odd_names.py::test_b")


def test_the_longest_come_first_and_unit_tests_last() -> None:
    paths = ("tests/e2e/test_digits.py::a", "tests/integration/bus/x.py::b", "tests/contract/x.py::c")
    ranks = [rank_of(path) for path in (*paths, "tests/unit/x.py::d")]
    assert ranks == sorted(set(ranks))


def test_a_group_is_not_torn_by_the_order() -> None:
    ranks: dict[str, set[int]] = {}
    for path, group in TOGETHER.items():
        ranks.setdefault(group, set()).add(rank_of(path))
    assert [group for group, found in ranks.items() if max(found) - min(found) >= len(found)] == []


def test_no_two_workers_find_the_same_port_free() -> None:
    ports = range(12_000, 22_000)
    shares = [ports_of(ports, worker, 3) for worker in range(3)]
    assert sorted(port for share in shares for port in share) == list(ports)
