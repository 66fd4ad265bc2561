"""Benches, chaos and mutation testing are apart from the tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
APART = ("bench", "chaos", "mutants")
OWN = tuple(f"unit/{name}/" for name in APART)
FOLDERS = ("unit", "contract", "integration", "e2e")


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize("folder", FOLDERS)
def test_tests_import_no_program_that_measures(folder: str) -> None:
    forbidden = tuple(f"tests.{name}" for name in APART)
    found = [
        f"{file.relative_to(TESTS)}: {module}"
        for file in sorted((TESTS / folder).rglob("*.py"))
        if not str(file.relative_to(TESTS)).startswith(OWN)
        for module in imported(file)
        if module.startswith(forbidden)
    ]
    assert found == []


@pytest.mark.parametrize("folder", APART)
def test_what_is_apart_holds_no_tests(folder: str) -> None:
    assert list((TESTS / folder).rglob("test_*.py")) == []
