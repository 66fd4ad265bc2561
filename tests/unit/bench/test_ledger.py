"""The judge of the fault runs finds what is lost, doubled or out of order, and nothing else."""

from __future__ import annotations

import random

import pytest
from tests.bench.latency import percentile
from tests.bench.rows import Row
from tests.chaos.killer import draw_moments, draw_names
from tests.chaos.ledger import (
    BEFORE_THE_END,
    ORDER,
    find_disorder,
    made_twice,
    settle_effects,
    settle_facts,
    settle_started,
)
from tests.chaos.lives import draw_lives

from paddlewheel.contracts.generated.registry import EVENTS

ACCEPTED, STARTING, RUNNING, SUCCEEDED = (
    f"u1/{fact}/0" for fact in ("JobAccepted", "JobStarting", "JobRunning", "JobSucceeded")
)


def test_a_run_in_which_all_is_well() -> None:
    account = settle_facts({ACCEPTED, RUNNING}, [ACCEPTED, STARTING, RUNNING])
    assert (account.lost, account.doubled, account.disordered) == ((), (), ())


def test_a_promised_fact_that_is_not_there_is_lost() -> None:
    assert settle_facts({ACCEPTED, RUNNING}, [ACCEPTED]).lost == (RUNNING,)


def test_a_fact_stored_twice_is_named_once() -> None:
    assert settle_facts({ACCEPTED}, [ACCEPTED, RUNNING, RUNNING, RUNNING]).doubled == (RUNNING,)


def test_a_fact_behind_a_later_one_of_its_job_is_out_of_order() -> None:
    other = RUNNING.replace("u1", "u2")
    assert find_disorder([ACCEPTED, other, RUNNING, STARTING, SUCCEEDED]) == [STARTING]
    assert find_disorder([SUCCEEDED, ACCEPTED, "s1/SampleSetBound/0"]) == [ACCEPTED]


def test_a_job_may_be_stuck_at_any_time_before_its_end() -> None:
    stuck, again = "u1/JobStuck/0", "u1/JobStuck/1"
    assert find_disorder([ACCEPTED, stuck, STARTING, RUNNING, again, SUCCEEDED]) == []
    assert find_disorder([ACCEPTED, SUCCEEDED, stuck]) == [stuck]


def test_a_restarted_job_starts_and_runs_again() -> None:
    again, running_again = "u1/JobStarting/1", "u1/JobRunning/1"
    restarted = "u1/JobRestarted/0"
    assert find_disorder([ACCEPTED, STARTING, RUNNING, restarted, again, running_again, SUCCEEDED]) == []
    assert find_disorder([ACCEPTED, running_again, again, RUNNING]) == [again, RUNNING]
    assert find_disorder([ACCEPTED, SUCCEEDED, running_again, restarted]) == [running_again, restarted]


def test_a_fact_without_a_place_in_the_order_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"u1/JobPaused/0: .*ledger\.ORDER"):
        find_disorder([ACCEPTED, "u1/JobPaused/0"])


def test_the_order_has_a_place_for_every_fact_of_a_job() -> None:
    facts = [name.rpartition(".")[2] for name in EVENTS if name.startswith("paddlewheel.jobs.")]
    assert sorted((*ORDER, *BEFORE_THE_END)) == sorted(facts)


def test_effects_are_missing_or_done_twice() -> None:
    account = settle_effects([ACCEPTED, RUNNING], [ACCEPTED, ACCEPTED])
    assert (account.lost, account.doubled) == ((RUNNING,), (ACCEPTED,))


def test_every_failure_starts_one_job() -> None:
    failed, other, third = (f"u{number}/JobFailed/0" for number in range(3))
    account = settle_started([ACCEPTED, failed, other, third], {failed: {"a"}, other: {"b", "c"}})
    assert (account.lost, account.doubled) == ((third,), (other,))


def test_a_pod_that_its_job_got_a_second_time() -> None:
    pods = {("u1", "job-worker-0"): {"p1"}, ("u1", "job-worker-1"): {"p2", "p3"}, ("u2", "x"): {"p4"}}
    assert made_twice(pods) == ["job-worker-1"]


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_kills_the_same_at_the_same_moments_and_spares_nobody(seed: int) -> None:
    names = ["nats", "a", "b", "c"]
    first, again = (draw_names(random.Random(seed), 20, names, "nats") for _ in range(2))
    assert first == again
    assert len(first) == 20
    assert set(first) == set(names)
    moments = draw_moments(random.Random(seed), 20, 2000)
    assert moments == sorted(moments)
    assert 100 <= moments[0] <= moments[-1] <= 1900


def test_lives_are_enough_for_the_transitions_of_the_fault_run() -> None:
    lives = draw_lives(random.Random(1), 440, ["set"])
    assert {life.name for life in lives} == {f"job-{number:03}" for number in range(440)}
    assert sum(4 + life.is_deleted for life in lives) > 1850
    assert any(life.fails for life in lives)
    assert not any(life.sample_set for life in draw_lives(random.Random(1), 20, []))


def test_a_percentile_is_exceeded_by_no_more() -> None:
    assert percentile([float(number) for number in range(101)], 99) == 99.0


@pytest.mark.parametrize(
    ("value", "at_least", "verdict"),
    [(1.0, False, "ok"), (1.1, False, "short"), (1.0, True, "ok"), (0.9, True, "short")],
)
def test_a_row_is_ok_or_short(value: float, at_least: bool, verdict: str) -> None:
    row = Row("name", value, 1.0, at_least=at_least)
    assert row.verdict == verdict
    assert row.line().endswith(verdict)
