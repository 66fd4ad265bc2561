"""Pods with ordinary containers beside the one that trains, such as a service mesh: the first one decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness

from job_controller.core.parse_pod import parse_pod
from job_controller.core.pods import PodState
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.stamps import seconds_stamp
from paddlewheel.kube.ports import PODS, Object
from paddlewheel.testkit.paddlejobs import make_paddle_job

FIRST, SECOND = Key("default", "demo-worker-0"), Key("default", "demo-worker-1")
POD_GRACE_SECONDS = 5
UNTIL_JUDGED = POD_GRACE_SECONDS + 10
ENDED_AT = "2026-01-01T00:10:00Z"
OWNER = {"kind": "PaddleJob", "name": "demo", "uid": "j", "controller": True}
RUNNING: Object = {"running": {"startedAt": "2026-01-01T00:00:01Z"}}


def job(**spec: Any) -> Object:
    """Two workers, each with a proxy whose name comes first in the kubelet's list."""
    containers = [
        {"name": "main", "image": "example/train:1"},
        {"name": "a-proxy", "image": "example/proxy:1"},
    ]
    pod = {"terminationGracePeriodSeconds": POD_GRACE_SECONDS, "containers": containers}
    return make_paddle_job(**{"worker": {"replicas": 2, "template": {"spec": pod}}} | spec)


def ended(code: int, at: str = ENDED_AT, message: str = "") -> Object:
    return {
        "terminated": {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "finishedAt": at,
            "message": message,
        }
    }


def status(main: Object, proxy: Object, phase: str = "Running", **more: Any) -> Object:
    containers = [
        {"name": "a-proxy", "ready": "running" in proxy, "state": proxy},
        {"name": "main", "ready": "running" in main, "state": main},
    ]
    return {
        "phase": phase,
        "podIP": "10.0.0.1",
        "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": containers,
    } | more


async def to_running(harness: JobHarness, manifest: Object) -> Key:
    key = await harness.create(manifest)
    await harness.settle(key)
    for pod in (FIRST, SECOND):
        await harness.set_status(pod, status(RUNNING, RUNNING), PODS)
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Running"
    return key


async def end_program(harness: JobHarness, pod: Key, code: int, message: str = "") -> None:
    """Its proxy runs on."""
    at = seconds_stamp(harness.clock.now())
    await harness.set_status(pod, status(ended(code, at, message), RUNNING), PODS)


async def test_a_program_that_fails_beside_a_proxy_ends_its_job(harness: JobHarness) -> None:
    key = await to_running(harness, job())
    await end_program(harness, SECOND, 1, "loss is NaN")
    await harness.drain_queue()
    await harness.advance(86_400)
    failed = await harness.condition(key, "Failed")
    assert failed["message"] == "pod demo-worker-1 failed (Error, exit code 1): loss is NaN"
    assert (await harness.status(key))["phase"] == "Failed"


async def test_programs_that_succeed_beside_proxies_complete_their_job(harness: JobHarness) -> None:
    key = await to_running(harness, job())
    await end_program(harness, FIRST, 0, '{"accuracy": 0.5}')
    await end_program(harness, SECOND, 0)
    await harness.drain_queue()
    await harness.advance(86_400)
    found = await harness.status(key)
    assert (found["phase"], found["results"]) == ("Completed", {"accuracy": 0.5})
    assert await harness.pod_names() == [], "the proxies are ended"


async def test_an_end_beside_a_proxy_counts_after_the_pods_grace_period(harness: JobHarness) -> None:
    """A kubelet that evicts the pod reports the reason only after the last container."""
    key = await to_running(harness, job(backoffLimit=3))
    await end_program(harness, SECOND, 0)
    await harness.drain_queue()
    await harness.advance(UNTIL_JUDGED - 1)
    evicted = status(ended(0), ended(137), "Failed", reason="Evicted", message="low on memory")
    await harness.set_status(SECOND, evicted, PODS)
    await harness.drain_queue()
    assert await harness.restarts(key) == (1, {"Evicted": 1})


async def test_a_job_looks_again_when_the_end_counts(harness: JobHarness) -> None:
    key = await to_running(harness, job(backoffLimit=3))
    await end_program(harness, SECOND, 1)
    await harness.drain_queue()
    await harness.advance(UNTIL_JUDGED)
    assert await harness.restarts(key) == (1, {"PodFailed": 1})


@pytest.mark.parametrize("grace", [3600, 2**63 - 1])
async def test_an_end_beside_a_proxy_counts_after_a_minute_at_the_latest(
    harness: JobHarness, grace: int
) -> None:
    manifest = job(backoffLimit=3)
    manifest["spec"]["worker"]["template"]["spec"]["terminationGracePeriodSeconds"] = grace
    key = await to_running(harness, manifest)
    await end_program(harness, SECOND, 1)
    await harness.drain_queue()
    await harness.advance(59)
    assert await harness.restarts(key) == (0, {})
    await harness.advance(1)
    assert await harness.restarts(key) == (1, {"PodFailed": 1})


async def test_a_proxy_that_fails_later_does_not_undo_a_success(harness: JobHarness) -> None:
    key = await to_running(harness, job())
    await end_program(harness, SECOND, 0)
    await harness.drain_queue()
    await harness.advance(UNTIL_JUDGED)
    await harness.set_status(SECOND, status(ended(0), ended(143), "Failed", reason="Evicted"), PODS)
    await harness.drain_queue()
    found = await harness.status(key)
    assert (found["phase"], found["worker"]["succeeded"], found.get("restarts")) == ("Running", 1, None)


@pytest.mark.parametrize(("policy", "kept"), [("Never", 2), ("OnFailure", 0)])
async def test_a_pod_whose_proxy_runs_is_cleaned_up_like_one_that_runs(
    harness: JobHarness, policy: str, kept: int
) -> None:
    key = await to_running(harness, job(cleanPodPolicy=policy))
    for pod in (FIRST, SECOND):
        await end_program(harness, pod, 0)
    await harness.drain_queue()
    await harness.advance(UNTIL_JUDGED)
    assert (await harness.status(key))["phase"] == "Completed"
    assert len(await harness.pod_names()) == kept


@pytest.mark.parametrize("seconds", [1, 35])
@pytest.mark.parametrize("beside", [RUNNING, None], ids=["beside a proxy", "alone"])
async def test_a_program_that_has_succeeded_does_not_train_again_when_its_node_is_drained(
    harness: JobHarness, beside: Object | None, seconds: int
) -> None:
    """Exit code 0 came first, whatever the clock of its node."""
    key = await to_running(harness, long_job())
    at = seconds_stamp(harness.clock.now() + timedelta(minutes=2))
    found = status(ended(0, at), RUNNING) if beside else status(ended(0, at), ended(0, at), "Succeeded")
    await harness.set_status(SECOND, found, PODS)
    await harness.drain_queue()
    await harness.advance(seconds)
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    await harness.set_status(SECOND, {"conditions": [target]}, PODS)
    await harness.delete(SECOND, PODS)
    await harness.settle(key)
    found = await harness.status(key)
    assert (found["worker"]["succeededIndexes"], found.get("restarts")) == ([1], None)
    assert await harness.pod_names() == [FIRST.name]


def long_job() -> Object:
    """Pods with Kubernetes' usual grace period, which something holds when they are deleted."""
    manifest = job(backoffLimit=3)
    template = manifest["spec"]["worker"]["template"]
    del template["spec"]["terminationGracePeriodSeconds"]
    return manifest


@pytest.mark.parametrize("ahead", [-3600, 3600])
async def test_an_end_counts_after_the_grace_period_whatever_the_nodes_clock(
    harness: JobHarness, ahead: int
) -> None:
    key = await to_running(harness, job(backoffLimit=3))
    at = seconds_stamp(harness.clock.now() + timedelta(seconds=ahead))
    await harness.set_status(SECOND, status(ended(1, at), RUNNING), PODS)
    await harness.drain_queue()
    await harness.advance(UNTIL_JUDGED - 1)
    assert await harness.restarts(key) == (0, {})
    await harness.advance(1)
    assert await harness.restarts(key) == (1, {"PodFailed": 1})


@pytest.mark.parametrize(("ahead", "seconds"), [(0, UNTIL_JUDGED - 4), (3600, UNTIL_JUDGED)])
async def test_the_time_until_an_end_counts_does_not_begin_again_with_a_restart_of_the_service(
    harness: JobHarness, ahead: int, seconds: int
) -> None:
    """The end counts from its node's time, but no later than from the start of the service."""
    key = await to_running(harness, job(backoffLimit=3))
    at = seconds_stamp(harness.clock.now() + timedelta(seconds=ahead))
    await harness.set_status(SECOND, status(ended(1, at), RUNNING), PODS)
    await harness.drain_queue()
    await harness.advance(4)
    await harness.restart()
    await harness.drain_queue()
    await harness.advance(seconds - 1)
    assert await harness.restarts(key) == (0, {})
    await harness.advance(1)
    assert await harness.restarts(key) == (1, {"PodFailed": 1})


def pod_with(found: Object, restart_policy: str = "Never", **metadata: Any) -> Object:
    base = {
        "name": "demo-worker-0",
        "namespace": "default",
        "uid": "u",
        "labels": {"paddle-res-type": "worker"},
        "ownerReferences": [OWNER],
    }
    spec = {
        "restartPolicy": restart_policy,
        "terminationGracePeriodSeconds": POD_GRACE_SECONDS,
        "containers": [{"name": "main"}, {"name": "a-proxy"}],
    }
    return {"metadata": base | metadata, "spec": spec, "status": found}


def deleted(seconds_after_end: int) -> Object:
    asked = f"2026-01-01T00:10:{seconds_after_end:02}Z"
    return {"deletionTimestamp": asked, "deletionGracePeriodSeconds": 0}


@pytest.mark.parametrize(
    ("found", "policy", "metadata", "expected"),
    [
        pytest.param(
            status(ended(0), ended(1), "Failed"), "Never", {}, PodState.SUCCEEDED, id="proxy failed after it"
        ),
        pytest.param(status(ended(1), ended(0), "Failed"), "Never", {}, PodState.FAILED, id="program failed"),
        pytest.param(
            status(ended(0), ended(137), "Failed", reason="Evicted"),
            "Never",
            {},
            PodState.FAILED,
            id="evicted",
        ),
        pytest.param(status(RUNNING, ended(1)), "Never", {}, PodState.RUNNING, id="proxy failed for good"),
        pytest.param(status(RUNNING, ended(1)), "OnFailure", {}, PodState.STARTING, id="proxy is restarted"),
        pytest.param(
            status(ended(0), RUNNING), "Never", deleted(16), PodState.SUCCEEDED, id="deleted long after"
        ),
        pytest.param(
            status(ended(0), ended(143), "Failed"),
            "Never",
            deleted(16),
            PodState.SUCCEEDED,
            id="deleted and over",
        ),
        pytest.param(
            status(ended(1), RUNNING), "Never", deleted(16), PodState.FAILED, id="failed, deleted after"
        ),
        pytest.param(
            status(ended(0), RUNNING), "Never", deleted(14), PodState.PENDING, id="deletion is the cause"
        ),
    ],
)
def test_states_beside_a_proxy(found: Object, policy: str, metadata: Object, expected: PodState) -> None:
    pod = parse_pod(pod_with(found, policy, **metadata))
    assert pod is not None
    assert pod.state is expected


@pytest.mark.parametrize(
    ("code", "policy", "expected"),
    [
        (0, "Never", PodState.SUCCEEDED),
        (1, "Never", PodState.FAILED),
        (0, "OnFailure", PodState.SUCCEEDED),
        (1, "OnFailure", None),
        (0, "Always", None),
        (1, "Always", None),
    ],
)
def test_only_an_end_for_good_counts(code: int, policy: str, expected: PodState | None) -> None:
    pod = parse_pod(pod_with(status(ended(code), RUNNING), policy))
    assert pod is not None
    assert (pod.program_end.state if pod.program_end else None) is expected


def test_the_program_is_blamed_before_its_proxy() -> None:
    pod = parse_pod(pod_with(status(ended(3), ended(143), "Failed")))
    assert pod is not None
    assert pod.failure is not None
    assert (pod.failure.exit_code, pod.failure.container) == (3, "")
