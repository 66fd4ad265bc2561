"""A change of a pod that does not wait for other changes is found in constant time."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import pytest

from job_controller.core import names
from job_controller.core.model import AUTO
from job_controller.core.pods import PodState
from job_controller.core.urgency import may_change_phase
from job_controller.timing import (
    COUNTS_INTERVAL_SECONDS,
    LONGEST_COUNTS_INTERVAL_SECONDS,
    POD_CHANGE_BATCH_INTERVAL_SECONDS,
)
from job_controller.watch import Pace, PodTally, Wakes, make_watch
from paddlewheel.kube.ports import Change, Object
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_cluster import MemoryCluster
from paddlewheel.testkit.paddlejobs import ended_status, make_paddle_job, running_status

PENDING, RUNNING = {"phase": "Pending"}, running_status("10.0.0.1")
SUCCEEDED, FAILED = ended_status(), ended_status(exit_code=1)
P, R, F, D = PodState.PENDING, PodState.RUNNING, PodState.FAILED, PodState.SUCCEEDED


def make_pod(index: int, status: Object, role: str = "worker", job: str = "j", **metadata: object) -> Object:
    own: Object = {
        "name": f"{job}-{role}-{index}",
        "namespace": "default",
        "uid": f"{job}-{role}-{index}",
        "labels": {"paddle-res-type": role},
        "ownerReferences": [{"kind": "PaddleJob", "name": job, "uid": job, "controller": True}],
    }
    return {"metadata": own | metadata, "spec": {"containers": [{"name": "main"}]}, "status": status}


@pytest.mark.parametrize(
    ("state", "others", "expected"),
    [
        pytest.param(R, [R], True, id="the last one runs"),
        pytest.param(R, [D], True, id="the last one runs, another has succeeded"),
        pytest.param(R, [P], False, id="another does not run yet"),
        pytest.param(D, [D], True, id="the last one has succeeded"),
        pytest.param(D, [R], False, id="another still runs"),
        pytest.param(F, [R], True, id="one failure is enough"),
        pytest.param(P, [P], False, id="created in a burst"),
    ],
)
def test_only_what_may_change_the_phase_is_urgent(
    state: PodState, others: list[PodState], expected: bool
) -> None:
    assert may_change_phase(state, Counter([state, *others])) is expected


class Tallied:
    """A tally with the changes of a test."""

    def __init__(self) -> None:
        self.tally = PodTally()

    def see(self, pod: Object, type_: Literal["ADDED", "MODIFIED", "DELETED"] = "MODIFIED") -> bool:
        return self.tally.take_in(Change(type_, pod))


def test_the_last_pod_of_a_role_is_urgent_whatever_other_roles_and_jobs_do() -> None:
    seen = Tallied()
    for index in range(2):
        assert not seen.see(make_pod(index, PENDING))
    seen.see(make_pod(0, RUNNING, "ps"))
    seen.see(make_pod(0, PENDING, job="other"))
    assert not seen.see(make_pod(0, RUNNING))
    assert seen.see(make_pod(1, RUNNING))
    assert not seen.see(make_pod(0, SUCCEEDED))
    assert seen.see(make_pod(1, SUCCEEDED))


def test_servers_that_run_on_do_not_hold_the_workers_end_back() -> None:
    seen = Tallied()
    seen.see(make_pod(0, RUNNING, role="ps"))
    assert seen.see(make_pod(0, SUCCEEDED))


def test_pods_that_are_gone_or_on_their_way_out_count_no_longer_as_what_they_were() -> None:
    seen = Tallied()
    seen.see(make_pod(0, PENDING))
    seen.see(make_pod(1, PENDING))
    assert not seen.see(make_pod(1, PENDING), "DELETED")
    assert seen.see(make_pod(0, RUNNING)), "the only one left"
    assert seen.see(make_pod(0, RUNNING, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert not seen.see(make_pod(0, SUCCEEDED, deletionTimestamp="2026-01-01T00:00:00Z"))


def test_the_last_address_of_a_role_is_urgent_once_for_pods_wait_for_it_to_start() -> None:
    seen = Tallied()
    begun = {"phase": "Pending", "podIP": "10.0.0.1"}
    seen.see(make_pod(0, PENDING))
    seen.see(make_pod(1, PENDING))
    assert not seen.see(make_pod(0, begun))
    assert seen.see(make_pod(1, begun))
    assert not seen.see(make_pod(1, begun | {"message": "pulling"}))


def test_a_pod_that_runs_no_more_is_urgent_when_all_ran() -> None:
    seen = Tallied()
    unready = running_status("10.0.0.1")
    unready["containerStatuses"][0]["ready"] = False
    for index in range(2):
        seen.see(make_pod(index, RUNNING))
    assert seen.see(make_pod(0, unready))
    assert not seen.see(make_pod(1, unready)), "the job's phase has changed already"
    assert not seen.see(make_pod(1, RUNNING))
    assert seen.see(make_pod(0, RUNNING))
    assert seen.see(make_pod(0, RUNNING, deletionTimestamp="2026-01-01T00:00:00Z"))


def test_the_last_pod_to_go_is_urgent_for_others_may_take_the_places_now() -> None:
    seen = Tallied()
    seen.see(make_pod(0, PENDING))
    seen.see(make_pod(1, RUNNING))
    assert not seen.see(make_pod(0, PENDING), "DELETED")
    assert seen.see(make_pod(1, RUNNING), "DELETED")


async def test_counts_are_looked_at_soon_and_then_less_and_less_often_until_they_rest() -> None:
    clock = ManualClock()
    pace, looks = Pace(clock), []
    for _ in range(1000):
        looks.append(round(clock.monotonic() + pace.delay("job"), 6))
        await clock.advance(0.1)
    first = looks[0]
    assert first == pytest.approx(POD_CHANGE_BATCH_INTERVAL_SECONDS)
    assert sorted({look - first for look in looks}) == pytest.approx([0, 1, 3, 7, 15, 31, 61, 91, 121])
    await clock.advance(2 * LONGEST_COUNTS_INTERVAL_SECONDS + COUNTS_INTERVAL_SECONDS)
    assert pace.delay("job") == pytest.approx(POD_CHANGE_BATCH_INTERVAL_SECONDS)
    assert pace.delay("another") == pytest.approx(POD_CHANGE_BATCH_INTERVAL_SECONDS)


def test_nothing_is_remembered_of_pods_that_are_gone() -> None:
    seen = Tallied()
    for type_ in ("MODIFIED", "DELETED", "DELETED"):
        seen.see(make_pod(0, RUNNING), type_)
    assert len(seen.tally) == 0


async def test_after_many_counts_the_first_pod_of_a_restart_is_looked_at_soon() -> None:
    clock, waits = ManualClock(), list[float]()
    watch = make_watch(MemoryCluster(), "", clock, AUTO)
    wakes = Wakes(watch, lambda _, seconds: waits.append(seconds), clock)
    job = make_paddle_job("j")
    watch.of(names.JOB).apply(Change("ADDED", {**job, "metadata": {**job["metadata"], "uid": "j"}}))

    def see(index: int, status: Object, type_: Literal["ADDED", "MODIFIED", "DELETED"] = "MODIFIED") -> float:
        wakes.changed(names.POD, Change(type_, make_pod(index, status)))
        return waits[-1]

    see(0, PENDING, "ADDED")
    see(1, PENDING, "ADDED")
    while see(0, PENDING) <= COUNTS_INTERVAL_SECONDS:
        await clock.advance(COUNTS_INTERVAL_SECONDS)
    for index in range(2):
        see(index, PENDING, "DELETED")
    assert see(0, PENDING, "ADDED") == pytest.approx(POD_CHANGE_BATCH_INTERVAL_SECONDS)
