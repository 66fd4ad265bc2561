"""What the demo calls a success."""

from __future__ import annotations

import pytest

from paddlewheel.cli.demo.model import DemoOptions, Outcome
from paddlewheel.cli.demo.run import judge


def good_outcome() -> Outcome:
    return Outcome(
        files_synced=1797,
        files_warmed=1797,
        cached_percent=100.0,
        results={"accuracy": 0.97, "epochs": 8},
        facts_published=9,
        facts_received=9,
        model="build/model",
    )


def test_everything_done_is_a_success() -> None:
    outcome = good_outcome()
    judge(DemoOptions(), outcome)
    assert outcome.success
    assert outcome.shortfalls == []


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("files_synced", 1796, "synced 1796 of 1797"),
        ("files_warmed", 12, "warmed 12"),
        ("cached_percent", 98.0, "98.0 % of the bytes"),
        ("results", {"accuracy": 0.94}, "accuracy 0.940 is below 0.95"),
        ("facts_received", 8, "received 8 of 9"),
        ("facts_published", 0, "of 0 facts"),
        ("model", "", "no model"),
    ],
)
def test_each_shortfall_is_named(field: str, value: object, words: str) -> None:
    outcome = good_outcome()
    setattr(outcome, field, value)
    judge(DemoOptions(), outcome)
    assert not outcome.success
    assert any(words in shortfall for shortfall in outcome.shortfalls)


def test_a_quick_run_is_not_judged_by_its_accuracy() -> None:
    outcome = good_outcome()
    outcome.results = {"accuracy": 0.4}
    judge(DemoOptions(epochs=1), outcome)
    assert outcome.success
