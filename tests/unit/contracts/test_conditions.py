"""Conditions as values."""

from __future__ import annotations

from paddlewheel.contracts.conditions import Condition, find, is_true, set_condition

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


def test_transition_time_changes_only_with_the_status() -> None:
    same = set_condition((READY,), Condition("Ready", "True", "StillReady"), "2026-01-31T13:00:00Z")
    other = set_condition((READY,), Condition("Ready", "False", "Lost"), "2026-01-31T13:00:00Z")
    assert [c.last_transition_time for c in (*same, *other)] == [
        "2026-01-31T12:00:00Z",
        "2026-01-31T13:00:00Z",
    ]
    assert same[0].reason == "StillReady"
