"""The cause of a lost pod, its own end or its deletion; which of two decides; how long restarts wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness, OpenHarness

from job_controller.core.model import AUTO, Observed, with_pods
from job_controller.core.parse import parse_job
from job_controller.core.parse_pod import parse_pod
from job_controller.core.pods import PodState
from job_controller.core.verdict import End, Restart, decide_verdict
from job_controller.last_seen import Departures
from job_controller.watch import BY_UID, JOB, make_watch
from paddlewheel.contracts.generated.jobs_v1 import JobRestarted
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.stamps import parse_stamp, seconds_stamp
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.ports import PODS, Change, Object, Resource
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_cluster import MemoryCluster, Verb
from paddlewheel.testkit.paddlejobs import ended_status, make_paddle_job, make_role

FIRST, SECOND = Key("default", "demo-worker-0"), Key("default", "demo-worker-1")
WORKERS = [FIRST.name, SECOND.name]
FAIL_3 = {"rules": [{"action": "Fail", "exitCodes": [3]}]}


def collective(**spec: Any) -> Object:
    given: dict[str, Any] = {"worker": make_role(2), "backoffLimit": 5}
    return make_paddle_job(**given | spec)


async def end(harness: JobHarness, pod: Key, exit_code: int = 0, **status: Any) -> None:
    """There is no pass yet."""
    await harness.set_status(pod, ended_status(exit_code=exit_code, **status), PODS)


async def end_unseen(harness: JobHarness, pod: Key, exit_code: int = 0, **status: Any) -> None:
    """The pod ends and is deleted before the controller looks at either."""
    await end(harness, pod, exit_code, **status)
    await harness.delete(pod, PODS)


async def run(harness: JobHarness, key: Key) -> None:
    await harness.run_pods()
    await harness.settle(key)


# Ended, then deleted


async def test_a_pod_that_failed_before_its_deletion_counts_by_its_own_end(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await end_unseen(harness, SECOND, 3, message="loss is NaN")
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"PodFailed": 1})
    last = (await harness.status(key))["lastRestart"]
    assert last["message"] == "pod demo-worker-1 failed (Error, exit code 3): loss is NaN"


async def test_rules_judge_the_end_of_a_pod_that_is_gone(harness: JobHarness) -> None:
    key = await harness.to_running(collective(failurePolicy=FAIL_3))
    await end_unseen(harness, SECOND, 3)
    await harness.settle(key)
    assert (await harness.condition(key, "Failed"))["reason"] == "FailureRule"


async def test_a_pod_that_succeeded_before_its_deletion_is_not_run_again(harness: JobHarness) -> None:
    key = await harness.to_running(collective(cleanPodPolicy="Never"))
    await end_unseen(harness, FIRST, message='{"accuracy": 0.5}')
    await harness.settle(key)
    assert await harness.pod_names() == [SECOND.name]
    await end(harness, SECOND)
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], status["results"]) == ("Completed", {"accuracy": 0.5})
    assert await harness.restarts(key) == (0, {})


async def test_a_pod_that_was_evicted_and_is_gone_was_evicted(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    await harness.set_status(SECOND, {"conditions": [evicted]}, PODS)
    await harness.delete(SECOND, PODS)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"Evicted": 1})


async def test_with_restart_scope_pod_a_failed_pod_that_is_gone_is_counted_once(harness: JobHarness) -> None:
    key = await harness.to_running(collective(failurePolicy={"restartScope": "Pod"}))
    await end_unseen(harness, SECOND, 1)
    for _ in range(2):
        await harness.settle(key)
        await harness.advance(300)
        await run(harness, key)
    assert await harness.restarts(key) == (0, {"PodFailed": 1})
    assert await harness.pod_names() == WORKERS
    assert "replacing" not in await harness.status(key)


async def test_a_pod_is_forgotten_once_its_end_is_recorded(harness: JobHarness) -> None:
    """Its place has a new pod, which is lost without an end of its own."""
    key = await harness.to_running(collective())
    await end_unseen(harness, SECOND, 1)
    await harness.settle(key)
    await run(harness, key)
    await harness.delete(SECOND, PODS)
    await harness.settle(key)
    assert await harness.restarts(key) == (2, {"PodFailed": 1, "PodDeleted": 1})


OWNER = {"kind": "PaddleJob", "name": "demo", "uid": "j", "controller": True}


def deleted(status: Object, asked: str, grace: int = 0) -> Object:
    """A pod whose deletion was asked for on the first of January at this time, less the grace period."""
    metadata = {
        "name": "demo-worker-0",
        "namespace": "default",
        "uid": "u",
        "labels": {"paddle-res-type": "worker"},
        "ownerReferences": [OWNER],
        "deletionTimestamp": f"2026-01-01T{asked}Z",
        "deletionGracePeriodSeconds": grace,
    }
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, "status": status}


@pytest.mark.parametrize(
    ("status", "asked", "grace", "expected"),
    [
        pytest.param(ended_status(exit_code=1), "00:10:31", 0, PodState.FAILED, id="failed before"),
        pytest.param(ended_status(), "00:10:31", 0, PodState.SUCCEEDED, id="succeeded before"),
        pytest.param(ended_status(exit_code=143), "00:10:31", 0, PodState.FAILED, id="SIGTERM long before"),
        *(
            pytest.param(
                ended_status(exit_code=code), "00:10:01", 0, PodState.PENDING, id=f"{code}, clocks differ"
            )
            for code in (0, 1, 15, 137, 143)
        ),
        *(
            pytest.param(
                ended_status(exit_code=code), "00:10:31", 30, PodState.PENDING, id=f"{code}, in grace"
            )
            for code in (0, 1, 15, 137, 143)
        ),
        pytest.param(
            ended_status(exit_code=1), "00:11:31", 30, PodState.PENDING, id="a slow clock, in grace"
        ),
        pytest.param(
            ended_status(exit_code=137, reason="OOMKilled"),
            "00:10:01",
            0,
            PodState.FAILED,
            id="out of memory",
        ),
        pytest.param({"phase": "Failed", "reason": "Evicted"}, "00:10:01", 0, PodState.PENDING, id="no time"),
        pytest.param({"phase": "Running"}, "00:10:01", 0, PodState.PENDING, id="runs"),
    ],
)
def test_a_deleted_pod_ended_by_itself_only_before_its_deletion_was_asked_for(
    status: Object, asked: str, grace: int, expected: PodState
) -> None:
    pod = parse_pod(deleted(status, asked, grace))
    assert pod is not None
    assert pod.terminating
    assert (pod.state, pod.failure is not None) == (expected, expected is PodState.FAILED)


@pytest.mark.parametrize(("reason", "line"), [("OOMKilled", ""), ("Error", "KeyError: 'img'")])
def test_the_log_tells_nothing_about_a_pod_that_the_kernel_killed_for_its_memory(
    reason: str, line: str
) -> None:
    message = "Traceback (most recent call last):\nKeyError: 'img'\nretrying\n"
    pod = parse_pod(deleted(ended_status(exit_code=137, reason=reason, message=message), "00:11:31", 0))
    assert pod is not None
    assert pod.failure is not None
    assert pod.failure.last_line == line


async def test_a_failed_pod_that_something_holds_while_it_is_deleted_has_failed(harness: JobHarness) -> None:
    worker = make_role(2)
    worker["template"]["metadata"] = {"finalizers": ["example.com/held"]}
    key = await harness.to_running(collective(worker=worker))
    await end(harness, SECOND, 3)
    await harness.clock.advance(631)
    await harness.delete(SECOND, PODS)
    await harness.reconcile(key)
    assert await harness.restarts(key) == (1, {"PodFailed": 1})


async def test_a_pod_that_is_going_before_the_status_has_listed_it_is_lost_at_once(
    harness: JobHarness,
) -> None:
    """Nothing would wake the job for it later."""
    worker = make_role(2)
    worker["template"]["metadata"] = {"finalizers": ["example.com/held"]}
    key = await harness.create(collective(worker=worker))
    await harness.reconcile(key)
    assert await harness.status(key) == {}
    await harness.run_pods(FIRST.name)
    await harness.delete(SECOND, PODS)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"PodDeleted": 1})
    assert (harness.facts()[0], harness.facts()[-1]) == ("JobAccepted", "JobRestarted")


def test_of_jobs_that_have_ended_or_are_gone_no_pod_is_remembered() -> None:
    watch = make_watch(MemoryCluster(), "", ManualClock(), AUTO)
    jobs, departures = watch.of(JOB), Departures(watch.of(JOB))
    job = make_paddle_job()
    job["metadata"] |= {"uid": "j", "resourceVersion": "1"}
    pod = deleted(ended_status(exit_code=1), "00:10:01")

    departures.heard("Pod", Change("DELETED", pod))
    assert len(departures) == 0, "the job is not known"
    jobs.apply(Change("ADDED", job))
    departures.heard("Pod", Change("DELETED", pod))
    departures.heard("Pod", Change("DELETED", pod))
    assert [known.name for known in departures.of("j")] == ["demo-worker-0"]
    departures.heard(JOB, Change("DELETED", job))
    assert len(departures) == 0
    ended = {**job, "metadata": job["metadata"] | {"resourceVersion": "2"}, "status": {"phase": "Failed"}}
    jobs.apply(Change("MODIFIED", ended))
    assert jobs.by_index(BY_UID, "j") == [ended]
    departures.heard("Pod", Change("DELETED", pod))
    assert len(departures) == 0


def listing(version: int, *uids: str, epoch: int = 0) -> Object:
    """The job, whose status lists pods with these uids."""
    job = make_paddle_job()
    job["metadata"] |= {"uid": "j", "resourceVersion": f"{version}"}
    refs = [{"name": "demo-worker-0", "uid": uid} for uid in uids]
    return {**job, "status": {"phase": "Running", "epoch": epoch, "worker": {"refs": refs}}}


def departed_of(job: Object) -> tuple[Informer, Departures]:
    """Watched jobs, and what is remembered when a pod of this job is gone."""
    jobs = make_watch(MemoryCluster(), "", ManualClock(), AUTO).of(JOB)
    departures = Departures(jobs)
    jobs.apply(Change("ADDED", job))
    departures.heard("Pod", Change("DELETED", deleted(ended_status(exit_code=1), "00:10:31")))
    assert len(departures) == 1
    return jobs, departures


def hear(jobs: Informer, departures: Departures, job: Object) -> None:
    """The job is modified."""
    jobs.apply(Change("MODIFIED", job))
    departures.heard(JOB, Change("MODIFIED", job))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(["u"], listing(2, "u"), 1, id="its end is not recorded"),
        pytest.param(["u"], listing(2), 0, id="its end is recorded"),
        pytest.param(["u"], listing(2, "other"), 0, id="its place has another pod"),
        pytest.param([], listing(2), 1, id="a pass that is late may list it"),
        pytest.param([], listing(2, epoch=1), 0, id="a new epoch"),
    ],
)
def test_a_pod_is_remembered_until_the_status_lists_it_no_longer(
    before: list[str], after: Object, expected: int
) -> None:
    jobs, departures = departed_of(listing(1, *before))
    hear(jobs, departures, after)
    assert len(departures) == expected == len(departures.of("j"))


def test_a_pod_that_a_late_pass_has_listed_is_forgotten_too() -> None:
    jobs, departures = departed_of(listing(1))
    hear(jobs, departures, listing(2, "u"))
    assert len(departures) == 1
    hear(jobs, departures, listing(3))
    assert len(departures) == 0


def test_a_notification_that_is_late_makes_no_pod_forgotten() -> None:
    _, departures = departed_of(listing(2, "u"))
    departures.heard(JOB, Change("MODIFIED", listing(1)))
    assert len(departures) == 1


# Two in the same second


IGNORE_1 = {"rules": [{"action": "Ignore", "exitCodes": [1]}]}
EVICTED = {"reason": "Evicted"}


@pytest.mark.parametrize("pods", [(FIRST, SECOND), (SECOND, FIRST)], ids=["in order", "reversed"])
@pytest.mark.parametrize(
    ("policy", "worse", "expected"),
    [
        pytest.param(FAIL_3, {"exit_code": 3}, ("Failed", {}), id="Fail before Restart"),
        pytest.param(IGNORE_1, {"exit_code": 3}, ("Pending", {"PodFailed": 1}), id="Restart before Ignore"),
        pytest.param(
            {"rules": [*IGNORE_1["rules"], *FAIL_3["rules"]]},
            {"exit_code": 3},
            ("Failed", {}),
            id="Fail before Ignore",
        ),
        pytest.param(
            {"rules": [{"action": "Restart", "exitCodes": [3], "limit": 0}]},
            {"exit_code": 3},
            ("Failed", {}),
            id="a limit that is reached",
        ),
        pytest.param({}, {"exit_code": 137, **EVICTED}, ("Pending", {"Evicted": 1}), id="a disruption"),
    ],
)
async def test_of_failures_in_the_same_second_the_most_severe_rule_decides(
    harness: JobHarness,
    pods: tuple[Key, Key],
    policy: Object,
    worse: Object,
    expected: tuple[str, dict[str, int]],
) -> None:
    key = await harness.to_running(collective(failurePolicy=policy))
    one, other = pods
    await end(harness, one, 1)
    worse = dict(worse)
    reason = worse.pop("reason", None)
    await harness.set_status(other, ended_status(**worse) | ({"reason": reason} if reason else {}), PODS)
    await harness.settle(key)
    assert ((await harness.status(key))["phase"], (await harness.restarts(key))[1]) == expected


# A disruption, and the peers that it makes fail


def disrupt(pod: Object, asked: str) -> Object:
    """Evicted, and still in its grace period of 30 s; `asked` is the time of the day."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    ends = parse_stamp(f"2026-01-01T{asked}Z")
    assert ends is not None
    going = {
        "deletionTimestamp": seconds_stamp(ends + timedelta(seconds=30)),
        "deletionGracePeriodSeconds": 30,
    }
    return {
        **pod,
        "metadata": pod["metadata"] | going,
        "status": {**pod["status"], "conditions": [target]},
    }


async def observed(harness: JobHarness, key: Key, pods: list[Object]) -> Observed:
    """The job with these pods, raw."""
    job = parse_job(await harness.get(key))
    parsed = [pod for raw in pods if (pod := parse_pod(raw))]
    assert len(parsed) == len(pods)
    return with_pods(Observed(job), parsed)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param("00:09:58", "Evicted", id="before the failure"),
        pytest.param("00:10:29", "Evicted", id="clocks may differ"),
        pytest.param("00:10:31", "PodFailed", id="long after the program failed"),
    ],
)
@pytest.mark.parametrize("scope", ["Gang", "Pod"])
async def test_a_pod_that_is_being_evicted_is_the_cause_of_failures_from_then_on(
    harness: JobHarness, asked: str, expected: str, scope: str
) -> None:
    policy = {"restartScope": scope}
    key = await harness.to_running(collective(worker=make_role(3), backoffLimit=0, failurePolicy=policy))
    evicted, failed, other = [await harness.get(Key("default", n), PODS) for n in await harness.pod_names()]
    failed = {**failed, "status": ended_status(exit_code=1)}
    seen = await observed(harness, key, [disrupt(evicted, asked), failed, other])
    verdict = decide_verdict(seen, harness.clock.now())
    if scope == "Gang" and expected == "Evicted":
        assert isinstance(verdict, Restart)
        assert (verdict.cause, verdict.budget) == ("Evicted", "disruptions")
    else:
        assert isinstance(verdict, End), "with restartScope Pod each stands for itself"
        assert verdict.reason == "PodFailed"


async def test_an_evicted_pod_that_is_gone_is_the_cause_of_the_failures_that_follow(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(collective(backoffLimit=0))
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    await harness.set_status(SECOND, {"conditions": [evicted]}, PODS)
    await harness.delete(SECOND, PODS)
    await end(harness, FIRST, 1)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"Evicted": 1})


async def test_a_pod_that_was_deleted_without_a_word_of_why_excuses_no_failure(harness: JobHarness) -> None:
    key = await harness.to_running(collective(backoffLimit=0))
    await harness.delete(SECOND, PODS)
    await end(harness, FIRST, 1)
    await harness.settle(key)
    assert (await harness.condition(key, "Failed"))["reason"] == "PodFailed"


@pytest.mark.parametrize("pods", [(FIRST, SECOND), (SECOND, FIRST)], ids=["in order", "reversed"])
async def test_an_eviction_without_a_time_is_the_cause_of_the_failures_beside_it(
    harness: JobHarness, pods: tuple[Key, Key]
) -> None:
    key = await harness.to_running(collective(backoffLimit=0))
    evicted, failed = pods
    refused = {"phase": "Failed", "reason": "Evicted", "message": "low on memory", "containerStatuses": []}
    await harness.set_status(evicted, refused, PODS)
    await end(harness, failed, 1)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"Evicted": 1})


async def test_an_eviction_long_after_a_failure_is_not_its_cause_though_the_service_was_away(
    open_harness: OpenHarness,
) -> None:
    async with open_harness() as before:
        key = await before.to_running(collective(worker=make_role(3), backoffLimit=0))
    at = seconds_stamp(before.clock.now())
    await before.set_status(FIRST, ended_status(exit_code=1, finished_at=at), PODS)
    await before.clock.advance(300)
    await before.patch(SECOND, {"metadata": {"finalizers": ["example.com/hold"]}}, PODS)
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    await before.set_status(SECOND, {"conditions": [evicted]}, PODS)
    await before.delete(SECOND, PODS)
    await before.clock.advance(10)
    async with open_harness() as after:
        await after.settle(key)
        assert (await after.condition(key, "Failed"))["reason"] == "PodFailed"


# A spec that has become wrong

WRONG = {"spec": {"sampleSetRef": {"name": "set", "namespace": "other", "mountPath": "/d"}}}
RIGHT = {"spec": {"sampleSetRef": None}}


async def test_the_deadline_of_a_job_whose_spec_has_become_wrong_holds(harness: JobHarness) -> None:
    key = await harness.to_running(collective(activeDeadlineSeconds=60))
    await harness.patch(key, WRONG)
    await harness.settle(key)
    await harness.advance(59)
    assert (await harness.status(key))["phase"] == "Running"
    await harness.advance(1)
    assert (await harness.condition(key, "Failed"))["reason"] == "DeadlineExceeded"
    assert await harness.pod_names() == []


@pytest.mark.parametrize("edit", [{"activeDeadlineSeconds": -1}, {"activeDeadlineSeconds": 0}])
async def test_a_deadline_that_is_itself_wrong_ends_nothing(harness: JobHarness, edit: Object) -> None:
    key = await harness.to_running(collective(activeDeadlineSeconds=60))
    await harness.patch(key, {"spec": edit})
    await harness.settle(key)
    await harness.advance(600)
    status = await harness.status(key)
    assert (status["phase"], status["reason"]) == ("Running", "InvalidSpec")


async def test_a_rule_of_a_job_whose_spec_has_become_wrong_ends_it(harness: JobHarness) -> None:
    key = await harness.to_running(collective(failurePolicy=FAIL_3))
    await harness.patch(key, WRONG)
    await end(harness, SECOND, 3)
    await harness.settle(key)
    assert (await harness.condition(key, "Failed"))["reason"] == "FailureRule"
    assert {"InvalidSpec", "FailureRule"} <= {event.reason for event in await harness.kubernetes_events()}


async def test_a_restart_waits_until_the_spec_is_right_again(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await harness.patch(key, WRONG)
    await end(harness, SECOND, 1)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"PodFailed": 1})
    assert await harness.pod_names() == [], "nothing is made of a wrong spec"
    status = await harness.status(key)
    assert (status["phase"], status["reason"], status["ready"]) == ("Pending", "InvalidSpec", "0/2")
    warnings = {event.reason for event in await harness.kubernetes_events() if event.type == "Warning"}
    assert warnings == {"InvalidSpec", "Restarted"}
    await harness.patch(key, RIGHT)
    await harness.settle(key)
    await run(harness, key)
    assert (await harness.status(key))["phase"] == "Running"
    assert harness.facts()[-3:] == ["JobRestarted", "JobStarting", "JobRunning"]


async def test_of_a_wrong_spec_no_time_is_told_at_which_pods_will_be_made(harness: JobHarness) -> None:
    key = await harness.to_running(collective(failurePolicy={"restartScope": "Pod"}))
    await harness.patch(key, WRONG)
    for pod in (FIRST, SECOND):
        await end(harness, pod, 1)
        await harness.settle(key)
    assert (await harness.condition(key, "Running"))["message"] == "0 of 2 pods are running and ready"
    await harness.advance(5)
    with harness.counted_writes() as writes:
        await harness.advance(300)
        await harness.reconcile(key)
    assert not writes


async def test_every_restart_is_told_though_the_spec_was_wrong_at_the_first(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await harness.patch(key, WRONG)
    await harness.settle(key)
    await end(harness, SECOND, 1)
    await harness.settle(key)
    assert harness.facts()[-1] == "JobRestarted"
    await harness.patch(key, RIGHT)
    await harness.settle(key)
    await run(harness, key)
    await end(harness, SECOND, 1)
    await harness.settle(key)
    told = [event.data for event in harness.published if isinstance(event.data, JobRestarted)]
    assert [fact.epoch for fact in told] == [1, 2]


@pytest.mark.parametrize("wrong", [{"worker": {"replicas": -1}}, {"worker": None}], ids=["replicas", "role"])
async def test_a_pod_of_a_role_that_the_wrong_spec_does_not_have_is_missed_too(
    harness: JobHarness, wrong: Object
) -> None:
    key = await harness.to_running(collective(failurePolicy={"rules": [{"action": "Fail"}]}))
    await harness.patch(key, {"spec": wrong})
    await harness.delete(SECOND, PODS)
    await harness.settle(key)
    assert (await harness.condition(key, "Failed"))["reason"] == "FailureRule"
    assert "demo-worker-1 was deleted" in (await harness.condition(key, "Failed"))["message"]


@pytest.mark.parametrize(
    "wrong", [WRONG, {"spec": {"worker": {"replicas": -1}}}], ids=["data set", "replicas"]
)
async def test_of_a_wrong_spec_a_job_has_not_succeeded_with_ranks_that_were_never_made(
    harness: JobHarness, wrong: Object
) -> None:
    def refuse(verb: Verb, resource: Resource, child: Key) -> None:
        if (verb, resource) == ("create", PODS) and child != FIRST:
            raise Permanent("Forbidden", "exceeded quota: pods")

    with harness.intercepted(refuse):
        key = await harness.create(collective(worker=make_role(4)))
        await harness.settle(key)
        await run(harness, key)
    assert await harness.pod_names() == [FIRST.name]
    await harness.patch(key, wrong)
    await end(harness, FIRST)
    await harness.settle(key)
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], status["reason"], status["ready"]) == ("Pending", "InvalidSpec", "0/4")


async def test_of_a_wrong_spec_a_job_has_not_succeeded_while_a_rank_waits_to_be_made_again(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(collective(failurePolicy={"restartScope": "Pod"}))
    for _ in range(2):
        await end(harness, SECOND, 1)
        await harness.settle(key)
        if SECOND.name in await harness.pod_names():
            await run(harness, key)
    assert await harness.pod_names() == [FIRST.name], "the second failure in a row waits"
    await harness.patch(key, WRONG)
    await end(harness, FIRST)
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], status["ready"]) == ("Pending", "0/2")
    await harness.patch(key, RIGHT)
    await harness.advance(300)
    await run(harness, key)
    await end(harness, SECOND)
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Completed"


@pytest.mark.parametrize("also", [{}, {"worker": {"replicas": 1}}], ids=["wrong", "wrong and smaller"])
async def test_after_a_restart_of_a_wrong_spec_no_former_number_of_ranks_is_forgotten(
    harness: JobHarness, also: Object
) -> None:
    key = await harness.to_running(collective())
    await harness.patch(key, {"spec": WRONG["spec"] | also})
    await end(harness, SECOND, 1)
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], status["ready"], status["epoch"]) == ("Pending", "0/2", 1)


# Delays


async def fail_again(harness: JobHarness, key: Key) -> bool:
    """Whether the restart waits."""
    await harness.set_status(SECOND, ended_status(exit_code=1), PODS)
    await harness.settle(key)
    return await harness.pod_names() == []


async def test_delays_begin_anew_after_ten_minutes_of_running_and_limits_do_not(harness: JobHarness) -> None:
    key = await harness.to_running(collective(backoffLimit=4))
    for waits in (False, True):
        assert await fail_again(harness, key) is waits
        await harness.advance(300)
        await run(harness, key)
    await harness.advance(599)
    assert await fail_again(harness, key), "ten minutes are not over"
    await harness.advance(300)
    await run(harness, key)
    await harness.advance(600)
    assert not await fail_again(harness, key)
    await run(harness, key)
    assert (await harness.status(key))["lastRestart"]["failures"] == 1
    await end(harness, SECOND, 1)
    await harness.settle(key)
    assert (await harness.condition(key, "Failed"))["reason"] == "BackoffLimitExceeded"


async def test_delays_begin_anew_though_the_job_stopped_to_run_before_it_lost_a_pod(
    harness: JobHarness,
) -> None:
    """A lost node: its pods are not ready at first, and are given up minutes later."""
    key = await harness.to_running(collective())
    for _ in range(2):
        await fail_again(harness, key)
        await harness.advance(300)
        await run(harness, key)
    await harness.advance(600)
    status = (await harness.get(SECOND, PODS))["status"]
    silent = [{**container, "ready": False} for container in status["containerStatuses"]]
    await harness.set_status(SECOND, {"containerStatuses": silent}, PODS)
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Starting"
    await harness.advance(300)
    assert not await fail_again(harness, key)


async def test_a_change_by_the_user_neither_lengthens_nor_resets_the_delay(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    await fail_again(harness, key)
    await run(harness, key)
    await harness.patch(key, {"metadata": {"annotations": {"paddlepaddle.org/restart": "now"}}})
    await harness.settle(key)
    assert await harness.pod_names() == WORKERS
    await run(harness, key)
    assert await fail_again(harness, key)
    assert (await harness.status(key))["lastRestart"]["failures"] == 2


async def test_with_restart_scope_pod_the_delay_begins_anew_too(harness: JobHarness) -> None:
    key = await harness.to_running(collective(failurePolicy={"restartScope": "Pod"}))
    for _ in range(2):
        await end(harness, SECOND, 1)
        await harness.settle(key)
        await harness.advance(300)
        await run(harness, key)
    assert (await harness.status(key))["lastRestart"]["failures"] == 2
    await harness.advance(600)
    await end(harness, SECOND, 1)
    await harness.settle(key)
    assert (await harness.status(key))["lastRestart"]["failures"] == 1
    assert await harness.pod_names() == WORKERS


# Clocks that are set


async def test_a_clock_that_was_set_back_keeps_no_restart_waiting(harness: JobHarness) -> None:
    key = await harness.to_running(collective())
    for _ in range(2):
        await fail_again(harness, key)
        await harness.settle(key)
        if not await harness.pod_names():
            break
        await run(harness, key)
    assert await harness.pod_names() == []
    harness.clock.set_wall(-3600)
    await harness.advance(10)
    assert await harness.pod_names() == WORKERS


async def test_a_clock_that_was_set_forward_ends_a_wait_and_a_deadline(harness: JobHarness) -> None:
    key = await harness.to_running(collective(activeDeadlineSeconds=3600, ttlSecondsAfterFinished=3600))
    harness.clock.set_wall(7200)
    await harness.settle(key)
    assert (await harness.condition(key, "Failed"))["reason"] == "DeadlineExceeded"
    harness.clock.set_wall(7200)
    await harness.settle(key)
    assert not await harness.exists(key)


async def test_a_clock_that_was_set_back_ends_and_deletes_a_job_late_but_not_twice(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(collective(activeDeadlineSeconds=60, ttlSecondsAfterFinished=60))
    harness.clock.set_wall(-3600)
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Running"
    await harness.advance(3660)
    assert (await harness.condition(key, "Failed"))["reason"] == "DeadlineExceeded"
    harness.clock.set_wall(-3600)
    await harness.settle(key)
    assert await harness.exists(key)
    await harness.advance(3660)
    assert not await harness.exists(key)
    assert harness.facts() == ["JobAccepted", "JobStarting", "JobRunning", "JobFailed", "JobDeleted"]
