"""Jobs in queues of the real Kueue, beside a real API server; the test plays the kubelets.

Kueue runs without its webhooks, which need a Service: only its defaults and its refusals are lost.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.integration.job_controller.conftest import JobServiceHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import AlreadyExists
from paddlewheel.core.sockets import free_ports
from paddlewheel.devcluster.binaries import KUEUE, data_file, ensure
from paddlewheel.devcluster.certs import Authority
from paddlewheel.kube import connect
from paddlewheel.kube.ports import (
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    SECRETS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Object,
    Resource,
)
from paddlewheel.testkit.kubernetes import install
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
"""The first run builds Kueue."""

HOME, CERTIFICATE, SERVICE = "kueue-system", "kueue-webhook-server-cert", "kueue-webhook-service"
HOOKS = "admissionregistration.k8s.io"
VALIDATING = Resource(
    HOOKS, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
)
MUTATING = Resource(
    HOOKS, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
)
CLUSTER_QUEUES = Resource("kueue.x-k8s.io", "v1beta1", "clusterqueues", "ClusterQueue", namespaced=False)
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue")
QUEUE = "training"
EXPECTED: tuple[tuple[Resource, Object], ...] = (
    (NAMESPACES, {"name": HOME}),
    (SECRETS, {"name": CERTIFICATE, "namespace": HOME}),
    (VALIDATING, {"name": "kueue-validating-webhook-configuration"}),
    (MUTATING, {"name": "kueue-mutating-webhook-configuration"}),
)
"""Kueue looks for it before it starts; its configurations of webhooks name none."""


@pytest.fixture(scope="session")
def kueue(api_server: str, test_run: TestRun) -> None:
    """Kueue runs until the end of the test run."""

    def start(folder: Path) -> Mapping[str, object]:
        program = ensure((KUEUE,), lambda _text, _share: None).path("kueue")
        asyncio.run(prepare(api_server))
        config = write_config(folder, *free_ports(2))
        command = (str(program), "--config", str(config), "--kubeconfig", api_server)
        address = json.loads(config.read_text())["health"]["healthProbeBindAddress"]
        gates = "--feature-gates=VisibilityOnDemand=false"
        test_run.spawn((*command, gates), folder / "kueue.log", lambda: is_ready(address))
        return {}

    test_run.share("kueue", start)


async def prepare(kubeconfig: str) -> None:
    await install(kubeconfig, data_file(KUEUE).parent)
    async with await connect(kubeconfig) as cluster:
        for resource, metadata in EXPECTED:
            try:
                await cluster.create(resource, {"metadata": metadata})
            except AlreadyExists:
                continue


def write_config(folder: Path, port: int, health: int) -> Path:
    """JSON is YAML."""
    certificates = folder / "certificates"
    Authority(certificates, "kueue").server("tls", SERVICE, [f"{SERVICE}.{HOME}.svc"], ())
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "kind": "Configuration",
        "namespace": HOME,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": SERVICE,
            "webhookSecretName": CERTIFICATE,
        },
        "integrations": {
            "frameworks": ["batch/job"],
            "externalFrameworks": ["PaddleJob.v1.batch.paddlepaddle.org"],
        },
    }
    path = folder / "kueue.json"
    path.write_text(json.dumps(config))
    return path


def is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def make_queue(jobs: JobServiceHarness, cpu: int) -> Key:
    """A queue of the test's namespace, with so many cores of a flavor of its own."""
    name, cluster = jobs.namespace, jobs.cluster
    flavor = {
        "nodeLabels": {"capacity": name},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
    }
    await cluster.create(RESOURCE_FLAVORS, {"metadata": {"name": name}, "spec": flavor})
    quota = {"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    whole = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        "resourceGroups": groups,
    }
    await cluster.create(CLUSTER_QUEUES, {"metadata": {"name": name}, "spec": whole})
    metadata = {"name": QUEUE, "namespace": name}
    await cluster.create(LOCAL_QUEUES, {"metadata": metadata, "spec": {"clusterQueue": name}})
    return Key("", name)


def queued_job(name: str, **spec: Any) -> Object:
    """Two workers of two cores each."""
    container = {"name": "main", "image": "example/train:1", "resources": {"requests": {"cpu": "2"}}}
    # No kubelet confirms here that a pod has ended.
    worker = make_role(2, containers=[container], terminationGracePeriodSeconds=0)
    job = make_paddle_job(name, **{"cleanPodPolicy": "Always", "worker": worker, **spec})
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": QUEUE}
    return job


async def to_running(jobs: JobServiceHarness, key: Key) -> None:
    await jobs.wait_pods(key, 2)
    await jobs.set_pods(key, "Running")
    await jobs.wait_phase(key, "Running")


async def workload_of(jobs: JobServiceHarness, key: Key) -> Object:
    return await jobs.get(jobs.key(f"paddlejob-{key.name}"), WORKLOADS)


@pytest.mark.usefixtures("kueue")
async def test_the_second_of_two_jobs_runs_when_the_first_has_given_its_quota_back(
    jobs: JobServiceHarness,
) -> None:
    await make_queue(jobs, cpu=4)
    await jobs.start()
    first = await jobs.create(queued_job("first"))
    await to_running(jobs, first)
    pod = await jobs.get(jobs.key("first-worker-0"), PODS)
    assert pod["spec"]["nodeSelector"] == {"capacity": jobs.namespace}
    assert "spot" in [each["key"] for each in pod["spec"]["tolerations"]]

    second = await jobs.create(queued_job("second"))

    async def is_told() -> bool:
        status = await jobs.status(second)
        return status["reason"] == "WaitingInQueue" and "4 more needed" in status["message"]

    await eventually(is_told, what="the second job says what it waits for")
    assert await jobs.pods(second) == []
    await jobs.to_end(first)
    await to_running(jobs, second)
    await jobs.wait_gone(jobs.key("paddlejob-first"), WORKLOADS)
    await jobs.to_end(second)
    begun = ("JobAccepted", "JobGated", "JobStarting", "JobRunning")
    await jobs.wait_facts(second, *begun, "JobSucceeded")


@pytest.mark.usefixtures("kueue")
async def test_a_job_whose_queue_is_drained_ends_its_pods_and_comes_again(jobs: JobServiceHarness) -> None:
    queue = await make_queue(jobs, cpu=4)
    await jobs.start()
    key = await jobs.create(queued_job("drained"))
    await to_running(jobs, key)
    before = (await workload_of(jobs, key))["metadata"]["uid"]
    await jobs.cluster.patch(CLUSTER_QUEUES, queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    await jobs.wait_pods(key, 0)

    async def has_no_quota() -> bool:
        return not (await workload_of(jobs, key))["status"].get("admission")

    await eventually(has_no_quota, what="the quota is given back")
    waits = await jobs.wait_condition(key, "Admitted", "WaitingInQueue")
    assert waits["status"] == "False"

    await jobs.cluster.patch(CLUSTER_QUEUES, queue, {"spec": {"stopPolicy": "None"}})
    await to_running(jobs, key)
    status = await jobs.status(key)
    assert (status["epoch"], status["restarts"]) == (1, {"EvictedByQueue": 1})
    assert (await workload_of(jobs, key))["metadata"]["uid"] == before, "it has kept its place"
    await jobs.to_end(key)


@pytest.mark.usefixtures("kueue")
async def test_a_job_of_higher_priority_takes_the_place_of_another_which_comes_again(
    jobs: JobServiceHarness,
) -> None:
    queue = await make_queue(jobs, cpu=4)
    preemption = {"withinClusterQueue": "LowerPriority"}
    await jobs.cluster.patch(CLUSTER_QUEUES, queue, {"spec": {"preemption": preemption}})
    urgent = f"{jobs.namespace}-urgent"
    await jobs.cluster.create(WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": urgent}, "value": 100})
    await jobs.start()
    first = await jobs.create(queued_job("first"))
    await to_running(jobs, first)

    job = queued_job("second")
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = urgent
    second = await jobs.create(job)
    await to_running(jobs, second)
    assert await jobs.pods(first) == []

    async def says_why() -> bool:
        status = await jobs.status(first)
        return bool(status["restarts"] == {"EvictedByQueue": 1} and status["reason"] == "WaitingInQueue")

    await eventually(says_why, what="the first job counts its eviction and waits")
    await jobs.to_end(second)
    await to_running(jobs, first)
    assert (await jobs.status(first))["epoch"] == 1
    await jobs.to_end(first)


@pytest.mark.usefixtures("kueue")
async def test_the_class_of_its_pods_gives_a_job_its_priority_and_its_workload_is_its_own(
    jobs: JobServiceHarness,
) -> None:
    await make_queue(jobs, cpu=4)
    urgent = f"{jobs.namespace}-pods"
    await jobs.cluster.create(PRIORITY_CLASSES, {"metadata": {"name": urgent}, "value": 70})
    await jobs.start()
    job = queued_job("urgent")
    job["spec"]["worker"]["template"]["spec"]["priorityClassName"] = urgent
    key = await jobs.create(job)
    await to_running(jobs, key)
    assert (await workload_of(jobs, key))["spec"]["priority"] == 70
    await jobs.take_away(key, WORKLOADS, jobs.key("paddlejob-urgent"))
    await jobs.cluster.delete(PRIORITY_CLASSES, Key("", urgent))


@pytest.mark.usefixtures("kueue")
async def test_a_job_that_grows_is_admitted_anew(jobs: JobServiceHarness) -> None:
    await make_queue(jobs, cpu=6)
    await jobs.start()
    key = await jobs.create(queued_job("grows"))
    await to_running(jobs, key)
    await jobs.cluster.patch(jobs.spec.resource, key, {"spec": {"worker": {"replicas": 3}}})
    await jobs.wait_pods(key, 3)
    admitted = (await workload_of(jobs, key))["status"]["admission"]["podSetAssignments"]
    assert [(each["name"], each["count"]) for each in admitted] == [("worker", 3)]
