"""The rules of job-controller as tables."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.job_controller.builders import make_job, make_pod

from job_controller.core import names
from job_controller.core.clean_up import deletes_children
from job_controller.core.failure import failure_message, first_failures
from job_controller.core.job_status import JobStatus, RoleStatus
from job_controller.core.model import Observed
from job_controller.core.phase import decide_phase
from job_controller.core.pods import Failure, PodState
from job_controller.core.restart_policy import restart_policy
from job_controller.core.results import decide_results
from job_controller.features.stuck.overdue import overdue_message, overdue_pod, overdue_times
from job_controller.features.words.rules import unknown_words
from paddlewheel.testkit.paddlejobs import make_role

P, S, R, F, D = (
    PodState.PENDING,
    PodState.STARTING,
    PodState.RUNNING,
    PodState.FAILED,
    PodState.SUCCEEDED,
)


@pytest.mark.parametrize(
    ("policy", "at_failed", "at_completed"),
    [
        ("", False, True),
        ("Always", True, True),
        ("OnFailure", True, False),
        ("OnCompletion", False, True),
        ("Never", False, False),
        ("OnFailed", False, False),
        ("Nerver", False, False),
    ],
)
def test_clean_up_table(policy: str, at_failed: bool, at_completed: bool) -> None:
    assert deletes_children(policy, names.FAILED) is at_failed
    assert deletes_children(policy, names.COMPLETED) is at_completed
    assert not deletes_children(policy, names.RUNNING)


def test_unknown_words_are_reported_and_known_ones_are_not() -> None:
    odd = make_job(intranet="Pod", cleanPodPolicy="OnFailed", worker=make_role())
    assert [w.condition for w in unknown_words(odd)] == ["NetworkWordUnknown", "CleanPodPolicyUnknown"]
    assert all("use " in w.message for w in unknown_words(odd))
    assert odd.network.value == "PodIP"
    assert not deletes_children("Nerver", names.COMPLETED)
    for word in ("", "PodIP", "Service", "Host"):
        assert not list(unknown_words(make_job(intranet=word, worker=make_role())))


@pytest.mark.parametrize(
    ("spec", "role", "expected"),
    [
        ({"worker": make_role()}, "worker", "Never"),
        ({"worker": make_role(restartPolicy="Always")}, "worker", "Always"),
        ({"intranet": "Service", "worker": make_role()}, "worker", "OnFailure"),
        ({"intranet": "Service", "worker": make_role(restartPolicy="Never")}, "worker", "Never"),
        ({"intranet": "Service", "ps": make_role(), "worker": make_role()}, "ps", "Never"),
        ({"elastic": 1, "worker": make_role(restartPolicy="Never")}, "worker", "OnFailure"),
        ({"elastic": 0, "worker": make_role()}, "worker", "Never"),
    ],
)
def test_restart_policy(spec: dict[str, Any], role: str, expected: str) -> None:
    parsed = make_job(**spec)
    assert restart_policy(parsed, next(r for r in parsed.roles if r.name == role)) == expected


@pytest.mark.parametrize(
    ("spec", "mode"),
    [
        ({"ps": make_role(), "worker": make_role(2)}, "PS"),
        ({"worker": make_role(2)}, "Collective"),
        ({"worker": make_role(1)}, "Single"),
        ({"heter": make_role(2)}, "Single"),
        ({"worker": make_role(2), "heter": make_role(2)}, "Collective"),
    ],
)
def test_mode(spec: dict[str, Any], mode: str) -> None:
    assert make_job(**spec).mode.value == mode


@pytest.mark.parametrize(
    ("replicas", "states", "expected"),
    [
        ({"worker": 2}, {"worker": []}, "Pending"),
        ({"worker": 2}, {"worker": [P, P]}, "Pending"),
        ({"worker": 2}, {"worker": [P, S]}, "Starting"),
        ({"worker": 2}, {"worker": [R, S]}, "Starting"),
        ({"worker": 2}, {"worker": [R, P]}, "Pending"),
        ({"worker": 2}, {"worker": [R]}, "Pending"),
        ({"worker": 2}, {"worker": [R, R]}, "Running"),
        ({"worker": 2}, {"worker": [R, D]}, "Running"),
        ({"worker": 2}, {"worker": [D, D]}, "Completed"),
        ({"worker": 2}, {"worker": [D, F]}, "Pending"),
        ({"worker": 2}, {"worker": [P, F]}, "Pending"),
        ({"ps": 1, "worker": 1}, {"ps": [R], "worker": [R]}, "Running"),
        ({"ps": 1, "worker": 1}, {"ps": [R], "worker": [D]}, "Completed"),
        ({"ps": 1, "worker": 1}, {"ps": [F], "worker": [R]}, "Pending"),
        ({"ps": 1, "worker": 1}, {"ps": [F], "worker": [D]}, "Completed"),
        ({"ps": 1, "worker": 1}, {"ps": [S], "worker": [F]}, "Starting"),
        ({"ps": 1, "worker": 1}, {"ps": [P], "worker": [S]}, "Starting"),
        ({"ps": 1}, {"ps": [D]}, "Completed"),
        ({"ps": 1, "worker": 0}, {"ps": [R], "worker": []}, "Running"),
        ({"worker": 1, "heter": 1}, {"worker": [R], "heter": [F]}, "Pending"),
        ({"worker": 1, "heter": 1}, {"worker": [D], "heter": [R]}, "Completed"),
        ({"ps": 0, "worker": 0}, {"ps": [], "worker": []}, "Pending"),
        ({"worker": 0}, {"worker": [F]}, "Pending"),
    ],
)
def test_phase_is_a_function_of_the_pods_alone(
    replicas: dict[str, int], states: dict[str, list[PodState]], expected: str
) -> None:
    roles = {
        role: RoleStatus({state: found.count(state) for state in PodState}) for role, found in states.items()
    }
    assert decide_phase(replicas, roles) == expected
    assert decide_phase(replicas, dict(reversed(roles.items()))) == expected


def test_the_first_failure_is_reported_with_pod_code_and_last_line() -> None:
    late = Failure("demo-worker-0", "Error", 1, "peer gone", "2026-01-01T00:00:09Z")
    early = Failure("demo-worker-1", "OOMKilled", 137, "loading", "2026-01-01T00:00:05Z")
    evicted = Failure("demo-worker-2", "Evicted", None, "")
    pods = [
        make_pod("worker", 2, failure=evicted),
        make_pod("worker", 0, failure=late),
        make_pod("worker", 1, failure=early),
    ]
    assert first_failures(pods) == ((pods[2], early),)
    assert failure_message(early) == "pod demo-worker-1 failed (OOMKilled, exit code 137): loading"
    assert failure_message(evicted) == "pod demo-worker-2 failed (Evicted)"
    assert first_failures([make_pod("ps", 0)]) == ()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", {}),
        ("done", {}),
        ("[1]", {}),
        ('{"accuracy": 0.98, "epochs": 3, "ok": true, "name": "x"}', {"accuracy": 0.98, "epochs": 3.0}),
        ('{"loss": NaN, "best": Infinity, "step": 1}', {"step": 1.0}),
        (f'{{"beyond every float": 1{"0" * 400}, "step": 1}}', {"step": 1.0}),
        ("[" * 4000, {}),
    ],
)
def test_results_are_the_numbers_of_worker_zero(message: str, expected: dict[str, float]) -> None:
    other = make_pod("worker", 1, termination_message=json.dumps({"wrong": 1}))
    server = make_pod("ps", 0, termination_message=json.dumps({"wrong": 1}))
    pods = (server, other, make_pod("worker", 0, termination_message=message))
    job = make_job(worker=make_role(2), ps=make_role(1))
    assert decide_results(Observed(job, pods), "Completed") == expected
    assert decide_results(Observed(job), "Completed") == {}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"node": "gpu-7"},
            "but node gpu-7 does not confirm its end; if the node is lost for good, delete the Node or"
            " taint it with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        ),
        ({"node": "gpu-7", "finalizers": ("a/b", "c/d")}, "but has the finalizers a/b, c/d, which"),
        ({}, "but is still there"),
    ],
    ids=["lost node", "finalizers", "never scheduled"],
)
def test_a_deleted_pod_that_does_not_go_says_what_keeps_it(fields: dict[str, Any], why: str) -> None:
    pod = make_pod("worker", 1, state=P, terminating=True, ends_by="2026-01-01T00:00:00Z", **fields)
    message = overdue_message(pod)
    assert message.startswith("pod demo-worker-1 was deleted and should be gone since 2026-01-01T00:00:00Z, ")
    assert why in message


@pytest.mark.parametrize(
    ("after", "found", "left"), [(0, False, 30.0), (29, False, 1.0), (30, True, None), (900, True, None)]
)
def test_a_deleted_pod_is_overdue_half_a_minute_after_its_grace_period(
    after: int, found: bool, left: float | None
) -> None:
    ends = datetime(2026, 1, 1, tzinfo=UTC)
    leaving = make_pod("worker", 1, state=P, terminating=True, ends_by="2026-01-01T00:00:00Z")
    seen = Observed(make_job(worker=make_role(2)), (make_pod("worker", 0), leaving))
    assert (overdue_pod(seen, ends + timedelta(seconds=after)) == leaving) is found
    at = ends + timedelta(seconds=after)
    assert seen.looking_at(overdue_times(seen), at).next_look == left


def test_a_pod_whose_place_nobody_needs_is_never_overdue() -> None:
    late = datetime(2026, 1, 2, tzinfo=UTC)
    leaving = make_pod("worker", 1, state=P, terminating=True, ends_by="2026-01-01T00:00:00Z")
    surplus = Observed(make_job(worker=make_role(1)), (leaving,))
    done = JobStatus(roles={"worker": RoleStatus(succeeded_indexes=(1,))})
    finished = Observed(replace(make_job(worker=make_role(2)), status=done), (leaving,))
    for seen in (surplus, finished):
        assert (overdue_pod(seen, late), list(overdue_times(seen))) == (None, [])
