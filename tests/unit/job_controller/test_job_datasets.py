"""A job with cached data: held until its set is ready, woken by facts, placed beside its partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness, OpenHarness

from job_controller.observe import JobObserver
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import SampleJobStarted, SampleSetDegraded, SampleSetReady
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.stamps import seconds_stamp
from paddlewheel.kube.ports import PODS, SAMPLE_SETS, Object, Resource
from paddlewheel.testkit.harness import Fakes
from paddlewheel.testkit.paddlejobs import (
    ended_status,
    make_paddle_job,
    make_role,
    make_sample_set,
    set_sample_set_phase,
)

SET = Key("default", "digits")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job_with_data(name: str = "demo", replicas: int = 3) -> Object:
    return make_paddle_job(
        name, sampleSetRef={"name": "digits", "mountPath": "/data"}, worker=make_role(replicas)
    )


def ready_fact(name: str = "digits") -> Event:
    ref = ObjectRef(namespace="default", name=name, uid="s-1")
    data = SampleSetReady(sample_set=ref, partitions=2)
    return make_event(data, id=f"s-1/{name}", source="test", namespace="default", uid="s-1", time=NOW)


async def test_a_foreign_config_map_is_looked_for_when_the_set_is_ready(harness: JobHarness) -> None:
    await make_sample_set(harness.cluster, SET, partitions=2)
    await set_sample_set_phase(harness.cluster, SET, "Syncing")
    key = await harness.create(job_with_data())
    with harness.recorded_calls() as calls:
        await harness.settle(key)
    assert ("get", "samplesets", "digits") in calls
    assert ("get", "configmaps", "demo") not in calls

    await set_sample_set_phase(harness.cluster, SET, "Ready")
    with harness.recorded_calls() as calls:
        await harness.settle(key)
    assert ("get", "configmaps", "demo") in calls


async def test_pods_wait_for_the_set_and_then_prefer_their_partitions(harness: JobHarness) -> None:
    key = await harness.create(job_with_data())
    await harness.settle(key)
    assert (await harness.condition(key, "Admitted"))["reason"] == "SampleSetNotFound"
    await harness.clock.advance(3)
    assert (await harness.settle(key)).requeue_after == 30.0

    await make_sample_set(harness.cluster, SET, partitions=2)
    await set_sample_set_phase(harness.cluster, SET, "Syncing")
    await harness.settle(key)
    condition = await harness.condition(key, "Admitted")
    assert (condition["status"], condition["reason"]) == ("False", "SampleSetNotReady")
    assert (await harness.status(key))["phase"] == "Pending"
    assert await harness.pod_names() == []
    assert harness.facts() == ["JobAccepted", "JobGated"]

    await set_sample_set_phase(harness.cluster, SET, "Ready")
    await harness.settle(key)
    assert (await harness.condition(key, "Admitted"))["status"] == "True"
    preferred = [_preferred(p) for p in await harness.objects(PODS)]
    assert preferred == ["0", "1", None]
    assert harness.facts() == ["JobAccepted", "JobGated", "JobStarting"]


def _preferred(pod: Object) -> str | None:
    terms = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    found = terms.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    return found[0]["preference"]["matchExpressions"][0]["values"][0] if found else None


async def test_a_set_that_degrades_later_stops_no_job(harness: JobHarness) -> None:
    await make_sample_set(harness.cluster, SET, partitions=2)
    await set_sample_set_phase(harness.cluster, SET, "Ready")
    key = await harness.to_running(job_with_data())
    await set_sample_set_phase(harness.cluster, SET, "PartialReady")
    await harness.delete(Key("default", "demo-worker-1"), PODS)
    await harness.settle(key)
    pod = await harness.get(Key("default", "demo-worker-1"), PODS)
    assert _preferred(pod) == "1"
    await harness.delete(SET, SAMPLE_SETS)
    await harness.settle(key)
    assert len(await harness.pod_names()) == 3


async def test_a_running_job_does_not_read_its_set_again(harness: JobHarness) -> None:
    await make_sample_set(harness.cluster, SET, partitions=2)
    await set_sample_set_phase(harness.cluster, SET, "Ready")
    key = await harness.to_running(job_with_data())
    with harness.recorded_calls() as calls:
        await harness.reconcile(key)
    assert calls == []


async def test_a_missing_set_gives_one_warning_a_slow_one_none(harness: JobHarness) -> None:
    key = await harness.create(job_with_data())
    for _ in range(3):
        await harness.settle(key)
    warnings = [e for e in await harness.kubernetes_events() if e[0] == "Warning"]
    assert len(warnings) == 1
    assert "default/digits does not exist" in warnings[0][2]
    await make_sample_set(harness.cluster, SET)
    await harness.settle(key)
    assert ("Normal", "SampleSetNotReady") in [e[:2] for e in await harness.kubernetes_events()]


async def _publish_facts(harness: JobHarness) -> None:
    await harness.bus.publish(ready_fact())
    await harness.bus.publish(ready_fact("unused"))
    ref = ObjectRef(namespace="default", name="digits", uid="j")
    started = SampleJobStarted(sample_job=ref, sample_set="digits")
    event = make_event(started, id="j/1", source="t", namespace="default", uid="j", time=NOW)
    await harness.bus.publish(event)


async def _create_users(harness: JobHarness) -> None:
    for name in ("one", "two"):
        await harness.create(job_with_data(name))
    await harness.create(make_paddle_job("other", worker=make_role()))
    await harness.catch_up()
    harness.forget_woken()


async def test_a_fact_wakes_exactly_the_jobs_that_use_the_set(harness: JobHarness) -> None:
    await _create_users(harness)
    await _publish_facts(harness)
    await harness.catch_up()
    assert sorted(harness.woken) == [Key("default", "one"), Key("default", "two")]
    assert harness.delays == {}
    assert harness.bus.stored("PW_DLQ") == []


async def test_facts_of_the_minute_before_the_start_are_read(
    fakes: Fakes, open_harness: OpenHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is published between the first look at a data set and the first read from the bus."""
    read: list[str] = []

    monkeypatch.setattr(JobObserver, "received", lambda _, delivery: read.append(delivery.event.id))
    await fakes.bus.publish(ready_fact("old"))
    await fakes.clock.advance(61)
    await fakes.bus.publish(ready_fact("new"))
    async with open_harness() as harness:
        await harness.catch_up()
        assert read == ["s-1/new"]
        assert (await harness.bus.inspect.status()).durables == (), "the server keeps no position for it"


async def test_replicas_that_share_jobs_each_read_every_fact(open_harness: OpenHarness) -> None:
    async with (
        open_harness(replicas_share=True, pod_name="a") as first,
        open_harness(replicas_share=True, pod_name="b") as second,
    ):
        await _create_users(first)
        await second.catch_up()
        second.forget_woken()
        await _publish_facts(first)
        for replica in (first, second):
            await replica.catch_up()
            assert sorted(replica.woken) == [Key("default", "one"), Key("default", "two")]


# --- a mount that is lost


async def lose_mount(
    harness: JobHarness,
    node: str,
    *,
    mounted: int = 1,
    reason: str = "MountLost",
    phase: str = "PartialReady",
) -> None:
    """Write the status and the fact of dataset-controller."""
    since = harness.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    lost = {"partition": 1, "node": node, "since": since, "reason": reason, "message": "juicefs mount ended"}
    status = {"phase": phase, "runtimeStatus": {"readyReplicas": mounted, "lostMounts": [lost]}}
    await harness.cluster.patch(SAMPLE_SETS, SET, {"status": status}, subresource="status")
    ref = ObjectRef(namespace="default", name="digits", uid="s-1")
    fact = SampleSetDegraded(sample_set=ref, reason="MountLost", message="")
    event = make_event(fact, id=f"s-1/{since}", source="t", namespace="default", uid="s-1", time=NOW)
    await harness.bus.publish(event)
    await harness.catch_up()


async def find_mount(harness: JobHarness) -> None:
    status = {"phase": "Ready", "runtimeStatus": {"readyReplicas": 2, "lostMounts": None}}
    await harness.cluster.patch(SAMPLE_SETS, SET, {"status": status}, subresource="status")


async def running_on_nodes(harness: JobHarness, **spec: Any) -> Key:
    """Worker i runs on node-i."""
    await make_sample_set(harness.cluster, SET, partitions=2)
    await set_sample_set_phase(harness.cluster, SET, "Ready")
    job = job_with_data(replicas=2)
    job["spec"] |= spec
    key = await harness.to_running(job)
    for index in range(2):
        pod = Key("default", f"demo-worker-{index}")
        await harness.patch(pod, {"spec": {"nodeName": f"node-{index}"}}, PODS)
    await harness.settle(key)
    return key


async def test_ranks_on_a_mount_that_does_not_come_back_are_restarted(harness: JobHarness) -> None:
    key = await running_on_nodes(harness)
    await lose_mount(harness, "node-1")
    result = await harness.settle(key)
    assert await harness.restarts(key) == (0, {}), "it may come back"
    assert result.requeue_after is not None
    assert result.requeue_after <= 30

    await harness.advance(31)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"MountLost": 1})
    status = await harness.status(key)
    assert status["budgets"] == {"disruptions": 1}, "not charged to backoffLimit, which is 0"
    assert status["lastRestart"]["message"] == (
        "pod demo-worker-1 runs on node node-1, which has lost the mount of SampleSet default/digits:"
        " juicefs mount ended"
    )


async def test_ranks_go_on_with_a_mount_that_comes_back(harness: JobHarness) -> None:
    key = await running_on_nodes(harness)
    await lose_mount(harness, "node-1")
    await harness.settle(key)
    await find_mount(harness)
    await harness.advance(31)
    await harness.settle(key)
    assert await harness.restarts(key) == (0, {})
    with harness.recorded_calls() as calls:
        await harness.reconcile(key)
    assert calls == [], "it is well, and not asked for again"


async def test_a_mount_that_was_stopped_on_purpose_gets_the_time_that_a_roll_out_takes(
    harness: JobHarness,
) -> None:
    key = await running_on_nodes(harness)
    await lose_mount(harness, "node-1", reason="Stopped")
    await harness.advance(240)
    await harness.settle(key)
    assert await harness.restarts(key) == (0, {}), "its runtime pod is being replaced"

    await harness.advance(61)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"MountLost": 1}), "it does not come back"


async def test_a_job_with_a_wrong_spec_does_not_check_its_data_set(harness: JobHarness) -> None:
    key = await running_on_nodes(harness)
    await lose_mount(harness, "node-1")
    await harness.settle(key)
    await harness.patch(key, {"spec": {"backoffLimit": -1}})
    await harness.settle(key)
    await harness.advance(600)
    assert (await harness.settle(key)).requeue_after is None


async def test_ranks_left_on_a_node_are_restarted_though_the_set_is_ready_on_others(
    harness: JobHarness,
) -> None:
    key = await running_on_nodes(harness)
    await lose_mount(harness, "node-1", mounted=2, reason="PartitionMoved", phase="Ready")
    await harness.settle(key)
    await harness.advance(31)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"MountLost": 1})


async def settle_with_news_during_read(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch, key: Key, come: Callable[[], Awaitable[None]]
) -> None:
    """Reconcile the job, which reads its data set. The news comes after the API server has answered."""
    await harness.bus.publish(ready_fact())
    await harness.catch_up()
    ask = harness.cluster.get

    async def overtaken(resource: Resource, asked: Key) -> Object:
        answer = await ask(resource, asked)
        if resource is SAMPLE_SETS:
            monkeypatch.setattr(harness.cluster, "get", ask)
            await come()
        return answer

    monkeypatch.setattr(harness.cluster, "get", overtaken)
    await harness.settle(key)
    assert harness.cluster.get == ask, "the set was asked for"


async def test_an_answer_that_a_fact_has_overtaken_does_not_make_the_set_well(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await running_on_nodes(harness)
    await settle_with_news_during_read(harness, monkeypatch, key, lambda: lose_mount(harness, "node-1"))
    await harness.advance(31)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"MountLost": 1})


async def test_a_fact_about_another_set_does_not_overtake_an_answer(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def come() -> None:
        await harness.bus.publish(ready_fact("others"))
        await harness.catch_up()

    key = await running_on_nodes(harness)
    await settle_with_news_during_read(harness, monkeypatch, key, come)
    with harness.recorded_calls() as calls:
        await harness.reconcile(key)
    assert calls == [], "the set is asked for again"


async def test_a_mount_that_is_lost_elsewhere_concerns_no_rank(harness: JobHarness) -> None:
    key = await running_on_nodes(harness)
    await lose_mount(harness, "node-7")
    await harness.advance(31)
    await harness.settle(key)
    assert await harness.restarts(key) == (0, {})


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("OSError: [Errno 107] Transport endpoint is not connected: '/data/a'", "MountLost"),
        ("OSError: [Errno 103] Software caused connection abort", "MountLost"),
        ("ValueError: no", None),
    ],
)
async def test_a_rank_that_fails_on_its_mount_is_not_its_programs_failure(
    harness: JobHarness, line: str, cause: str | None
) -> None:
    key = await running_on_nodes(harness)
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=1, message=line)
    await harness.settle(key)
    if cause is None:
        assert (await harness.status(key))["phase"] == "Failed"
    else:
        assert await harness.restarts(key) == (1, {cause: 1})


async def test_a_rank_that_fails_while_its_node_lacks_the_mount_is_restarted(harness: JobHarness) -> None:
    key = await running_on_nodes(harness)
    await lose_mount(harness, "node-1")
    await harness.end_pods("demo-worker-1", phase="Failed", exit_code=1, message="no data")
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {"MountLost": 1})


async def test_a_rank_that_failed_long_before_its_node_lost_the_mount_is_its_programs_failure(
    open_harness: OpenHarness,
) -> None:
    """The service was away."""
    async with open_harness() as before:
        key = await running_on_nodes(before)
    at = seconds_stamp(before.clock.now())
    failed = ended_status(exit_code=1, message="no data", finished_at=at)
    await before.set_status(Key("default", "demo-worker-1"), failed, PODS)
    await before.clock.advance(300)
    await lose_mount(before, "node-1")
    async with open_harness() as after:
        await after.settle(key)
        assert (await after.condition(key, "Failed"))["reason"] == "PodFailed"


async def test_a_rule_may_say_otherwise(harness: JobHarness) -> None:
    rules = [{"action": "Fail", "reasons": ["MountLost"]}]
    key = await running_on_nodes(harness, failurePolicy={"rules": rules})
    await lose_mount(harness, "node-1")
    await harness.advance(31)
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Failed"


async def test_a_new_epoch_waits_until_a_node_has_the_data(harness: JobHarness) -> None:
    key = await running_on_nodes(harness)
    await lose_mount(harness, "node-1", mounted=0)
    await harness.advance(31)
    await harness.settle(key)
    await harness.settle(key)
    assert await harness.pod_names() == []
    gate = await harness.condition(key, "Admitted")
    assert (gate["status"], gate["reason"]) == ("False", "SampleSetNotMounted")
    assert gate["message"].endswith("node node-1: juicefs mount ended")

    await find_mount(harness)
    await harness.advance(31)
    await harness.settle(key)
    assert len(await harness.pod_names()) == 2
    assert (await harness.condition(key, "Admitted"))["status"] == "True"
