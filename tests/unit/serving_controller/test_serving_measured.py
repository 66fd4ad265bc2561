"""Metrics that others measure: which measurement counts, what is within limits, what rollouts make of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.serving_controller.conftest import BAD, GOOD, LAC, ServingHarness, to_second_version

from paddlewheel.bus.ports import Delivery
from paddlewheel.contracts.crds.paddleservice import MetricLimits, RolloutLimits, RolloutSpec, RolloutStatus
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.wire import decode, encode
from paddlewheel.kube.ports import PADDLE_SERVICES
from paddlewheel.testkit.paddleservices import make_endpoint, make_measured, make_service
from serving_controller.domain.measured import Finding, Measured, compare
from serving_controller.domain.rollout import ROLLING_BACK, STEPPING, Outcome, Situation, advance
from serving_controller.measurements import Measurements

LIMITS = {"accuracy": MetricLimits(min=0.9), "latency_ms": MetricLimits(min=1, max=20)}
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


# What is within limits


@pytest.mark.parametrize(
    ("measured", "outside"),
    [
        ({"accuracy": 0.9, "latency_ms": 20.0}, ""),
        ({"accuracy": 0.81}, "accuracy 0.81 is below 0.9 (min)"),
        ({"accuracy": 0.8999999}, "accuracy 0.8999999 is below 0.9 (min)"),
        ({"accuracy": 1.0, "latency_ms": 21.0}, "latency_ms 21 is above 20 (max)"),
        (
            {"accuracy": 0.0, "latency_ms": 0.5},
            "accuracy 0 is below 0.9 (min), latency_ms 0.5 is below 1 (min)",
        ),
        ({"accuracy": math.nan}, "accuracy is nan, not a finite number"),
        ({"accuracy": math.inf}, "accuracy is inf, not a finite number"),
        ({"accuracy": 0.95, "recall": 0.0}, ""),
    ],
)
def test_a_metric_outside_its_limits_is_named_with_value_and_limit(measured: Measured, outside: str) -> None:
    assert compare(LIMITS, measured).outside == outside


@pytest.mark.parametrize(
    ("measured", "waits"),
    [
        ({"accuracy": 0.95, "latency_ms": 5.0}, ""),
        ({"latency_ms": 5.0}, "accuracy was not measured yet"),
        ({"recall": 1.0}, "accuracy, latency_ms were not measured yet"),
        (None, "the measurements on the bus are not read yet"),
    ],
)
def test_what_is_missing_is_named(measured: Measured | None, waits: str) -> None:
    assert compare(LIMITS, measured).waits.partition(":")[0] == waits


NAMES = st.sampled_from(["a", "b", "c"])
BOUNDS = st.one_of(st.none(), st.floats(-10, 10))
SOME_LIMITS = st.dictionaries(NAMES, st.builds(MetricLimits, min=BOUNDS, max=BOUNDS))
SOME_VALUES = st.dictionaries(NAMES, st.one_of(st.floats(), st.floats(-10, 10)))


@given(SOME_LIMITS, SOME_VALUES)
def test_it_goes_on_only_if_all_that_is_limited_is_measured_and_within(
    limits: dict[str, MetricLimits], measured: dict[str, float]
) -> None:
    def within(name: str) -> bool:
        low, high = limits[name].min, limits[name].max
        value = measured[name]
        above = low is None or value >= low
        return math.isfinite(value) and above and (high is None or value <= high)

    found = compare(limits, measured)
    assert (not found.waits) == (limits.keys() <= measured.keys())
    assert (not found.outside) == all(within(name) for name in limits if name in measured)
    assert all(math.isfinite(value) for value in found.values.values())
    assert found.values.keys() <= limits.keys()


def test_without_limits_nothing_is_asked_of_the_bus() -> None:
    assert compare({}, None) == Finding()


# What a rollout makes of it


def outcome(measured: Mapping[str, Measured] | None, **changes: Any) -> Outcome:
    """Of a canary without fault, whose first of two steps is over."""
    limits = RolloutLimits(metrics={"accuracy": MetricLimits(min=0.9)})
    begun = RolloutStatus(candidate="b", phase=STEPPING, step=1, percent=5, since=NOW - timedelta(seconds=40))
    both = frozenset({"a", "b"})
    situation = Situation(
        **{
            "default": "b",
            "now": NOW,
            "rules": RolloutSpec(limits=limits),
            "stable": "a",
            "complete": both,
            "serving": both,
            "routed": {"a": 95, "b": 5},
            "figures": {"a": GOOD, "b": GOOD},
            "measured": measured,
            "rollout": begun,
            **changes,
        }
    )
    return advance(situation)


def state(made: Outcome) -> RolloutStatus:
    return made.rollout or RolloutStatus()


def metrics(made: Outcome) -> dict[str, float]:
    """The values that decided."""
    verdict = state(made).verdict
    assert verdict
    return verdict.candidate.metrics


@given(st.floats(0.9, 1e300))
def test_a_step_goes_on_with_the_value_that_decided(value: float) -> None:
    made = outcome({"b": {"accuracy": value, "recall": 0.5}})
    assert (state(made).step, made.percent) == (2, 20)
    assert metrics(made) == {"accuracy": value}


@given(st.floats(max_value=0.9, exclude_max=True) | st.just(math.nan) | st.just(math.inf))
def test_a_value_outside_rolls_back_whatever_the_figures_say(value: float) -> None:
    for figures in ({"a": GOOD, "b": GOOD}, None):
        made = outcome({"b": {"accuracy": value}}, figures=figures)
        assert (state(made).phase, state(made).reason) == (ROLLING_BACK, "MetricOutOfLimits")
        assert metrics(made) == ({"accuracy": value} if math.isfinite(value) else {})


@pytest.mark.parametrize("measured", [None, {}, {"a": {"accuracy": 0.99}}, {"b": {"recall": 0.99}}])
def test_a_step_waits_for_what_is_missing(measured: dict[str, Measured] | None) -> None:
    made = outcome(measured)
    assert (made.percent, made.reason) == (5, "MetricMissing")
    late = outcome(measured, now=NOW + timedelta(hours=1))
    assert state(late).reason == "DeadlineExceeded"


def test_errors_roll_back_although_a_metric_is_missing() -> None:
    made = outcome({}, figures={"a": GOOD, "b": BAD})
    assert state(made).reason == "TooManyErrors"


def test_what_decided_about_the_last_step_holds_although_the_stream_has_dropped_it() -> None:
    second = state(outcome({"b": {"accuracy": 0.97}}))
    later = {"rollout": second, "now": NOW + timedelta(seconds=40), "routed": {"a": 80, "b": 20}}
    assert outcome({}, **later).percent == 50
    assert state(outcome({"b": {"accuracy": 0.5}}, **later)).phase == ROLLING_BACK


def test_by_hand_it_is_promoted_without_a_measurement_and_against_one() -> None:
    found: tuple[dict[str, Measured], ...] = ({}, {"b": {"accuracy": 0.1}})
    for measured in found:
        assert outcome(measured, promote="b").stable == "b"


def test_a_service_without_any_answer_is_not_kept_waiting() -> None:
    dead = {"serving": frozenset({"b"}), "silent_since": NOW - timedelta(seconds=60)}
    assert outcome({}, **dead).stable == "b"
    assert state(outcome({"b": {"accuracy": 0.1}}, **dead)).phase == ROLLING_BACK


def test_a_canary_by_hand_is_not_judged() -> None:
    made = outcome(
        {"b": {"accuracy": 0.1}}, rules=RolloutSpec(mode="Manual"), default="a", canary="b", percent=7
    )
    assert made.traffic == {"a": 93, "b": 7}


# Which measurement counts


def object_of(uid: str = "u-1", name: str = "lac") -> dict[str, Any]:
    made = make_service(name)
    made["metadata"]["uid"] = uid
    return made


def delivered(event: Event, published_at: datetime | None = None) -> Delivery:
    """As it comes from the bus, which stored it at once."""
    body, headers = encode(event)
    return Delivery(decode(event.subject, body, headers), event.subject, 1, 1, published_at or event.time)


def there_is_one(_: str) -> Key:
    """There is a service with every uid."""
    return LAC


async def test_nothing_is_said_before_all_is_read_and_then_the_newest() -> None:
    woken: list[Key] = []
    measurements = Measurements(there_is_one, woken.append)
    for day, accuracy in ((1, 0.5), (3, 0.97), (2, 0.6)):
        at = datetime(2026, 1, day, tzinfo=UTC)
        await measurements.published(delivered(make_measured(object_of(), "r", at, accuracy=accuracy)))
        assert measurements.of("u-1") is None
    assert not woken
    measurements.caught_up()
    assert woken == [LAC]
    assert measurements.of("u-1") == {"r": {"accuracy": 0.97}}
    assert measurements.of("u-2") == {}


async def test_a_change_wakes_its_service_and_a_late_older_one_nobody() -> None:
    woken: list[Key] = []
    measurements = Measurements(there_is_one, woken.append)
    measurements.caught_up()
    for day in (2, 1):
        at = datetime(2026, 1, day, tzinfo=UTC)
        await measurements.published(delivered(make_measured(object_of(), "r", at, accuracy=day)))
    assert woken == [LAC]


async def test_a_clock_that_is_ahead_shuts_out_nothing_that_is_measured_later() -> None:
    measurements = Measurements(there_is_one, lambda _: None)
    measurements.caught_up()
    ahead = make_measured(object_of(), "r", datetime(2099, 1, 1, tzinfo=UTC), accuracy=0.1)
    await measurements.published(delivered(ahead, NOW))
    assert measurements.of("u-1") == {"r": {"accuracy": 0.1}}
    later = NOW + timedelta(minutes=1)
    await measurements.published(delivered(make_measured(object_of(), "r", later, accuracy=0.97)))
    assert measurements.of("u-1") == {"r": {"accuracy": 0.97}}


async def test_the_service_with_the_uid_is_woken_whatever_name_the_publisher_gives_it() -> None:
    woken: list[Key] = []
    measurements = Measurements(there_is_one, woken.append)
    measurements.caught_up()
    for name, accuracy in (("typo", 0.5), ("lac", 0.97)):
        await measurements.published(
            delivered(make_measured(object_of(name=name), "r", NOW, accuracy=accuracy))
        )
    assert woken == [LAC, LAC]


async def test_each_metric_is_the_newest_of_its_own() -> None:
    measurements = Measurements(there_is_one, lambda _: None)
    measurements.caught_up()
    for day, values in ((1, {"a": 1.0, "b": 1.0}), (2, {"b": math.nan}), (2, {"c": 3.0})):
        at = datetime(2026, 1, day, tzinfo=UTC)
        await measurements.published(delivered(make_measured(object_of(), "r", at, **values)))
    found = (measurements.of("u-1") or {})["r"]
    assert (found["a"], math.isnan(found["b"]), found["c"]) == (1.0, True, 3.0)


async def test_a_service_made_again_under_its_name_begins_without_measurements() -> None:
    measurements = Measurements(there_is_one, lambda _: None)
    measurements.caught_up()
    await measurements.published(delivered(make_measured(object_of("old"), "r", NOW, accuracy=1.0)))
    assert measurements.of("new") == {}
    measurements.forget("old")
    assert measurements.of("old") == {}


async def test_what_is_not_of_a_service_that_exists_is_not_remembered() -> None:
    known: dict[str, Key] = {}
    measurements = Measurements(known.get, lambda _: None)
    measurements.caught_up()
    await measurements.published(delivered(make_measured(object_of(), "r", NOW, accuracy=1.0)))
    known["u-1"] = LAC
    assert measurements.of("u-1") == {}


async def test_as_many_are_remembered_as_a_rollout_can_need_however_many_are_published() -> None:
    measurements = Measurements(there_is_one, lambda _: None)
    measurements.caught_up()
    names = {f"m-{number}": 1.0 for number in range(10_000)}
    await measurements.published(delivered(make_measured(object_of(), "r", NOW, **names, **{"x" * 64: 1.0})))
    assert list((measurements.of("u-1") or {})["r"]) == list(names)[-64:]
    for revision in (*(f"r-{number}" for number in range(1000)), "r-999", "r-998", "x" * 64):
        await measurements.published(delivered(make_measured(object_of(), revision, NOW, accuracy=1.0)))
    assert list(measurements.of("u-1") or {})[-3:] == ["r-997", "r-999", "r-998"]
    assert len(measurements.of("u-1") or {}) == 16


# The whole service


ROLLOUT = {"limits": {"metrics": {"accuracy": {"min": 0.9}}}, "deadlineSeconds": 600}


async def waiting(harness: ServingHarness) -> tuple[str, str]:
    """A canary without fault that was not measured: the stable revision, and the candidate."""
    first, second = await to_second_version(harness, rollout=ROLLOUT)
    await harness.ready(second)
    await harness.look({first: GOOD, second: GOOD})
    assert await harness.reason("Progressing") == ("True", "MetricMissing")
    return first, second


async def publish(harness: ServingHarness, revision: str, accuracy: float) -> None:
    obj = await harness.cluster.get(PADDLE_SERVICES, LAC)
    await harness.publish(make_measured(obj, revision, harness.clock.now(), accuracy=accuracy))
    await harness.route()


async def test_a_measured_canary_goes_through_its_steps_and_each_fact_has_the_value(
    harness: ServingHarness,
) -> None:
    first, second = await waiting(harness)
    await publish(harness, second, 0.97)
    for _ in range(2):
        await harness.look({first: GOOD, second: GOOD})
    assert await harness.stable() == second
    told: list[Any] = [event.data for event in harness.published]
    figures = [fact.statistics for fact in told if getattr(fact, "statistics", None)]
    assert [side.canary.metrics for side in figures] == [{"accuracy": 0.97}] * 3
    assert all(not side.stable.metrics for side in figures)


async def test_a_measurement_outside_rolls_back_at_once_with_reason_and_value(
    harness: ServingHarness,
) -> None:
    first, second = await waiting(harness)
    await publish(harness, second, 0.81)
    assert await harness.traffic() == {first: 100}
    assert await harness.reason("RolledBack") == ("True", "MetricOutOfLimits")
    assert "accuracy 0.81 is below 0.9 (min)" in (await harness.condition(LAC, "RolledBack"))["message"]
    rollout = (await harness.status(LAC))["rollout"]
    assert rollout["verdict"]["candidate"]["metrics"] == {"accuracy": 0.81}
    assert (harness.last.reason, harness.last.statistics.canary.metrics) == (
        "MetricOutOfLimits",
        {"accuracy": 0.81},
    )


async def test_a_failed_measurement_rolls_back_and_is_told_without_a_number(harness: ServingHarness) -> None:
    _, second = await waiting(harness)
    await publish(harness, second, math.nan)
    assert await harness.reason("RolledBack") == ("True", "MetricOutOfLimits")
    assert "metrics" not in (await harness.status(LAC))["rollout"]["verdict"]["candidate"]
    assert "accuracy is nan" in harness.last.message


async def test_a_canary_that_nobody_measures_says_what_it_waits_for_until_its_deadline(
    harness: ServingHarness,
) -> None:
    first, second = await waiting(harness)
    assert "accuracy was not measured" in (await harness.condition(LAC, "Progressing"))["message"]
    assert await harness.traffic() == {first: 95, second: 5}
    await publish(harness, first, 0.97)
    await harness.look({first: GOOD, second: GOOD}, seconds=600)
    assert await harness.traffic() == {first: 100}
    assert await harness.reason("RolledBack") == ("True", "DeadlineExceeded")
    assert "accuracy" in (await harness.condition(LAC, "RolledBack"))["message"]


async def test_a_revision_measured_as_bad_beforehand_never_gets_requests(harness: ServingHarness) -> None:
    first, second = await to_second_version(harness, rollout=ROLLOUT)
    await publish(harness, second, 0.5)
    assert await harness.reason("RolledBack") == ("True", "MetricOutOfLimits")
    assert await harness.traffic() == {first: 100}
    assert "CanaryStarted" not in harness.facts()


async def test_measurements_survive_a_restart_and_what_came_meanwhile_is_read(
    harness: ServingHarness,
) -> None:
    first, second = await waiting(harness)
    await publish(harness, second, 0.97)
    await harness.restart()
    await harness.drain_queue()
    for _ in range(3):
        await harness.look({first: GOOD, second: GOOD})
    assert await harness.stable() == second


async def test_limits_that_can_never_be_met_are_named(harness: ServingHarness) -> None:
    limits = {"metrics": {"accuracy": {"min": 0.9, "max": 0.8}, "recall": {}}}
    await harness.apply(rollout={"limits": limits}, default=make_endpoint())
    assert await harness.reason("Accepted") == ("False", "InvalidSpec")
    message = (await harness.condition(LAC, "Accepted"))["message"]
    assert "spec.rollout.limits.metrics[accuracy].min: min is above max: lower min, or raise max" in message
    assert "spec.rollout.limits.metrics[recall]: a metric needs min or max" in message
