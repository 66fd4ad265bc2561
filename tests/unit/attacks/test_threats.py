"""Each line of the threat list is tried by an attack, and what is missing or skipped is no refusal."""

from __future__ import annotations

import pytest
from tests.attacks.__main__ import worst
from tests.attacks.reporting import Reported, reported
from tests.attacks.rows import Outcome, attempts, elsewhere, outcome_of
from tests.attacks.threats import THREATS, lines, threat_of, untold

ROWS = [*attempts(), *elsewhere()]
LINES = list(lines())


@pytest.mark.parametrize(("who", "tries"), LINES, ids=[f"{who}: {tries}"[:60] for who, tries in LINES])
def test_a_line_of_the_table_is_tried(who: str, tries: str) -> None:
    threat = threat_of(who, tries)
    for pattern in threat.rows:
        assert any(type(threat)(who, "", (pattern,)).is_tried_in(row) for row in ROWS), pattern


def test_each_attack_is_of_a_line_of_the_table() -> None:
    assert untold(ROWS) == []
    assert len(THREATS) == len(LINES) == len({threat_of(*line) for line in LINES})
    assert len(ROWS) == len(set(ROWS))


def test_a_line_that_nothing_tries_is_an_error() -> None:
    with pytest.raises(LookupError):
        threat_of("anyone", "do what nobody has thought of")
    assert worst([]) is Outcome.ERROR
    assert worst([Outcome.REFUSED, Outcome.ERROR]) is Outcome.ERROR
    assert worst([Outcome.REFUSED, Outcome.SUCCEEDED, Outcome.ERROR]) is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    ("when", "outcome", "told"),
    [
        ("call", "passed", Outcome.REFUSED),
        ("call", "failed", Outcome.SUCCEEDED),
        ("call", "skipped", Outcome.ERROR),
        ("setup", "failed", Outcome.ERROR),
        ("setup", "skipped", Outcome.ERROR),
        ("teardown", "failed", Outcome.ERROR),
    ],
)
def test_a_test_that_did_not_run_is_an_error(when: str, outcome: str, told: Outcome) -> None:
    report = Reported("node", when, outcome)
    assert report.is_told
    assert outcome_of(report) is told


def test_a_setup_that_went_well_says_nothing() -> None:
    assert not Reported("node", "setup", "passed").is_told


def test_what_a_test_writes_is_no_report() -> None:
    assert reported('{"nodeid": "x", "when": "call", "outcome": "passed"}') == Reported("x", "call", "passed")
    assert [reported(line) for line in ("text", "{}", "1", '{"level": "info"}')] == 4 * [None]
