"""job-controller on an API server that is killed, calls a webhook that fails, and deletes a thousand jobs."""

from __future__ import annotations

import asyncio
import base64
import math
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.integration.job_controller.conftest import JobServiceHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.devcluster.certs import Authority
from paddlewheel.devcluster.cluster import Cluster
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import CONFIG_MAPS, PADDLE_JOBS, PODS, SERVICES, Object, Resource
from paddlewheel.operator.concurrency import gather_bounded
from paddlewheel.testkit.kubernetes import install, kill_api_server, own_control_plane
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
WATCHED = {"paddlepaddle.org/paddlejob": "watched"}
"""Label of the pods that the webhook is asked about."""
MANY = 1000
SLOWLY = 400.0
"""Seconds that a thousand jobs may take on a machine that does other things."""


@pytest.fixture(scope="module")
def control_plane(test_run: TestRun) -> Iterator[Cluster]:
    """Of these tests alone: others could not work beside them."""
    with own_control_plane(test_run, "jobs") as started:
        yield started


@pytest.fixture(scope="module")
def api_server(control_plane: Cluster, pytestconfig: pytest.Config) -> str:
    crds = pytestconfig.rootpath / "deploy/charts/paddlewheel/files/crds"
    asyncio.run(install(str(control_plane.kubeconfig), crds))
    return str(control_plane.kubeconfig)


def unscheduled(replicas: int) -> dict[str, Any]:
    """A role whose pods no scheduler looks at."""
    return make_role(replicas, schedulerName="nobody")


# A webhook that fails


class FailingWebhook:
    """Answers 500 to every pod that it is asked about, until it is mended. Counts questions by pod."""

    def __init__(self) -> None:
        self.asked = Counter[str]()
        self.is_broken = True

    async def review(self, request: web.Request) -> web.Response:
        review = await request.json()
        self.asked[review["request"]["name"]] += 1
        if self.is_broken:
            return web.Response(status=500, text="the policy engine is out of memory")
        allowed = {"uid": review["request"]["uid"], "allowed": True}
        return web.json_response({**review, "response": allowed})


@pytest.fixture
async def webhook(
    control_plane: Cluster, cluster: ApiCluster, namespace: str, tmp_path: Path
) -> AsyncIterator[FailingWebhook]:
    """For pods of the job `watched` in the test's namespace; where the API server reaches the host."""
    authority, failing = Authority(tmp_path / "ca", "webhook"), FailingWebhook()
    identity = authority.server("server", "webhook", ["localhost"], [IPv4Address(control_plane.gateway)])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.certificate, identity.key)
    app = web.Application()
    app.router.add_post("/", failing.review)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, control_plane.gateway, 0, ssl_context=context)
    await site.start()
    url = f"https://{control_plane.gateway}:{runner.addresses[0][1]}/"
    bundle = base64.b64encode(authority.identity.certificate.read_bytes()).decode()
    await cluster.create(WEBHOOKS, webhook_configuration(namespace, url, bundle))
    await eventually(lambda: _is_in_force(cluster, namespace), within=90, what="the webhook is called")
    failing.asked.clear()
    yield failing
    await cluster.delete(WEBHOOKS, Key("", namespace))
    await runner.cleanup()


async def _is_in_force(cluster: ApiCluster, namespace: str) -> bool:
    """The API server takes a moment to learn of a webhook."""
    pod = make_paddle_job("probe", namespace)["spec"]["worker"]["template"] | {
        "metadata": {"namespace": namespace, "name": "probe", "labels": WATCHED}
    }
    try:
        await cluster.create(PODS, pod)
    except Retry:
        return True
    await cluster.delete(PODS, Key(namespace, "probe"), grace_seconds=0)
    return False


def webhook_configuration(namespace: str, url: str, bundle: str) -> Object:
    of_pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {
        "name": "pods.policy.example.com",
        "clientConfig": {"url": url, "caBundle": bundle},
        "rules": [of_pods],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "objectSelector": {"matchLabels": WATCHED},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "timeoutSeconds": 5,
    }
    return {"metadata": {"name": namespace}, "webhooks": [hook]}


async def test_a_pod_webhook_that_answers_500_is_named_and_holds_up_no_other_job(
    jobs: JobServiceHarness, webhook: FailingWebhook
) -> None:
    clock = SystemClock()
    await jobs.start()
    began = clock.monotonic()
    key = await jobs.create(make_paddle_job("watched", worker=unscheduled(20)))
    blocked = await jobs.wait_condition(key, "Blocked", "FailedCreate")
    assert "InternalError: " in blocked["message"]
    assert "pods.policy.example.com" in blocked["message"]
    other = await jobs.create(make_paddle_job("other", worker=unscheduled(2)))
    await jobs.wait_pods(other, 2)
    await jobs.set_pods(other, "Running")
    await jobs.wait_phase(other, "Running")
    await jobs.to_end(other)
    # After 1, 2, 4, 8 ... seconds: the tries of a pod grow with the logarithm of the time.
    await eventually(lambda: max(webhook.asked.values()) >= 4, within=90)
    allowed = 2 + math.log2(clock.monotonic() - began + 1)
    assert max(webhook.asked.values()) <= allowed
    assert len(webhook.asked) <= 16, "what refuses so many pods would refuse the others too"
    assert await jobs.pods(key) == []
    shown = await jobs.status(key)
    assert (shown["phase"], shown["reason"], shown["message"]) == (
        "Pending",
        "FailedCreate",
        blocked["message"],
    )

    webhook.is_broken = False
    await jobs.wait_pods(key, 20, within=120)
    await jobs.wait_condition(key, "Blocked", "Recovered")
    warned = {event.reason for event in await jobs.kubernetes_events() if event.type == "Warning"}
    assert warned == {"FailedCreate"}


# Many at once


@pytest.mark.timeout(900)
async def test_a_thousand_jobs_deleted_at_once_go_with_all_they_have_and_hold_up_no_new_one(
    jobs: JobServiceHarness,
) -> None:
    await jobs.start()
    keys = await gather_bounded(jobs.create(_one_of_many(index)) for index in range(MANY))
    await jobs.wait_objects(PODS, MANY, within=SLOWLY)
    await jobs.wait_objects(SERVICES, MANY // 10, within=SLOWLY)

    await gather_bounded(jobs.cluster.delete(PADDLE_JOBS, key) for key in keys)
    fresh = await jobs.create(make_paddle_job("fresh", worker=unscheduled(2)))
    await jobs.wait_pods(fresh, 2, within=SLOWLY)
    await jobs.set_pods(fresh, "Running")
    await jobs.wait_phase(fresh, "Running", within=SLOWLY)
    await jobs.wait_objects(PADDLE_JOBS, 1, within=SLOWLY)
    await jobs.wait_objects(PODS, 2, within=SLOWLY)
    await jobs.wait_objects(SERVICES, 0, within=SLOWLY)

    def all_are_told() -> bool:
        return Counter(jobs.facts())["JobDeleted"] >= MANY

    await eventually(all_are_told, within=SLOWLY)
    assert Counter(jobs.facts())["JobDeleted"] == MANY
    configs = {config["metadata"]["name"] for config in await jobs.objects(CONFIG_MAPS)}
    assert configs <= {"fresh", "kube-root-ca.crt"}
    await jobs.to_end(fresh)


def _one_of_many(index: int) -> Object:
    """Every tenth has a Service and a ConfigMap from the beginning."""
    network = "Service" if index % 10 == 0 else "PodIP"
    return make_paddle_job(f"many-{index}", intranet=network, worker=unscheduled(1))


# The API server is killed: last, for afterwards the controller manager takes a while to lead again


async def test_jobs_survive_kill_9_of_the_api_server(jobs: JobServiceHarness, control_plane: Cluster) -> None:
    """Watches are cut and calls fail at any moment; every pod is made once, and every fact is said once."""
    await jobs.start()
    made: dict[str, set[str]] = {}
    watching = asyncio.create_task(_remember_pods(jobs, made))
    try:
        running = await jobs.to_running("runs")
        jobs_before = len(made)
        keys = [
            await jobs.create(make_paddle_job(f"starts-{i}", cleanPodPolicy="Never", worker=unscheduled(12)))
            for i in range(4)
        ]
        await eventually(lambda: len(made) >= jobs_before + 5, within=90, every=0.005)
        kill_api_server(control_plane)
        await eventually(lambda: _answers(jobs, running), within=90)
        for key in keys:
            await jobs.wait_pods(key, 12)
        await jobs.to_end(running)
        for key in keys:
            await jobs.set_pods(key, "Running")
            await jobs.wait_phase(key, "Running")
            await jobs.to_end(key)
        for key in (running, *keys):
            await jobs.wait_facts(key, "JobAccepted", "JobStarting", "JobRunning", "JobSucceeded")
    finally:
        await end(watching)
    assert len(made) == 2 + 4 * 12
    assert all(len(uids) == 1 for uids in made.values())


async def _answers(jobs: JobServiceHarness, key: Key) -> bool:
    try:
        return await jobs.exists(key)
    except Retry:
        return False


async def _remember_pods(jobs: JobServiceHarness, made: dict[str, set[str]]) -> None:
    async for change in jobs.cluster.watch(PODS, jobs.namespace):
        meta = change.obj["metadata"]
        made.setdefault(meta["name"], set()).add(meta["uid"])
