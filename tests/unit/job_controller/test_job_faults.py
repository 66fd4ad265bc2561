"""Failures at one child, at the data set or in the code itself: shown as a condition, tried again later."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.job_controller.conftest import JobHarness

from job_controller import reconciler
from paddlewheel.contracts.conditions import RECONCILE_FAILED
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Conflict, Permanent, Retry
from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import CONFIG_MAPS, PODS, SAMPLE_SETS, SERVICES, Object, Resource
from paddlewheel.testkit.kubernetes import set_pod_status
from paddlewheel.testkit.memory_cluster import Verb
from paddlewheel.testkit.paddlejobs import (
    make_paddle_job,
    make_role,
    make_sample_set,
    set_sample_set_phase,
)

SET = Key("default", "digits")
ERRORS = [
    pytest.param(Retry("ServerError", "HTTP 500"), "ServerError: HTTP 500", id="5xx"),
    pytest.param(Retry("InternalError", "webhook"), "InternalError: webhook", id="webhook"),
    pytest.param(Permanent("Forbidden", "no"), "Forbidden: no", id="refused"),
    pytest.param(Conflict("modified"), "Conflict: modified", id="conflict"),
]


async def blocked_by(harness: JobHarness, key: Key) -> tuple[str, str]:
    condition = await harness.condition(key, "Blocked")
    return condition["status"], condition["reason"]


@pytest.mark.parametrize(("error", "said"), ERRORS)
async def test_one_pod_that_cannot_be_created_hides_no_other(
    harness: JobHarness, error: Exception, said: str
) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(5)))
    with harness.failing(error, "create", PODS, name="demo-worker-2"):
        await harness.drain_queue()
        await harness.advance(0.2)
        assert len(await harness.pod_names()) == 4
        assert (await harness.status(key))["worker"]["pending"] == 4
        assert await blocked_by(harness, key) == ("True", "FailedCreate")
        message = (await harness.condition(key, "Blocked"))["message"]
        assert message == f"Pod default/demo-worker-2: {said}"
        # The status follows the present pods: the trouble does not keep the counts from being written.
        await harness.run_pods()
        await harness.advance(0.2)
        assert (await harness.status(key))["worker"]["running"] == 4
    await harness.advance(60)
    assert len(await harness.pod_names()) == 5
    assert await blocked_by(harness, key) == ("False", "Recovered")
    warnings = [e for e in await harness.kubernetes_events() if e.type == "Warning"]
    assert [(e.reason, e.message) for e in warnings] == [("FailedCreate", message)]


@pytest.mark.parametrize(("error", "said"), ERRORS)
async def test_one_pod_that_cannot_be_deleted_hides_no_other(
    harness: JobHarness, error: Exception, said: str
) -> None:
    key = await harness.to_running(make_paddle_job(intranet="Service", worker=make_role(4)))
    with harness.failing(error, "delete", PODS, name="demo-worker-2"):
        await harness.patch(key, {"spec": {"worker": {"replicas": 1}}})
        await harness.drain_queue()
        assert await harness.pod_names() == ["demo-worker-2"]
        assert await harness.service_names() == ["demo-worker-0"]
        assert (await harness.status(key))["observedGeneration"] == 2
        assert await blocked_by(harness, key) == ("True", "FailedDelete")
        message = (await harness.condition(key, "Blocked"))["message"]
        assert message == f"Pod default/demo-worker-2: {said}"
        assert ("Warning", "FailedDelete", message) in await harness.kubernetes_events()
    await harness.advance(1)
    await harness.advance(0.2)
    assert await harness.pod_names() == ["demo-worker-0"]
    assert await blocked_by(harness, key) == ("False", "Recovered")


async def test_a_clean_up_that_fails_is_shown_on_the_job_and_tried_again(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(3)))
    with harness.failing(Retry("ServerError"), "delete", PODS, name="demo-worker-1"):
        await harness.end_pods()
        await harness.drain_queue()
        assert await harness.pod_names() == ["demo-worker-1"]
        assert await blocked_by(harness, key) == ("True", "FailedDelete")
        assert harness.facts()[-1] == "JobSucceeded"
    await harness.advance(1)
    assert await harness.pod_names() == []
    assert await blocked_by(harness, key) == ("False", "Recovered")


@pytest.mark.parametrize("resource", [SERVICES, CONFIG_MAPS])
async def test_no_pod_is_created_before_what_it_needs(harness: JobHarness, resource: Resource) -> None:
    key = await harness.create(make_paddle_job(intranet="Service", worker=make_role(2)))
    with harness.failing(Retry("ServerError"), "create", resource, times=1):
        await harness.drain_queue()
        assert await harness.pod_names() == []
        assert await blocked_by(harness, key) == ("True", "FailedCreate")
    await harness.advance(1)
    assert len(await harness.pod_names()) == 2


async def test_a_quota_that_refuses_all_pods_is_asked_once_per_backoff(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(100), ps=make_role(10)))
    posts = Counter[str]()

    def refuse(verb: Verb, resource: Resource, child: Key) -> None:
        if (verb, resource) == ("create", PODS) and "-worker-" in child.name:
            posts[child.name] += 1
            raise Permanent("Forbidden", "exceeded quota: pods")

    with harness.intercepted(refuse):
        await harness.drain_queue()
        for index in range(10):
            await set_pod_status(
                harness.cluster, Key("default", f"demo-ps-{index}"), "Running", ip="10.0.0.1"
            )
            await harness.advance(0.1)
        assert harness.replica.passes[key] >= 3
        # Beyond the batches in which all failed nothing was tried.
        assert len(posts) < 50
        assert max(posts.values()) <= 2
        assert await blocked_by(harness, key) == ("True", "FailedCreate")
        assert (await harness.status(key))["ps"]["running"] == 10
        # 1, 2, 4, 8, 16, 32, 60 seconds apart.
        await harness.advance(1)
        before = harness.replica.passes[key]
        for _ in range(120):
            await harness.advance(1)
        assert max(posts.values()) <= 8
        assert harness.replica.passes[key] - before <= 10, "children that failed together are due together"
    await harness.advance(60)
    assert len(await harness.pod_names()) == 110


async def test_a_condition_says_the_same_for_as_long_as_the_trouble_lasts(harness: JobHarness) -> None:
    await harness.create(make_paddle_job(worker=make_role(20)))
    with harness.failing(Permanent("Forbidden", "exceeded quota"), "create", PODS):
        await harness.drain_queue()
        with harness.counted_writes() as writes:
            for _ in range(40):
                await harness.advance(1)
        assert not writes
    warnings = [e for e in await harness.kubernetes_events() if e.type == "Warning"]
    assert len(warnings) == 1


@pytest.mark.parametrize(("error", "said"), ERRORS[:3])
async def test_a_data_set_that_cannot_be_read_gates_the_job(
    harness: JobHarness, error: Exception, said: str
) -> None:
    await make_sample_set(harness.cluster, SET, partitions=2)
    await set_sample_set_phase(harness.cluster, SET, "Ready")
    ref = {"name": "digits", "mountPath": "/data"}
    with harness.failing(error, "get", SAMPLE_SETS) as failed:
        key = await harness.create(make_paddle_job(sampleSetRef=ref, worker=make_role(2)))
        await harness.drain_queue()
        condition = await harness.condition(key, "Admitted")
        assert (condition["status"], condition["reason"]) == ("False", "SampleSetUnreadable")
        assert "default/digits" in condition["message"]
        assert said.partition(": ")[2] in condition["message"]
        assert harness.facts() == ["JobAccepted", "JobGated"]
        # 1, 2, 4, 8 ... seconds apart, not at every pass of a minute.
        for _ in range(30):
            await harness.advance(1)
        assert 4 <= len(failed) <= 7
    await harness.advance(30)
    assert len(await harness.pod_names()) == 2
    assert (await harness.condition(key, "Admitted"))["status"] == "True"


async def test_a_lost_pod_waits_until_its_data_set_can_be_read(harness: JobHarness) -> None:
    await make_sample_set(harness.cluster, SET, partitions=2)
    await set_sample_set_phase(harness.cluster, SET, "Ready")
    ref = {"name": "digits", "mountPath": "/data"}
    key = await harness.to_running(make_paddle_job(sampleSetRef=ref, worker=make_role(2)))
    with harness.failing(Retry("ServerError"), "get", SAMPLE_SETS):
        await harness.delete(Key("default", "demo-worker-1"), PODS)
        await harness.advance(0.2)
        assert await blocked_by(harness, key) == ("True", "FailedGet")
        assert (await harness.condition(key, "Admitted"))["status"] == "True"
        assert await harness.pod_names() == []
    await harness.advance(1)
    assert len(await harness.pod_names()) == 2
    pod = await harness.get(Key("default", "demo-worker-1"), PODS)
    assert "nodeAffinity" in pod["spec"]["affinity"]
    assert await blocked_by(harness, key) == ("False", "Recovered")


async def test_a_bug_becomes_a_condition_until_a_pass_succeeds(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(2)))
    with monkeypatch.context() as patched:
        patched.setattr(reconciler, "plan", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await harness.reconcile(key)
    condition = await harness.condition(key, RECONCILE_FAILED)
    assert (condition["status"], condition["reason"]) == ("True", "InternalError")
    assert "ZeroDivisionError" in condition["message"]
    assert (await harness.status(key))["phase"] == "Running"
    await harness.settle(key)
    assert (await harness.condition(key, RECONCILE_FAILED))["status"] == "False"


async def test_jobs_that_are_gone_leave_nothing_behind(harness: JobHarness) -> None:
    with harness.failing(Retry("ServerError"), "create", PODS, name="demo-worker-0"):
        key = await harness.create(make_paddle_job(worker=make_role(2)))
        await harness.drain_queue()
        uid = uid_of(await harness.get(key))
        await harness.delete(key)
        await harness.drain_queue()
    assert not await harness.exists(key)
    await harness.drain_queue()
    assert harness.delays == {} or max(harness.delays.values()) <= 1
    await harness.advance(60)
    assert harness.delays == {}
    assert uid not in [uid_of(p) for p in await harness.objects(PODS)]


async def test_a_deleted_job_that_cannot_be_parsed_goes(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(1)))
    await harness.patch(key, {"spec": {"worker": {"replicas": "many"}}})
    with pytest.raises(Permanent):
        await harness.reconcile(key)
    harness.forget_woken()
    await harness.delete(key)
    await harness.drain_queue()
    assert not await harness.exists(key)
    assert ("Warning", "ReleasedUnread") in [event[:2] for event in await harness.kubernetes_events()]


CUT = [
    pytest.param({"phase": "Failed", "reason": "Evicted"}, False, {"Evicted": 1}, id="failed"),
    pytest.param({}, True, {"PodDeleted": 1}, id="deleted"),
    # The output of the pod after the cut is not known, since it is gone.
    pytest.param({"phase": "Failed", "reason": "Evicted"}, True, {"PodDeleted": 1}, id="failed and deleted"),
]


@pytest.mark.parametrize(("status", "is_deleted", "restarts"), CUT)
async def test_what_happened_while_the_watch_was_cut_is_noticed_once_when_it_lists_again(
    harness: JobHarness, status: Object, is_deleted: bool, restarts: dict[str, int]
) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(2)))
    lost = Key("default", "demo-worker-1")
    harness.cluster.cut_watches()
    await harness.set_status(lost, status, PODS)
    if is_deleted:
        await harness.delete(lost, PODS)
    await harness.settle(key)
    assert await harness.restarts(key) == (0, {}), "nothing was heard"
    for _ in range(2):
        harness.cluster.relist_watches()
        await harness.settle(key)
        await harness.run_pods()
        await harness.settle(key)
    assert await harness.restarts(key) == (1, restarts)
    assert (await harness.status(key))["phase"] == "Running"
    assert harness.facts().count("JobRestarted") == 1


async def test_a_job_deleted_and_made_anew_while_the_watch_was_cut_is_another_one(
    harness: JobHarness,
) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(1), backoffLimit=1))
    harness.cluster.cut_watches()
    await harness.patch(key, {"metadata": {"finalizers": None}})
    await harness.delete(key)
    await harness.create(make_paddle_job(worker=make_role(2)))
    harness.cluster.relist_watches()
    await harness.settle(key)
    await harness.advance(1)
    await harness.run_pods()
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], status["ready"], await harness.restarts(key)) == ("Running", "2/2", (0, {}))
