"""What the library for training scripts takes in, and what it makes of it."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import paddlewheel_progress
from job_controller.features.progress.report import parse_report
from paddlewheel_progress.module import from_environment
from paddlewheel_progress.values import FIELDS, MAX_METRICS, Pace, Values

SOURCES = sorted(Path(paddlewheel_progress.__file__).parent.glob("*.py"))
URL = "http://127.0.0.1:1/v1/progress/u"


def test_values_are_kept_until_they_are_given_again() -> None:
    values = Values()

    values.take(0.0, {"total_steps": 10, "step": 1, "loss": 0.5, "accuracy": 0.1})
    values.take(0.1, {"step": 2, "loss": None, "accuracy": 0.2})

    assert values.body() == {"step": 2, "total_steps": 10, "loss": 0.5, "metrics": {"accuracy": 0.2}}


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_json_cannot_express_replaces_the_old_one_by_none(loss: float) -> None:
    values = Values()

    values.take(0.0, {"loss": 0.5})

    assert values.take(0.1, {"loss": loss}) == ""
    assert values.body() == {"metrics": {}}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"loss": object()}, "loss: pass a number, not object"),
        ({"step": "3"}, "step: pass a number, not str"),
        ({"step": -1}, "step: pass a number from 0 on"),
        ({"step": math.nan}, "step: pass a number from 0 on"),
        ({"total_steps": 0}, "total_steps: pass a number from 1 on"),
        ({"samples_per_second": -1.0}, "samples_per_second: pass a number from 0 on"),
        ({"top 1": 0.5}, "'top 1': name metrics with"),
        ({"a" * 65: 0.5}, "name metrics with up to 64"),
    ],
)
def test_what_cannot_be_used_is_named_and_left_out(given: Mapping[str, object], named: str) -> None:
    values = Values()

    assert named in values.take(0.0, {**given, "epoch": 1})
    assert values.body() == {"epoch": 1, "metrics": {}}


NUMBERS = st.integers(-(2**60), 2**60) | st.floats()
REPORTS = st.dictionaries(st.sampled_from([*FIELDS, "accuracy", "top 1"]), NUMBERS)


@given(st.lists(st.tuples(st.floats(0.0, 100.0), REPORTS), min_size=1, max_size=8))
def test_whatever_is_reported_the_server_accepts_what_is_made_of_it(
    reports: list[tuple[float, dict[str, float]]],
) -> None:
    values, now = Values(), 0.0
    for pause, report in reports:
        now += pause
        values.take(now, dict(report))

    parse_report(json.dumps(values.body(), allow_nan=False).encode())


def test_numbers_of_other_libraries_are_numbers() -> None:
    values = Values()

    assert values.take(0.0, {"step": Fraction(3), "loss": Fraction(1, 2)}) == ""
    assert values.body() == {"step": 3, "loss": 0.5, "metrics": {}}


def test_metrics_beyond_the_limit_are_left_out_and_known_ones_still_change() -> None:
    values = Values()
    values.take(0.0, {f"m{i}": 0.0 for i in range(MAX_METRICS)})

    assert "at most 32" in values.take(0.1, {"more": 1.0})
    assert values.take(0.2, {"m0": 7.0}) == ""
    assert values.body()["metrics"]["m0"] == 7.0
    assert len(values.body()["metrics"]) == MAX_METRICS


def test_the_estimate_and_the_usual_interval_follow_from_the_last_reports() -> None:
    values = Values()
    for second in range(0, 100, 5):
        values.take(float(second), {"step": 10 * second, "total_steps": 2000})

    body = values.body()

    assert body["eta_seconds"] == pytest.approx((2000 - 950) / 10)
    assert body["interval_seconds"] == pytest.approx(5.0)


def test_without_steps_the_estimate_follows_from_epochs() -> None:
    values = Values()
    values.take(0.0, {"epoch": 1, "total_epochs": 4})
    values.take(60.0, {"epoch": 2})

    assert values.body()["eta_seconds"] == pytest.approx(120.0)


def test_a_training_that_goes_back_to_a_checkpoint_begins_a_new_estimate() -> None:
    pace = Pace()
    for now, done in ((0.0, 100.0), (10.0, 200.0), (20.0, 50.0)):
        pace.note(now, done)

    assert pace.per_second == 0.0
    pace.note(30.0, 70.0)
    assert pace.per_second == pytest.approx(2.0)


def test_saying_the_same_step_again_changes_no_estimate() -> None:
    pace = Pace()
    for now, done in ((0.0, 0.0), (10.0, 100.0), (10.0, 100.0), (15.0, 100.0)):
        pace.note(now, done)

    assert pace.per_second == pytest.approx(10.0)


def test_an_old_speed_is_forgotten() -> None:
    pace = Pace()
    for now in range(1000):
        pace.note(float(now), 100.0 * now if now < 500 else 50_000.0 + now)

    assert pace.per_second == pytest.approx(1.0)


def test_a_training_that_is_done_takes_no_longer() -> None:
    values = Values()
    values.take(0.0, {"step": 0, "total_steps": 1})
    values.take(10.0, {"step": 1})

    assert values.body()["eta_seconds"] == 0.0


def test_the_largest_count_is_what_json_carries_exactly() -> None:
    values = Values()

    assert values.take(0.0, {"step": 2**53}) == ""
    assert "step" in values.take(0.1, {"step": 2**54})
    assert values.body()["step"] == 2**53


def test_the_pace_of_fast_steps_is_taken_over_more_than_a_moment() -> None:
    pace = Pace()
    for millisecond in range(10_000):
        # Every second half of a second does nothing.
        pace.note(millisecond / 1000, float(millisecond % 500 + millisecond // 1000 * 500))

    assert pace.per_second == pytest.approx(500.0, rel=0.2)


@pytest.mark.parametrize(
    ("environment", "reports"),
    [
        ({}, False),
        ({"PADDLEWHEEL_PROGRESS_URL": ""}, False),
        ({"PADDLEWHEEL_PROGRESS_URL": URL}, True),
        ({"PADDLEWHEEL_PROGRESS_URL": URL, "PADDLE_TRAINER_ID": "0", "TRAINING_ROLE": "TRAINER"}, True),
        ({"PADDLEWHEEL_PROGRESS_URL": URL, "PADDLE_TRAINER_ID": "1"}, False),
        ({"PADDLEWHEEL_PROGRESS_URL": URL, "PADDLE_TRAINER_ID": "0", "TRAINING_ROLE": "PSERVER"}, False),
        ({"PADDLEWHEEL_PROGRESS_URL": URL, "TRAINING_ROLE": "HETER_TRAINER"}, False),
    ],
)
def test_only_rank_0_of_the_workers_reports(environment: dict[str, str], reports: bool) -> None:
    assert (from_environment(environment) is not None) == reports


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_the_library_is_written_for_the_python_of_old_images(source: Path) -> None:
    ast.parse(source.read_text(), feature_version=(3, 8))
