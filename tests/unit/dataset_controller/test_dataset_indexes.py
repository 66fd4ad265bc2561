"""By which keys sets, jobs, nodes and pods are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dataset_controller.domain.indexes import (
    as_jobs_see,
    as_others_see,
    is_being_bound,
    is_finished,
    is_waiting,
    label_of_set,
    labels_of_node,
    labels_to_wake,
    run_of_job,
    runtime_of_pod,
    set_of_job,
    set_of_waiting_job,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.testkit.samplesets import make_sample_job

BARE = {"metadata": {"name": "bare", "namespace": "team-a"}}


def job(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {**make_sample_job(namespace="team-a", **spec), "status": status or {}}


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "x", "namespace": "team-a", "labels": labels}}


@pytest.mark.parametrize(
    ("index", "obj", "keys"),
    [
        (label_of_set, BARE, ["paddlepaddle.org/juicefs-team-a.bare"]),
        (set_of_job, BARE, []),
        (set_of_job, job(sampleSetRef={}), []),
        (set_of_job, job(), ["team-a/digits"]),
        (set_of_job, job({"jobName": "r1", "sampleSetName": "before"}), ["team-a/before"]),
        (set_of_job, job({"sampleSetName": "before"}), ["team-a/digits"]),
        (set_of_waiting_job, job(), []),
        (set_of_waiting_job, job(terminate=True), ["team-a/digits"]),
        (set_of_waiting_job, job({"jobName": "r1"}, terminate=True), []),
        (run_of_job, BARE, []),
        (run_of_job, job({"jobName": "r1"}), ["r1"]),
        (
            labels_of_node,
            labelled(
                **{
                    "zone": "a",
                    "paddlepaddle.org/juicefs-team-a.digits": "0",
                    "paddlepaddle.org/home-team-a.digits": "0",
                }
            ),
            ["paddlepaddle.org/juicefs-team-a.digits", "paddlepaddle.org/home-team-a.digits"],
        ),
        (runtime_of_pod, BARE, []),
        (runtime_of_pod, labelled(name="digits-runtime"), ["team-a/digits-runtime"]),
    ],
)
def test_an_object_is_found_by(
    index: Callable[[dict[str, Any]], list[str]], obj: dict[str, Any], keys: list[str]
) -> None:
    assert index(obj) == keys


def test_jobs_see_of_their_set_what_their_runs_depend_on() -> None:
    assert as_jobs_see(BARE) == ("", 0, "", None, None)
    metadata = {"uid": "u", "generation": 3, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    status = {"phase": "Ready", "runtimeStatus": {"readyReplicas": 2}, "cacheStatus": {"totalFiles": "9"}}
    seen = as_jobs_see({"metadata": {"name": "digits", **metadata}, "status": status})
    assert seen == ("u", 3, "2026-01-01T00:00:00Z", "Ready", 2)


def test_waiting_jobs_see_the_end_of_another_and_what_it_asks_for() -> None:
    seen = {phase: as_others_see(job({"phase": phase})).end for phase in ("", "Pending", "Running", "Failed")}
    assert seen == {"": "", "Pending": "", "Running": "", "Failed": "Failed"}
    assert as_others_see(job()).sets == ("team-a/digits",)
    cancels = [
        as_others_see(job({"conditions": [{"type": t}]})).cancels for t in ("Started", "OthersCancelled")
    ]
    assert cancels == [False, True]


@pytest.mark.parametrize(
    ("accepted", "started", "is_in_line"),
    [
        ("Accepted", "WaitingForTurn", True),
        ("InvalidSpec", "WaitingForTurn", False),
        ("Accepted", "WaitingForJobs", False),
    ],
)
def test_waiting_jobs_see_who_is_in_line(accepted: str, started: str, is_in_line: bool) -> None:
    conditions = [{"type": "Accepted", "reason": accepted}, {"type": "Started", "reason": started}]
    assert as_others_see(job({"conditions": conditions})).is_in_line is is_in_line


def test_jobs_that_have_ended_see_who_waits_for_them() -> None:
    waits = (Key("team-a", "first"),)
    assert as_others_see(job(after=["first"])).awaits == waits
    assert as_others_see(job({"phase": "Pending", "jobName": "r1"}, after=["first"])).awaits == ()
    going = job(after=["first"])
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert as_others_see(going).awaits == ()


@pytest.mark.parametrize(
    ("status", "waiting"),
    [({}, True), ({"phase": "Pending"}, True), ({"jobName": "r1"}, False), ({"phase": "Failed"}, False)],
)
def test_a_job_waits_until_its_run_is_requested(status: dict[str, Any], waiting: bool) -> None:
    assert is_waiting(job(status)) is waiting


@pytest.mark.parametrize(
    ("phase", "finished"),
    [("Succeeded", True), ("Failed", True), ("Running", False), ("Pending", False), ("", False)],
)
def test_a_job_that_has_failed_is_as_finished_as_one_that_has_succeeded(phase: str, finished: bool) -> None:
    assert is_finished(job({"phase": phase})) is finished


@pytest.mark.parametrize(
    ("status", "deleted", "expected"),
    [
        ({}, False, True),
        ({"phase": "NotBound", "conditions": [{"type": "Accepted", "status": "True"}]}, False, True),
        ({"phase": "NotBound", "conditions": [{"type": "Accepted", "status": "False"}]}, False, False),
        ({"phase": "NotBound", "conditions": [{"type": "Reconciled", "status": "False"}]}, False, False),
        ({"phase": "Bound"}, False, False),
        ({"phase": "NotBound"}, True, False),
    ],
)
def test_sets_that_are_being_bound_go_first(status: dict[str, Any], deleted: bool, expected: bool) -> None:
    """A refused one is looked at every few seconds until it is corrected."""
    meta = {**BARE["metadata"], **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})}
    assert is_being_bound({"metadata": meta, "status": status}) is expected


DIGITS, HOME_OF_DIGITS = "paddlepaddle.org/juicefs-team-a.digits", "paddlepaddle.org/home-team-a.digits"
OTHER, PUBLIC = "paddlepaddle.org/juicefs-team-a.other", "paddlepaddle.org/juicefs-digits"
NAMESAKE = "paddlepaddle.org/juicefs-team-b.digits"
ON_NODE = {DIGITS: "0", HOME_OF_DIGITS: "0", PUBLIC: "digits-runtime-0", OTHER: "1", NAMESAKE: "2"}


@pytest.mark.parametrize(
    ("change", "woken"),
    [
        ({}, set()),
        ({OTHER: "2"}, {OTHER}),
        ({OTHER: None}, {OTHER}),
        ({"paddlepaddle.org/juicefs-team-a.new": "0"}, {"paddlepaddle.org/juicefs-team-a.new"}),
        ({HOME_OF_DIGITS: None}, {DIGITS}),
        ({PUBLIC: "another-runtime-0"}, {DIGITS, NAMESAKE}),
        ({"paddlepaddle.org/home-team-a.gone": "0"}, {*ON_NODE, "paddlepaddle.org/home-team-a.gone"}),
        (dict.fromkeys(ON_NODE), {DIGITS, OTHER, NAMESAKE}),
    ],
)
def test_a_node_wakes_the_sets_whose_labels_have_changed(
    change: dict[str, str | None], woken: set[str]
) -> None:
    after = {name: value for name, value in {**ON_NODE, **change}.items() if value is not None}
    assert labels_to_wake(ON_NODE, after) == woken


def test_a_node_that_comes_or_goes_wakes_all_its_sets() -> None:
    assert labels_to_wake({}, ON_NODE) == labels_to_wake(ON_NODE, {}) == {DIGITS, OTHER, NAMESAKE}
