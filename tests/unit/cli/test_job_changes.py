"""What `paddlewheel job` asks of a job, and what it refuses to ask."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddlewheel.cli.job_changes import Change, Json, restart, resumption, scaling, suspension
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

NOW = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
CHANGES: list[Callable[[Json], Change]] = [
    lambda job: scaling(job, 3),
    suspension,
    resumption,
    lambda job: restart(job, NOW),
]


def make_job(*, phase: str = "Running", **spec: Any) -> Json:
    return {**make_paddle_job("sine", "team-a", worker=make_role(2), **spec), "status": {"phase": phase}}


def test_scaling_changes_the_replicas_of_the_workers_alone() -> None:
    change = scaling(make_job(), 3)
    assert change.patch == {"spec": {"worker": {"replicas": 3}}}
    assert change.summary == "3 workers requested, 2 before"
    assert scaling(make_job(), 1).summary == "1 worker requested, 2 before"
    assert scaling(make_job(), 2) == Change("has 2 workers already", {})


def test_a_job_without_workers_is_not_given_any() -> None:
    servers = make_paddle_job("sine", ps=make_role(2))
    with pytest.raises(Permanent, match=r"NoWorkers: default/sine has no workers \(spec.worker\)"):
        scaling(servers, 3)


def test_a_suspension_is_asked_for_once_and_taken_back() -> None:
    assert suspension(make_job()).patch == {"spec": {"suspend": True}}
    assert suspension(make_job(suspend=True)).patch == {}
    assert resumption(make_job(suspend=True)).patch == {"spec": {"suspend": False}}
    assert resumption(make_job()).patch == {}


def test_every_restart_is_another_value_of_the_annotation() -> None:
    first, second = (restart(make_job(), NOW + timedelta(milliseconds=n)).patch for n in (0, 1))
    assert first == {"metadata": {"annotations": {"paddlepaddle.org/restart": "2026-01-02T03:04:05.678Z"}}}
    assert first != second


def test_a_suspended_job_is_resumed_instead_of_restarted() -> None:
    with pytest.raises(Permanent, match="`paddlewheel job resume team-a/sine` starts it with new pods"):
        restart(make_job(suspend=True), NOW)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("phase", ["Completed", "Failed"])
def test_a_job_that_has_ended_is_not_changed(change: Callable[[Json], Change], phase: str) -> None:
    with pytest.raises(
        Permanent, match=rf"\({phase}\) and cannot run again: run `paddlewheel job delete team-a/sine`"
    ):
        change(make_job(phase=phase))


@pytest.mark.parametrize("change", CHANGES)
def test_a_job_that_is_being_deleted_is_not_changed(change: Callable[[Json], Change]) -> None:
    job = make_job()
    going = {**job, "metadata": {**job["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    with pytest.raises(Permanent, match="BeingDeleted"):
        change(going)
