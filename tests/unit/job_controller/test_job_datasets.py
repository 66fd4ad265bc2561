"""A job with cached data: held until its set is ready, woken by facts, placed beside its partitions."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from job_controller.handlers import DATASETS, LOOK_AGAIN, DatasetFacts

from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import SampleJobStarted, SampleSetReady
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import PODS, SAMPLE_SETS
from paddlewheel.testkit.paddlejobs import (
    make_paddle_job,
    make_role,
    make_sample_set,
    set_sample_set_phase,
)

SET = Key("default", "digits")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job_with_data(name: str = "demo", replicas: int = 3) -> dict[str, Any]:
    return make_paddle_job(
        name, sampleSetRef={"name": "digits", "mountPath": "/data"}, worker=make_role(replicas)
    )


def ready_fact(name: str = "digits") -> Any:
    ref = ObjectRef(namespace="default", name=name, uid="s-1")
    data = SampleSetReady(sample_set=ref, partitions=2)
    return make_event(data, id=f"s-1/{name}", source="test", namespace="default", uid="s-1", time=NOW)


async def test_pods_wait_for_the_set_and_then_prefer_their_partitions(desk: Any) -> None:
    key = await desk.create(job_with_data())
    result = await desk.settle(key)
    assert (await desk.condition(key, "Admitted"))["reason"] == "SampleSetNotFound"
    assert result.requeue_after == 30.0

    await make_sample_set(desk.cluster, SET, partitions=2)
    await set_sample_set_phase(desk.cluster, SET, "Syncing")
    await desk.settle(key)
    condition = await desk.condition(key, "Admitted")
    assert (condition["status"], condition["reason"]) == ("False", "SampleSetNotReady")
    assert (await desk.status(key))["phase"] == "Pending"
    assert await desk.pod_names() == []
    assert desk.facts() == ["JobAccepted", "JobGated"]

    await set_sample_set_phase(desk.cluster, SET, "Ready")
    await desk.settle(key)
    assert (await desk.condition(key, "Admitted"))["status"] == "True"
    pods = await desk.cluster.list(PODS)
    preferred = [_preferred(p) for p in pods]
    assert preferred == ["0", "1", None]
    assert desk.facts() == ["JobAccepted", "JobGated", "JobStarting"]


def _preferred(pod: dict[str, Any]) -> str | None:
    terms = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    found = terms.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    return found[0]["preference"]["matchExpressions"][0]["values"][0] if found else None


async def test_a_set_that_degrades_later_stops_no_job(desk: Any) -> None:
    await make_sample_set(desk.cluster, SET, partitions=2)
    await set_sample_set_phase(desk.cluster, SET, "Ready")
    key = await desk.to_running(job_with_data())
    await set_sample_set_phase(desk.cluster, SET, "PartialReady")
    await desk.cluster.delete(PODS, Key("default", "demo-worker-1"))
    await desk.settle(key)
    pod = await desk.cluster.get(PODS, Key("default", "demo-worker-1"))
    assert _preferred(pod) == "1"
    await desk.cluster.delete(SAMPLE_SETS, SET)
    await desk.settle(key)
    assert len(await desk.pod_names()) == 3


async def test_a_running_job_asks_for_its_set_no_more(desk: Any) -> None:
    await make_sample_set(desk.cluster, SET, partitions=2)
    await set_sample_set_phase(desk.cluster, SET, "Ready")
    key = await desk.to_running(job_with_data())
    asked: list[str] = []
    desk.cluster.intercept = lambda verb, resource, _: asked.append(f"{verb} {resource.plural}")
    await desk.reconcile(key)
    assert asked == []


async def test_a_missing_set_is_warned_of_once_a_slow_one_is_no_warning(desk: Any) -> None:
    key = await desk.create(job_with_data())
    for _ in range(3):
        await desk.settle(key)
    warnings = [e for e in await desk.events() if e[0] == "Warning"]
    assert len(warnings) == 1
    assert "default/digits does not exist" in warnings[0][2]
    await make_sample_set(desk.cluster, SET)
    await desk.settle(key)
    assert ("Normal", "Gated") in [e[:2] for e in await desk.events()]


async def test_a_fact_wakes_exactly_the_jobs_that_use_the_set_now_and_when_its_status_is_written(
    desk: Any,
) -> None:
    for name in ("one", "two"):
        await desk.create(job_with_data(name))
    await desk.create(make_paddle_job("other", worker=make_role()))
    await desk.catch_up()
    woken: list[tuple[str, float]] = []
    facts = DatasetFacts(desk.jobs.users_of, lambda job, after: woken.append((str(job), after)))
    consumer = asyncio.create_task(desk.bus.consume(DATASETS, facts.handle))
    await desk.bus.publish(ready_fact())
    await desk.bus.publish(ready_fact("unused"))
    ref = ObjectRef(namespace="default", name="digits", uid="j")
    started = SampleJobStarted(sample_job=ref, sample_set="digits")
    event = make_event(started, id="j/1", source="t", namespace="default", uid="j", time=NOW)
    await desk.bus.publish(event)
    await desk.catch_up()
    consumer.cancel()
    await asyncio.gather(consumer, return_exceptions=True)
    assert sorted(woken) == [
        ("default/one", 0.0), ("default/one", LOOK_AGAIN), ("default/two", 0.0), ("default/two", LOOK_AGAIN),
    ]  # fmt: skip
    assert desk.bus.stored("PW_DLQ") == []
