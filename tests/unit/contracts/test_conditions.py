"""Conditions as values."""

from __future__ import annotations

import pytest

from paddlewheel.contracts.conditions import Condition, Conditions, explain, find, is_true, set_condition

READY = Condition("Ready", "True", "AllReady", last_transition_time="2026-01-31T12:00:00Z")
FAILED = Condition("Failed", "False", "NoFailure")


def test_find() -> None:
    assert find((FAILED, READY), "Ready") is READY
    assert find((FAILED, READY), "Complete") is None


def test_is_true() -> None:
    conditions = (READY, FAILED, Condition("Stalled", "Unknown", "NotChecked"))
    assert [is_true(conditions, t) for t in ("Ready", "Failed", "Stalled", "Complete")] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ((), ""),
        ((READY,), "AllReady"),
        ((FAILED,), ""),
        ((READY, FAILED), "AllReady"),
        ((READY, Condition("Failed", "True", "Broken")), "Broken"),
        ((Condition("Ready", "False", "Waiting"), FAILED), "Waiting"),
        ((READY, Condition("ReconcileFailed", "False", "Reconciled")), "AllReady"),
        ((Condition("Failed", "True", "Broken"), Condition("ReconcileFailed", "True", "Bug")), "Bug"),
    ],
)
def test_the_first_condition_of_the_order_explains(conditions: Conditions, reason: str) -> None:
    assert explain(conditions, (("Failed", "True"), ("Ready", "")))["reason"] == reason


def test_an_explanation_has_the_conditions_words() -> None:
    waiting = Condition("Ready", "False", "Waiting", "for the others")
    assert explain((waiting,), (("Ready", "False"),)) == {"reason": "Waiting", "message": "for the others"}


def test_transition_time_changes_only_with_the_status() -> None:
    same = set_condition((READY,), Condition("Ready", "True", "StillReady"), "2026-01-31T13:00:00Z")
    other = set_condition((READY,), Condition("Ready", "False", "Lost"), "2026-01-31T13:00:00Z")
    assert [c.last_transition_time for c in (*same, *other)] == [
        "2026-01-31T12:00:00Z",
        "2026-01-31T13:00:00Z",
    ]
    assert same[0].reason == "StillReady"
