"""The last lines of a finished job's pods are kept before clean-up takes the pods away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness

from job_controller import observe
from job_controller.domain.policies.kept_logs import BYTES, kept
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, Unavailable
from paddlewheel.kube.ports import CONFIG_MAPS, PODS, Resource
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

KEPT = Key("default", "demo.logs")


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
    assert await kept_lines(harness) == {"demo-worker-1": "demo-worker-1 begins\ndemo-worker-1 ends\n"}


async def test_a_node_that_does_not_answer_delays_the_deletion_only_a_little(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silence(*_: Any, **__: Any) -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(observe, "LOGS_WITHIN", 0.05)
    key = await finished(harness, "Always")
    monkeypatch.setattr(harness.cluster, "read_log", silence)
    await harness.settle(key)
    assert await harness.pod_names() == []
    assert await kept_lines(harness) is None


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
    assert BYTES - 20 < len("\n".join(rest).encode()) <= BYTES


def test_of_one_endless_line_the_end_is_kept() -> None:
    assert kept({"a": "x" * 5 * BYTES}) == {"a": "[...]\n" + "x" * BYTES}
