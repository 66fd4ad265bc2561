"""The real serving-controller on a real API server, whose own controllers make the pods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.integration.serving_controller.conftest import SHORT, ServingServiceHarness, install, uninstall

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import (
    AUTOSCALERS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    HTTP_ROUTES,
    KNATIVE_REVISIONS,
    KNATIVE_SERVICES,
    PADDLE_SERVICES,
    SERVICES,
)
from paddlewheel.testkit.kubernetes import run_kubectl
from paddlewheel.testkit.paddleservices import KnativeServing, make_endpoint, make_measured
from paddlewheel.testkit.wait import eventually

GATEWAY = {"GATEWAY": "gateways/main", **SHORT}


def kubectl(harness: ServingServiceHarness, *args: str) -> str:
    done = run_kubectl(harness.backends.kubeconfig, "-n", harness.namespace, *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_one_life_from_manifest_to_last_fact(harness: ServingServiceHarness) -> None:
    await harness.start(**GATEWAY)
    first = await harness.served()
    status = await harness.status(harness.lac)
    assert status["url"] == f"http://lac.{harness.namespace}.example.com"
    await harness.change(default=make_endpoint("2"))
    second = await harness.newest(2)
    assert await harness.traffic() == {first: 100}
    await harness.make_ready(second)
    await harness.wait_traffic({second: 100})
    await harness.change(canary=make_endpoint("3"), canaryTrafficPercent=30)
    third = await harness.newest(3)
    await harness.make_ready(third)
    await harness.wait_traffic({second: 70, third: 30})

    async def without_pods() -> bool:
        deployment = await harness.get(harness.key(first), DEPLOYMENTS)
        return bool(deployment["spec"]["replicas"] == 0)

    await eventually(without_pods, what=f"{first} has no pods")
    await harness.cluster.delete(PADDLE_SERVICES, harness.lac)
    await harness.wait_gone(harness.lac)
    await harness.wait_gone(harness.key(second), DEPLOYMENTS)
    await harness.wait_facts(
        harness.lac,
        "RevisionReady",
        "ServiceReady",
        "RevisionReady",
        "CanaryPromoted",
        "RevisionReady",
        "CanaryStarted",
        "ServiceDeleted",
    )


@pytest.mark.long
async def test_a_restart_at_rest_writes_nothing(
    harness: ServingServiceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddlewheel.operator.outbox.CONFIRM_GRACE_SECONDS", 1.0)
    await harness.start(**GATEWAY)
    first = await harness.served()
    await harness.wait_facts(harness.lac, "RevisionReady", "ServiceReady")

    async def confirmed() -> bool:
        facts = (await harness.status(harness.lac))["announcements"]
        return all(fact["announced"] for fact in facts)

    await eventually(confirmed, what="the facts are confirmed")
    before = await _versions(harness, first)
    await harness.stop()
    await harness.start("replica-1", **GATEWAY)
    # A second service shows when the new process has gone through its list.
    other = await harness.create({**_other(), "metadata": {"name": "other"}})
    await harness.wait_condition(other, "Accepted", "Accepted")
    assert await _versions(harness, first) == before


def _other() -> dict[str, object]:
    return {
        "apiVersion": "elasticserving.paddlepaddle.org/v1",
        "kind": "PaddleService",
        "spec": {"default": make_endpoint("9"), "mode": "Kubernetes"},
    }


async def _versions(harness: ServingServiceHarness, revision: str) -> list[str]:
    objects = [
        await harness.get(harness.lac),
        await harness.get(harness.lac, HTTP_ROUTES),
        await harness.get(harness.key(revision), DEPLOYMENTS),
    ]
    return [str(obj["metadata"]["generation"]) for obj in objects] + [
        str(objects[0]["metadata"]["resourceVersion"])
    ]


@pytest.mark.long
async def test_scale_is_a_subresource_and_makes_no_revision(harness: ServingServiceHarness) -> None:
    await harness.start(**GATEWAY)
    first = await harness.served()
    kubectl(harness, "scale", "paddleservice/lac", "--replicas=2")

    async def scaled() -> bool:
        status = await harness.status(harness.lac)
        deployment = await harness.get(harness.key(first), DEPLOYMENTS)
        return bool(deployment["spec"]["replicas"] >= 1 and len(status["revisions"]) == 1)

    await eventually(scaled, what="lac is scaled")
    scale = json.loads(kubectl(harness, "get", "--raw", _scale_path(harness)))
    assert scale["spec"]["replicas"] == 2
    assert scale["status"]["selector"] == "PaddleService=lac"


def _scale_path(harness: ServingServiceHarness) -> str:
    group = "/apis/elasticserving.paddlepaddle.org/v1"
    return f"{group}/namespaces/{harness.namespace}/paddleservices/lac/scale"


class Gateway:
    """A gateway's figures: as many answers as the test says, each within 40 to 50 ms."""

    def __init__(self) -> None:
        self.lines: dict[str, tuple[int, int]] = {}
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self.server = TestServer(app)

    async def _answer(self, _: web.Request) -> web.Response:
        both = [(name, *each) for name, each in self.lines.items()]
        return web.Response(text="".join(_series(*each) for each in both))

    def count(self, namespace: str, revision: str, ok: int, failed: int = 0) -> None:
        self.lines[f"{namespace}-{revision}-pods-http-80@kubernetesgateway"] = (ok, failed)


def _series(name: str, ok: int, failed: int) -> str:
    counted = f'traefik_service_requests_total{{service="{name}",code='
    bucket = f'traefik_service_request_duration_seconds_bucket{{service="{name}",le='
    below = {"0.04": 0, "0.05": ok + failed, "0.1": ok + failed, "+Inf": ok + failed}
    return f'{counted}"200"}} {ok}\n{counted}"500"}} {failed}\n' + "".join(
        f'{bucket}"{edge}"}} {count}\n' for edge, count in below.items()
    )


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    made = Gateway()
    await made.server.start_server()
    yield made
    await made.server.close()


async def test_a_bad_change_is_rolled_back_by_what_the_gateway_counts(
    harness: ServingServiceHarness, gateway: Gateway
) -> None:
    await harness.start(FIGURES=str(gateway.server.make_url("/metrics")), **GATEWAY)
    first = await harness.served(rollout={"steps": [{"percent": 20, "minSeconds": 1, "minRequests": 10}]})
    gateway.count(harness.namespace, first, 0)
    await harness.change(default=make_endpoint("2"))
    second = await harness.newest(2)
    await harness.make_ready(second)
    await harness.wait_traffic({first: 80, second: 20})

    async def rolled_back() -> bool:
        ok, _ = gateway.lines[f"{harness.namespace}-{first}-pods-http-80@kubernetesgateway"]
        gateway.count(harness.namespace, first, ok + 80)
        gateway.count(harness.namespace, second, (ok + 80) // 5, (ok + 80) // 20)
        return await harness.traffic() == {first: 100}

    await eventually(rolled_back, every=0.5, what="the canary is rolled back")
    condition = await harness.wait_condition(harness.lac, "RolledBack", "TooManyErrors")
    assert "requests failed" in condition["message"]
    figures = (await harness.status(harness.lac))["rollout"]["verdict"]
    assert figures["candidate"]["errors"] > 0
    assert figures["stable"]["errors"] == 0


@pytest.mark.long
async def test_a_good_change_is_promoted(harness: ServingServiceHarness, gateway: Gateway) -> None:
    await harness.start(FIGURES=str(gateway.server.make_url("/metrics")), **GATEWAY)
    first = await harness.served(rollout={"steps": [{"percent": 20, "minSeconds": 1, "minRequests": 10}]})
    await harness.change(default=make_endpoint("2"))
    second = await harness.newest(2)
    await harness.make_ready(second)
    await harness.wait_traffic({first: 80, second: 20})
    total = 0

    async def promoted() -> bool:
        nonlocal total
        total += 100
        gateway.count(harness.namespace, first, total)
        gateway.count(harness.namespace, second, total // 4)
        return await harness.traffic() == {second: 100}

    await eventually(promoted, every=0.5, what="the canary is promoted")


MEASURED = {
    "steps": [{"percent": 20, "minSeconds": 1, "minRequests": 10}],
    "limits": {"metrics": {"accuracy": {"min": 0.9}}},
}


async def _unmeasured(harness: ServingServiceHarness, gateway: Gateway) -> tuple[str, str]:
    """The stable revision, and a canary without fault that waits for a measurement."""
    first = await harness.served(rollout=MEASURED)
    await harness.change(default=make_endpoint("2"))
    second = await harness.newest(2)
    await harness.make_ready(second)
    await harness.wait_traffic({first: 80, second: 20})
    await _until_waiting(harness, gateway, first, second)
    return first, second


async def _until_waiting(harness: ServingServiceHarness, gateway: Gateway, first: str, second: str) -> None:
    """Requests are counted all the time."""

    async def waits() -> bool:
        _count_on(harness, gateway, first, second)
        found = [c for c in (await harness.status(harness.lac))["conditions"] if c["type"] == "Progressing"]
        return [c["reason"] for c in found] == ["MetricMissing"] and "accuracy" in found[0]["message"]

    await eventually(waits, every=0.5, what="the canary waits for its metric")


def _count_on(harness: ServingServiceHarness, gateway: Gateway, first: str, second: str) -> None:
    ok, _ = gateway.lines.get(f"{harness.namespace}-{first}-pods-http-80@kubernetesgateway", (0, 0))
    gateway.count(harness.namespace, first, ok + 80)
    gateway.count(harness.namespace, second, (ok + 80) // 4)


@pytest.mark.long
async def test_a_metric_outside_its_limits_rolls_a_change_back(
    harness: ServingServiceHarness, gateway: Gateway
) -> None:
    await harness.start(FIGURES=str(gateway.server.make_url("/metrics")), **GATEWAY)
    first, second = await _unmeasured(harness, gateway)
    await harness.bus.publish(make_measured(await harness.get(harness.lac), second, accuracy=0.81))
    await harness.wait_traffic({first: 100})
    condition = await harness.wait_condition(harness.lac, "RolledBack", "MetricOutOfLimits")
    assert "accuracy 0.81 is below 0.9 (min)" in condition["message"]
    decided = (await harness.status(harness.lac))["rollout"]["verdict"]["candidate"]
    assert decided["metrics"] == {"accuracy": 0.81}


@pytest.mark.long
async def test_what_was_measured_before_a_kill_lets_the_change_go_on(
    harness: ServingServiceHarness, gateway: Gateway
) -> None:
    settings = {"FIGURES": str(gateway.server.make_url("/metrics")), **GATEWAY}
    service = await harness.start_process(**settings)
    first, second = await _unmeasured(harness, gateway)
    await service.kill()
    obj = await harness.get(harness.lac)
    for revision, accuracy in ((second, 0.5), (second, 0.97), (first, 0.1)):
        await harness.bus.publish(make_measured(obj, revision, accuracy=accuracy))
    await harness.start("replica-1", **settings)

    async def promoted() -> bool:
        _count_on(harness, gateway, first, second)
        return await harness.traffic() == {second: 100}

    await eventually(promoted, every=0.5, what="the canary is promoted")

    async def told() -> bool:
        return "CanaryPromoted" in harness.facts(harness.lac)

    await eventually(told, what="the promotion is told")
    assert "CanaryRolledBack" not in harness.facts(harness.lac)


async def test_killed_in_the_middle_of_an_update_it_goes_on(harness: ServingServiceHarness) -> None:
    service = await harness.start_process(**GATEWAY)
    await harness.served()
    await harness.change(default=make_endpoint("2"))
    second = await harness.newest(2)
    await service.kill()
    await harness.make_ready(second)
    await harness.start("replica-1", **GATEWAY)
    await harness.wait_traffic({second: 100})
    await harness.wait_facts(harness.lac, "RevisionReady", "ServiceReady", "RevisionReady", "CanaryPromoted")


SCALED = {"minScale": 1, "maxScale": 3, "metric": "cpu", "target": 50}


async def test_no_child_of_somebody_else_is_used(harness: ServingServiceHarness) -> None:
    await harness.start(**GATEWAY)
    first = await harness.served(service=SCALED)
    for resource in (DEPLOYMENTS, SERVICES, AUTOSCALERS, HTTP_ROUTES):
        children = [key_of(child) for child in await harness.objects(resource)]
        await harness.take_away(harness.lac, resource, children[0])
    # What a revision is made of cannot be changed, not even taken away.
    await harness.cluster.delete(PADDLE_SERVICES, harness.lac)
    await harness.wait_gone(harness.key(first), CONTROLLER_REVISIONS)
    metadata = {"namespace": harness.namespace, "name": first}
    await harness.cluster.create(
        CONTROLLER_REVISIONS, {"metadata": metadata, "revision": 1, "data": {"of": "another"}}
    )
    await harness.apply(mode="Kubernetes", service=SCALED)
    blocked = await harness.wait_condition(harness.lac, "Blocked", "OwnedByAnother")
    assert f"ControllerRevision {harness.namespace}/{first}" in blocked["message"]


@pytest.mark.long
@pytest.mark.usefixtures("knative")
async def test_knatives_revisions_are_limited_and_go_when_they_are_old(
    harness: ServingServiceHarness,
) -> None:
    for resource in (KNATIVE_SERVICES, KNATIVE_REVISIONS):
        await install(harness.cluster, resource)
    await harness.start(**GATEWAY)
    await harness.apply(mode="Knative", revisionHistoryLimit=0)
    played = KnativeServing(harness.cluster, harness.lac)
    first = await harness.newest(1)
    await _serve(harness, played, first)
    await harness.take_away(harness.lac, KNATIVE_SERVICES, harness.lac)

    await harness.change(service={"maxScale": 7})

    async def is_limited() -> bool:
        revision = await harness.get(harness.key(first), KNATIVE_REVISIONS)
        return bool(revision["metadata"]["annotations"]["autoscaling.knative.dev/maxScale"] == "7")

    await eventually(is_limited, what="the revision has the new limit")
    await harness.change(default=make_endpoint("2"))
    await _serve(harness, played, await harness.newest(2))
    await harness.wait_gone(harness.key(first), KNATIVE_REVISIONS)
    await harness.wait_gone(harness.key(first), CONTROLLER_REVISIONS)
    await harness.change(mode="Kubernetes")
    second = await harness.newest(2)
    await eventually(lambda: harness.exists(harness.key(second), DEPLOYMENTS))
    await harness.make_ready(second)
    await harness.route()
    await harness.wait_gone(harness.lac, KNATIVE_SERVICES)


async def _serve(harness: ServingServiceHarness, played: KnativeServing, revision: str) -> None:
    """Until all requests go to it, which Knative has said too."""

    async def serves() -> bool:
        with suppress(NotFound):
            await played.make_ready(revision)
            # Asked first: what the controller writes after the route was played, nobody would play.
            wanted = await played.traffic()
            await played.route()
            return wanted == {revision: 100}
        return False

    await eventually(serves, what=f"Knative leads all requests to {revision}")


@pytest.mark.long
@pytest.mark.usefixtures("knative")
async def test_knative_appears_serves_and_goes(harness: ServingServiceHarness) -> None:
    await harness.start(**GATEWAY)
    await harness.apply()
    first = await harness.newest(1)
    await harness.make_ready(first)
    await harness.route()
    await harness.wait_status(harness.lac, {"mode": "Kubernetes"})
    for resource in (KNATIVE_SERVICES, KNATIVE_REVISIONS):
        await install(harness.cluster, resource)
    await harness.wait_condition(harness.lac, "EngineReady", "SwitchingEngine")
    played = KnativeServing(harness.cluster, Key(harness.namespace, "lac"))

    async def exists() -> bool:
        return await harness.exists(harness.lac, KNATIVE_SERVICES)

    await eventually(exists, what="Knative's Service")
    assert await harness.exists(harness.key(first), DEPLOYMENTS)
    await played.make_ready(first)
    await played.route()
    await harness.wait_status(harness.lac, {"mode": "Knative"})
    await harness.wait_gone(harness.key(first), DEPLOYMENTS)
    assert await played.traffic() == {first: 100}
    await asyncio.gather(
        *(uninstall(harness.cluster, resource) for resource in (KNATIVE_SERVICES, KNATIVE_REVISIONS))
    )
    await harness.wait_status(harness.lac, {"mode": "Kubernetes"})
    await harness.make_ready(first)
    await harness.route()
    await harness.wait_condition(harness.lac, "Ready", "Serving")
