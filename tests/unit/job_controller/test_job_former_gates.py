"""Pods of former versions, whose gates wait for an annotation, are let start by this version."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.unit.job_controller.conftest import GATED, JobHarness, OpenHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.ports import PODS
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

RELEASED, WAITS_FOR = "paddlepaddle.org/released", "paddlepaddle.org/waits-for"
FILES = {"--file": "released", "--resolve-all": "names"}


@pytest.fixture
async def harness(open_harness: OpenHarness) -> AsyncIterator[JobHarness]:
    async with open_harness(**GATED) as running:
        yield running


async def age(harness: JobHarness, option: str, waits_for: str = "", *, gate: str = "running") -> None:
    """Every pod is one that the former version has made; all have an address."""
    annotations = {WAITS_FOR: waits_for} if waits_for else {}
    command = ["/gate", option, f"/etc/paddlewheel/gate/{FILES[option]}"]
    spec = {"initContainers": [{"name": "coord-paddle", "image": "example/gate:0", "command": command}]}
    status = {"initContainerStatuses": [{"name": "coord-paddle", "state": {gate: {}}}]}
    for index, name in enumerate(await harness.pod_names()):
        pod = Key("default", name)
        await harness.patch(pod, {"metadata": {"annotations": annotations}, "spec": spec}, PODS)
        phase = {"phase": "Pending", "podIP": f"10.0.0.{index + 1}"}
        await harness.set_status(pod, phase | status, PODS)


async def values(harness: JobHarness, annotation: str) -> list[str]:
    """The annotation of each pod, "" for none."""
    pods = await harness.objects(PODS)
    return [(pod["metadata"].get("annotations") or {}).get(annotation, "") for pod in pods]


@pytest.mark.parametrize("network", ["PodIP", "Host"])
async def test_a_gate_that_waits_for_its_release_gets_it_after_the_config_map(
    harness: JobHarness, network: str
) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(2), intranet=network))
    await harness.settle(key)
    with harness.recorded_calls() as calls:
        await age(harness, "--file")
        calls.clear()
        await harness.settle(key)
    assert await values(harness, RELEASED) == ["true", "true"]
    order = [(verb, plural) for verb, plural, _ in calls]
    assert order.index(("create", "configmaps")) < order.index(("patch", "pods"))
    with harness.counted_writes() as writes:
        await harness.advance(300)
    assert not writes["patch", "pods"]


async def test_a_gate_is_not_released_while_an_address_is_missing(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(2)))
    await harness.settle(key)
    await age(harness, "--file")
    await harness.set_status(Key("default", "demo-worker-1"), {"podIP": ""}, PODS)
    await harness.settle(key)
    assert await values(harness, RELEASED) == ["", ""]


async def test_one_gate_that_cannot_be_released_hides_no_other(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(4)))
    await harness.drain_queue()
    await age(harness, "--file")
    refused = Permanent("Forbidden", "no right")
    with harness.failing(refused, "patch", PODS, name="demo-worker-1"):
        await harness.drain_queue()
        assert await values(harness, RELEASED) == ["true", "", "true", "true"]
        assert (await harness.condition(key, "Blocked"))["reason"] == "FailedUpdate"
    await harness.advance(60)
    assert await values(harness, RELEASED) == ["true"] * 4


async def test_a_gate_that_waits_for_names_is_told_of_a_scaling(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(3), intranet="Service"))
    await harness.settle(key)
    await age(harness, "--resolve-all", "demo-worker-0 demo-worker-1 demo-worker-2")
    with harness.counted_writes() as writes:
        await harness.settle(key)
    assert not writes["patch", "pods"], "the gates open by themselves"
    await harness.patch(key, {"spec": {"worker": {"replicas": 2}}})
    await harness.settle(key)
    assert await values(harness, WAITS_FOR) == ["demo-worker-0 demo-worker-1"] * 2


@pytest.mark.parametrize("option", list(FILES))
async def test_a_pod_that_has_passed_its_gate_is_not_changed(harness: JobHarness, option: str) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(3), intranet="Service"))
    await harness.settle(key)
    await age(harness, option, "demo-worker-0", gate="terminated")
    with harness.counted_writes() as writes:
        await harness.patch(key, {"spec": {"worker": {"replicas": 2}}})
        await harness.settle(key)
    assert not writes["patch", "pods"]
