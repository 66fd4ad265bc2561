"""The list of reasons: words, meanings, and that it covers the reasons of runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from paddlewheel.contracts.reasons import REASONS, Reason

RUNTIME = Path(__file__).parents[3] / "services/cache-runtime/src"
OF_NO_RUN = {"WrongVolume", "InvalidMountOption", "MalformedChunk"}
"""They appear in a node's report, or in the log."""


def test_every_reason_is_camel_case_and_has_a_meaning() -> None:
    assert [reason for reason in Reason if not re.fullmatch("([A-Z]{1,4}[a-z]+)+", reason)] == []
    meaning = re.compile(r"(?!.*\bTODO\b).{10,}\.")
    assert [(reason, reason.meaning) for reason in Reason if not meaning.fullmatch(reason.meaning)] == []


def test_words_of_others_are_not_ours() -> None:
    assert "SecretNotFound" in REASONS
    assert not {"Forbidden", "ServerError", "NotFound", "Conflict", "Invalid"} & REASONS


def test_reasons_with_which_a_run_fails_are_listed() -> None:
    raised = {word for path in RUNTIME.rglob("*.py") for word in reasons_in(ast.parse(path.read_text()))}
    assert "PathNotFound" in raised
    assert "FilesFailed" in raised
    assert raised - OF_NO_RUN <= REASONS


def reasons_in(tree: ast.AST) -> Iterator[str]:
    """What is permanent, and what the end of a run says."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            place = {"Permanent": 0, "Ending": 1}.get(node.func.id)
            if place is not None and len(node.args) > place:
                argument = node.args[place]
                if isinstance(argument, ast.Constant):
                    yield str(argument.value)
