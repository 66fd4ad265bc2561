"""The table in CONTRIBUTING.md that says which long tests a change needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.long_for_change import needed_for, read_table

ROOT = Path(__file__).parents[3]
TABLE = read_table((ROOT / "CONTRIBUTING.md").read_text())


def test_every_path_of_the_table_exists() -> None:
    assert len(TABLE) > 15
    paths = {*TABLE, *(test for tests in TABLE.values() for test in tests)}
    missing = [path for path in sorted(paths) if not list(ROOT.glob(f"{path.rstrip('/')}*"))]
    assert missing == []


def test_every_service_and_library_has_a_row() -> None:
    parts = {f"{path.parent.name}/{path.name}/" for path in (*ROOT.glob("services/*"), *ROOT.glob("libs/*"))}
    assert parts - set(TABLE) == set()


def test_every_row_names_long_tests() -> None:
    for test in {test for tests in TABLE.values() for test in tests}:
        files = [ROOT / test] if test.endswith(".py") else (ROOT / test).rglob("*.py")
        assert any("pytest.mark.long" in file.read_text() for file in files), test


@pytest.mark.parametrize(
    ("changed", "needed"),
    [
        (["README.md"], []),
        (["libs/sdk/src/a.py"], ["tests/integration/sdk", "tests/integration/subscribers"]),
        (["tests/integration/bus/test_tls.py"], ["tests/integration/bus/test_tls.py"]),
        (["tests/attacks/attacks.py"], ["tests/attacks"]),
        (["tests/e2e/training/live_job.py"], ["tests/e2e/training"]),
        # A file below a folder that runs anyway is not named again.
        (["docs/a.md", "tests/e2e/docs/test_pages.py"], ["tests/e2e/docs"]),
    ],
)
def test_changes_and_their_long_tests(changed: list[str], needed: list[str]) -> None:
    assert needed_for(changed, TABLE) == needed
