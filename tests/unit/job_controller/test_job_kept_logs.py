"""The last lines of a finished job's pods are kept before clean-up takes the pods away."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.job_controller.builders import make_pod
from tests.unit.job_controller.conftest import JobHarness

from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed
from job_controller.core.parse import parse_job
from job_controller.core.pods import Failure, Pod, PodId, PodState, ProgramEnd
from job_controller.features.kept_logs import observe
from job_controller.features.kept_logs.rules import BYTES, kept, pods_to_read
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, Permanent, Unavailable
from paddlewheel.kube.ports import CONFIG_MAPS, PODS, Resource
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

KEPT = Key("default", "demo.kept-logs")


async def finished(harness: JobHarness, policy: str, **status: Any) -> Key:
    """A job of two workers that have written lines and ended."""
    key = await harness.to_running(make_paddle_job(worker=make_role(2), cleanPodPolicy=policy))
    for name in await harness.pod_names():
        harness.cluster.logs[Key("default", name), "main"] = f"{name} begins\n{name} ends\n"
    await harness.end_pods(**status)
    return key


async def kept_lines(harness: JobHarness) -> dict[str, str] | None:
    try:
        found = await harness.cluster.get(CONFIG_MAPS, KEPT)
    except NotFound:
        return None
    assert [owner["name"] for owner in found["metadata"]["ownerReferences"]] == ["demo"]
    return dict(found["data"])


async def conditions(harness: JobHarness, key: Key) -> set[str]:
    return {condition["type"] for condition in (await harness.status(key))["conditions"]}


async def test_last_lines_are_kept_before_the_pods_are_deleted(harness: JobHarness) -> None:
    await harness.settle(await finished(harness, "Always"))
    assert await harness.pod_names() == []
    assert await kept_lines(harness) == {
        "demo-worker-0": "demo-worker-0 begins\ndemo-worker-0 ends\n",
        "demo-worker-1": "demo-worker-1 begins\ndemo-worker-1 ends\n",
    }


async def test_nothing_is_kept_of_pods_that_stay(harness: JobHarness) -> None:
    await harness.settle(await finished(harness, "Never"))
    assert len(await harness.pod_names()) == 2
    assert await kept_lines(harness) is None


async def test_pods_whose_log_cannot_be_read_are_deleted_all_the_same(harness: JobHarness) -> None:
    def refuse(verb: str, _resource: Resource, key: Key) -> None:
        if verb == "log" and key.name == "demo-worker-0":
            raise Unavailable("KubeletUnreachable", "no route to host")

    key = await finished(harness, "Always")
    harness.cluster.intercept = refuse
    await harness.settle(key)
    assert await harness.pod_names() == []
    assert await kept_lines(harness) == {
        "demo-worker-0": "[not read: no route to host]\n",
        "demo-worker-1": "demo-worker-1 begins\ndemo-worker-1 ends\n",
    }


async def test_a_node_that_does_not_answer_delays_the_deletion_only_a_little(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silence(*_: Any, **__: Any) -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(observe, "LOGS_READ_TIMEOUT_SECONDS", 0.05)
    key = await finished(harness, "Always")
    monkeypatch.setattr(harness.cluster, "read_log", silence)
    await harness.settle(key)
    assert await harness.pod_names() == []
    note = "[not read: no answer within 0.05 s]\n"
    assert await kept_lines(harness) == {"demo-worker-0": note, "demo-worker-1": note}


async def test_pods_wait_until_their_lines_are_kept(harness: JobHarness) -> None:
    key = await finished(harness, "Always")
    with harness.failing(Unavailable("Timeout", "etcd is slow"), "create", CONFIG_MAPS):
        await harness.reconcile(key)
        await harness.reconcile(key)
        assert len(await harness.pod_names()) == 2
    assert "Blocked" not in await conditions(harness, key)
    await harness.clock.advance(5)
    await harness.settle(key)
    assert await harness.pod_names() == []
    assert (await kept_lines(harness) or {}).keys() == {"demo-worker-0", "demo-worker-1"}
    assert "Blocked" not in await conditions(harness, key)


async def test_pods_do_not_wait_longer_than_a_minute_for_their_lines_to_be_kept(harness: JobHarness) -> None:
    key = await finished(harness, "Always")
    with harness.failing(Unavailable("Timeout", "etcd is slow"), "create", CONFIG_MAPS):
        await harness.reconcile(key)
        await harness.clock.advance(59)
        await harness.reconcile(key)
        assert len(await harness.pod_names()) == 2
        await harness.clock.advance(1)
        await harness.reconcile(key)
        assert await harness.pod_names() == []


async def test_lines_that_may_not_be_kept_delay_and_block_nothing(harness: JobHarness) -> None:
    key = await finished(harness, "Always")
    with harness.failing(Permanent("Forbidden", "exceeded quota"), "create", CONFIG_MAPS):
        await harness.settle(key)
        await harness.clock.advance(5)
        await harness.settle(key)
    assert await harness.pod_names() == []
    assert "Blocked" not in await conditions(harness, key)
    assert await kept_lines(harness) is None


OTHER_JOB = {"kind": "PaddleJob", "name": KEPT.name, "uid": "other"}


@pytest.mark.parametrize(
    "owners",
    [[], [{**OTHER_JOB, "controller": True}]],
    ids=["of nobody", "with the addresses of a job of that name"],
)
async def test_a_foreign_config_map_of_the_name_is_left_alone_and_blocks_nothing(
    harness: JobHarness, owners: list[dict[str, Any]]
) -> None:
    metadata = {"name": KEPT.name, "namespace": "default", "ownerReferences": owners}
    await harness.cluster.create(CONFIG_MAPS, {"metadata": metadata})
    key = await finished(harness, "Always")
    await harness.settle(key)
    await harness.clock.advance(5)
    await harness.settle(key)
    assert await harness.pod_names() == []
    assert "Blocked" not in await conditions(harness, key)
    assert "data" not in await harness.cluster.get(CONFIG_MAPS, KEPT)


async def test_logs_wait_until_those_of_the_deleted_job_of_the_name_are_gone(harness: JobHarness) -> None:
    """The garbage collector deletes them some time after the job."""
    former = {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "name": "demo", "uid": "former"}
    owned = {"name": KEPT.name, "namespace": "default", "ownerReferences": [{**former, "controller": True}]}
    await harness.cluster.create(CONFIG_MAPS, {"metadata": owned, "data": {"demo-worker-0": "old"}})
    await harness.settle(await finished(harness, "Always"))
    assert len(await harness.pod_names()) == 2
    await harness.cluster.delete(CONFIG_MAPS, KEPT)
    await harness.advance(2)
    assert await harness.pod_names() == []
    lines = await kept_lines(harness)
    assert lines is not None
    assert lines["demo-worker-0"].endswith("demo-worker-0 ends\n")
    assert not [event for event in await harness.kubernetes_events() if event.type == "Warning"]


async def test_kept_logs_are_not_read_again_while_the_deletion_of_pods_fails(harness: JobHarness) -> None:
    read: list[str] = []

    def refuse(verb: str, resource: Resource, key: Key) -> None:
        if verb == "log":
            read.append(key.name)
        if verb == "delete" and resource == PODS:
            raise Unavailable("Timeout", "etcd is slow")

    key = await finished(harness, "Always")
    harness.cluster.intercept = refuse
    for _ in range(4):
        await harness.reconcile(key)
        await harness.clock.advance(5)
    assert len(await harness.pod_names()) == 2
    assert sorted(read) == ["demo-worker-0", "demo-worker-1"]


async def test_lines_are_kept_once_even_when_the_deletion_of_pods_fails(harness: JobHarness) -> None:
    def refuse(verb: str, resource: Resource, _key: Key) -> None:
        if verb == "delete" and resource == PODS:
            raise Unavailable("Timeout", "etcd is slow")

    key = await finished(harness, "Always")
    harness.cluster.intercept = refuse
    await harness.reconcile(key)
    await harness.reconcile(key)
    assert len(await harness.pod_names()) == 2
    harness.cluster.intercept = lambda *_: None
    await harness.clock.advance(5)
    await harness.settle(key)
    assert await harness.pod_names() == []
    assert (await kept_lines(harness) or {}).keys() == {"demo-worker-0", "demo-worker-1"}


def test_of_a_long_log_whole_lines_from_the_end_are_kept() -> None:
    lines = [f"step {n} ä" for n in range(5000)]
    data = kept({"a": "\n".join(lines), "silent": ""})
    assert data.keys() == {"a"}
    first, *rest = data["a"].splitlines()
    assert first == "[...]"
    assert rest == lines[-len(rest) :]
    assert BYTES - 30 < len(data["a"].encode()) <= BYTES


def test_of_one_endless_line_the_end_is_kept() -> None:
    assert kept({"a": "x" * 5 * BYTES}) == {"a": "[...]\n" + "x" * (BYTES - 6)}


async def test_of_long_logs_only_the_end_is_read(harness: JobHarness) -> None:
    key = await finished(harness, "Always")
    harness.cluster.logs[Key("default", "demo-worker-0"), "main"] = f"{'x' * 10 * BYTES}\nthe end\n"
    limits = []
    read_log = harness.cluster.read_log

    async def read(pod: Key, *, container: str, lines: int, limit_bytes: int) -> str:
        limits.append(limit_bytes)
        return await read_log(pod, container=container, lines=lines, limit_bytes=limit_bytes)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(harness.cluster, "read_log", read)
        await harness.settle(key)
    assert set(limits) == {BYTES + 1}
    assert (await kept_lines(harness) or {})["demo-worker-0"] == "[...]\nthe end\n"


async def test_all_jobs_together_read_few_logs_at_once(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    for name in ("a", "b", "c"):
        keys.append(await harness.create(make_paddle_job(name, worker=make_role(6), cleanPodPolicy="Always")))
        await harness.settle(keys[-1])
    await harness.end_pods()
    now, most = 0, 0

    async def read(*_: Any, **__: Any) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _step in range(10):
            await asyncio.sleep(0)
        now -= 1
        return "the end\n"

    monkeypatch.setattr(harness.cluster, "read_log", read)
    for key in keys:
        await harness.reconcile(key)
    await asyncio.gather(*map(harness.reconcile_stale, keys))
    assert await harness.pod_names() == []
    assert most == observe.LOGS_AT_ONCE


def test_the_first_failures_are_kept_then_rank_0_of_each_role() -> None:
    def pod(role: str, ordinal: int, failed_at: str = "") -> Pod:
        name = f"demo-{role}-{ordinal}"
        failure = Failure(name, "Error", 1, "", failed_at) if failed_at else None
        return Pod(PodId(role, ordinal), "demo", name, name, PodState.RUNNING, failure=failure)

    workers = [pod("worker", n) for n in range(9)]
    workers[7] = pod("worker", 7, "2026-01-01T00:00:02Z")
    workers[5] = pod("worker", 5, "2026-01-01T00:00:03Z")
    pods = (pod("ps", 0), pod("ps", 1), *workers)
    job = parse_job(make_paddle_job(worker=make_role(9), ps=make_role(2), cleanPodPolicy="Always"))
    seen = Observed(replace(job, status=JobStatus(phase="Failed")), pods)
    assert [p.name.removeprefix("demo-") for p in pods_to_read(seen)] == [
        *("worker-7", "worker-5", "ps-0", "worker-0"),
        *("ps-1", "worker-1", "worker-2", "worker-3"),
    ]


def test_the_clocks_of_nodes_do_not_tell_which_failures_are_the_first() -> None:
    seen_at = datetime(2026, 1, 1, tzinfo=UTC)
    pods = tuple(
        make_pod(
            "worker",
            index,
            failure=Failure(f"demo-worker-{index}", "Error", 1, "", f"2026-01-01T00:00:{30 + index}Z"),
            end_seen_at=seen_at - timedelta(seconds=index),
        )
        for index in range(9)
    )
    job = parse_job(make_paddle_job(worker=make_role(9), cleanPodPolicy="Always"))
    seen = Observed(replace(job, status=JobStatus(phase="Failed")), pods)
    assert [pod.id.ordinal for pod in pods_to_read(seen)] == list(range(8, 0, -1))


def test_a_program_that_has_failed_beside_a_sidecar_comes_first() -> None:
    """Its pod is still running, whether its end counts yet or not."""
    failure = Failure("demo-worker-15", "Error", 1, "boom", "2026-01-01T00:00:02Z")
    end = ProgramEnd(PodState.FAILED, failure, datetime(2026, 1, 1, 0, 1, tzinfo=UTC), timedelta(seconds=10))
    pods = tuple(
        make_pod("worker", index, program_end=end if index == 15 else None, container="main")
        for index in range(20)
    )
    job = parse_job(make_paddle_job(worker=make_role(20), cleanPodPolicy="Always"))
    first, *_ = pods_to_read(Observed(replace(job, status=JobStatus(phase="Failed")), pods))
    assert (first.name, first.speaker) == ("demo-worker-15", "main")
