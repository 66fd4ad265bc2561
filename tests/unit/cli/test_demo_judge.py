"""What the demo calls a success."""

from __future__ import annotations

import pytest

from paddlewheel.cli.demo.model import DemoOptions, Outcome, Prediction
from paddlewheel.cli.demo.run import judge
from paddlewheel.cli.demo.serving import picture, softmax


def good_outcome() -> Outcome:
    return Outcome(
        files_synced=1797,
        files_warmed=1797,
        cached_percent=100.0,
        results={"accuracy": 0.97, "epochs": 8},
        facts_published=9,
        facts_received=9,
        model="build/model",
        prediction=Prediction(5, 5, 0.9, []),
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
        ("prediction", None, "gave no prediction"),
        ("prediction", Prediction(5, 3, 0.9, []), "took the digit for another"),
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
    outcome.prediction = Prediction(5, 3, 0.9, [])
    judge(DemoOptions(epochs=1), outcome)
    assert outcome.success


def test_a_run_that_ends_with_the_model_needs_no_prediction() -> None:
    outcome = good_outcome()
    outcome.prediction = None
    judge(DemoOptions(serves=False), outcome)
    assert outcome.success


def test_a_digit_is_drawn_by_its_shades() -> None:
    assert picture([[0.0, 0.25], [0.5, 1.0]]) == ["  ░░", "▒▒██"]


def test_chances_sum_up_to_one_whatever_the_size_of_the_logits() -> None:
    assert softmax([1000.0, 1000.0]) == [0.5, 0.5]
    assert softmax([0.0, -1000.0]) == [1.0, 0.0]
