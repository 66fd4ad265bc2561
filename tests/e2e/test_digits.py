"""User stories on a real cluster: from PNG files to a trained model, with and without faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.e2e.health import warnings_in

from paddlewheel.bus.ports import Delivery
from paddlewheel.cli.demo.digits import ACCESS_KEY, JOB, NAMESPACE, SAMPLE_SET, SECRET_KEY
from paddlewheel.cli.demo.model import FULL_DIGITS, DemoOptions, Outcome
from paddlewheel.cli.demo.run import run_workload
from paddlewheel.cli.demo.view import SilentView
from paddlewheel.cli.install import SYSTEM_NAMESPACE
from paddlewheel.cli.portforward import port_forward
from paddlewheel.cli.target import Target
from paddlewheel.cli.tools import run
from paddlewheel.contracts.dataset_names import runtime_name
from paddlewheel.contracts.generated.cache_v1 import RunEnded, RunStarted
from paddlewheel.contracts.generated.jobs_v1 import JobStarting
from paddlewheel.testkit.faults import kill_program

pytestmark = pytest.mark.timeout(900)

RUNTIME = runtime_name(NAMESPACE, SAMPLE_SET, SYSTEM_NAMESPACE)


class Fault:
    """Injects a fault once, at the first fact selected by `when`."""

    def __init__(self, when: Callable[[Delivery], bool], break_it: Callable[[], Awaitable[object]]) -> None:
        self._when = when
        self._break_it = break_it
        self._task: asyncio.Future[datetime] | None = None
        self._warmup_ended: datetime | None = None

    def hear(self, delivery: Delivery) -> None:
        data = delivery.event.data
        if isinstance(data, RunEnded) and data.operation == "warmup":
            self._warmup_ended = delivery.event.time
        if self._task is None and self._when(delivery):
            self._task = asyncio.ensure_future(self._act())

    async def _act(self) -> datetime:
        await self._break_it()
        return datetime.now(UTC)

    async def happened(self) -> datetime:
        """Time of the injection."""
        assert self._task is not None, "the fault was never injected"
        return await self._task

    async def hit_the_warmup(self) -> bool:
        """Whether the warmup was still running after the fault."""
        broken = await self.happened()
        return self._warmup_ended is not None and broken < self._warmup_ended


def warmup_has_begun(delivery: Delivery) -> bool:
    data = delivery.event.data
    return isinstance(data, RunStarted) and data.operation == "warmup"


async def small_run(where: Target, folder: Path, fault: Fault | None = None, digits: int = 300) -> Outcome:
    options = DemoOptions(digits=digits, epochs=1, model_out=folder, serves=fault is None)
    hear = fault.hear if fault else None
    outcome = await run_workload(options, SilentView(), where, Outcome(), on_fact=hear)
    if fault:
        await fault.happened()
    return outcome


async def test_digits_are_trained_to_a_model(paddlewheel_cluster: Target, tmp_path: Path) -> None:
    outcome = await small_run(paddlewheel_cluster, tmp_path)

    assert outcome.shortfalls == []
    assert outcome.results["epochs"] == 1
    assert outcome.facts_received == outcome.facts_published
    assert any(tmp_path.rglob("*")), "the model is on this machine"
    assert outcome.prediction is not None
    assert outcome.bad_version is not None
    assert outcome.bad_version.reason == "TooManyErrors"
    assert await places(paddlewheel_cluster, NAMESPACE, f"{JOB}-worker-") == await places(
        paddlewheel_cluster, SYSTEM_NAMESPACE, f"{RUNTIME}-"
    ), "worker i runs on the node of partition i"
    assert await warnings_in(paddlewheel_cluster, NAMESPACE, f"{JOB}-worker") == [], (
        "a healthy job has no Warning events"
    )
    assert await kubernetes_as_seen_by(paddlewheel_cluster, f"{RUNTIME}-0") == {
        "credentials": False,
        "secrets": "refused",
    }
    nodes, fetching = await serve_what_a_job_publishes(paddlewheel_cluster, tmp_path)
    assert len(nodes) == REPLICAS
    assert sorted(fetching) == sorted(set(nodes)), "replicas of a node fetch a model once"
    assert await objects_of_the_runtime(paddlewheel_cluster, NAMESPACE) == []
    assert len(await objects_of_the_runtime(paddlewheel_cluster, SYSTEM_NAMESPACE)) == 4


@pytest.mark.long
async def test_digits_are_trained_in_a_restricted_namespace(
    paddlewheel_cluster: Target, tmp_path: Path
) -> None:
    """The bad version of the model is left out: its container has no securityContext."""
    await enforce(paddlewheel_cluster, "restricted")
    try:
        options = DemoOptions(digits=300, epochs=1, model_out=tmp_path, serves=False)
        outcome = await run_workload(options, SilentView(), paddlewheel_cluster, Outcome())
    finally:
        await enforce(paddlewheel_cluster, "privileged")

    assert outcome.shortfalls == []
    assert outcome.results["epochs"] == 1
    assert await objects_of_the_runtime(paddlewheel_cluster, NAMESPACE) == []


async def enforce(where: Target, level: str) -> None:
    """Enforce a level of Pod Security in the demo's namespace."""
    name = {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": level}}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": name}
    await where.tools.run("kubectl", "apply", "-f", "-", stdin=orjson.dumps(manifest))


async def objects_of_the_runtime(where: Target, namespace: str) -> list[str]:
    """The names of its pods, StatefulSet and Service. Secrets are not listed: the chart has some, too."""
    named = ("-l", "app.kubernetes.io/managed-by=dataset-controller", "-o", "name")
    kinds = "pods,statefulsets,services"
    return (await where.tools.run("kubectl", "get", kinds, "-n", namespace, *named)).split()


REPLICAS = 4
REPORT = '{"model": {"uri": "minio://seaweedfs.paddle-demo.svc:8333/digits/model"}}'
PUBLISHES = {
    "apiVersion": "batch.paddlepaddle.org/v1",
    "kind": "PaddleJob",
    "metadata": {"name": "publishes", "namespace": NAMESPACE},
    "spec": {
        "outputModel": {
            "name": "published",
            "version": 1,
            "uri": "minio://seaweedfs.paddle-demo.svc:8333/digits/model",
        },
        "worker": {
            "replicas": 1,
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "paddlewheel/paddle-cpu:dev",
                            "command": ["sh", "-c", f"echo '{REPORT}' > /dev/termination-log"],
                        }
                    ]
                }
            },
        },
    },
}
SERVES = {
    "apiVersion": "elasticserving.paddlepaddle.org/v1",
    "kind": "PaddleService",
    "metadata": {"name": "fetched", "namespace": NAMESPACE},
    "spec": {
        "default": {"model": {"name": "published", "secretRef": {"name": "digits-source"}}},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "service": {"minScale": REPLICAS, "maxScale": REPLICAS},
    },
}


async def serve_what_a_job_publishes(where: Target, folder: Path) -> tuple[list[str], list[str]]:
    """Upload the model, publish it, and serve it: the nodes of all pods, and of those that fetched it."""
    model = next(folder.rglob("*.pdiparams")).parent
    async with port_forward(where.tools, NAMESPACE, "svc/seaweedfs", 8333) as port:
        store = f"minio://{ACCESS_KEY}:{SECRET_KEY}@127.0.0.1:{port}/digits/model/"
        await run(["juicefs", "sync", f"{model}/", store])
    for manifest in (SERVES, PUBLISHES):
        await where.tools.run("kubectl", "apply", "-f", "-", stdin=orjson.dumps(manifest))
    ready = ("paddleservice/fetched", "--for=condition=Ready", "--timeout=240s")
    await where.tools.run("kubectl", "wait", "--namespace", NAMESPACE, *ready)
    pods = await places(where, NAMESPACE, "fetched-")
    fetching = [node for name, node in pods.items() if await has_fetched(where, f"fetched-{name}")]
    return list(pods.values()), fetching


async def has_fetched(where: Target, pod: str) -> bool:
    """Whether this pod has fetched its model, rather than found it on the node."""
    lines = (await where.tools.run("kubectl", "logs", "-n", NAMESPACE, pod)).splitlines()
    [line] = [line for line in lines if "model on disk" in line]
    return bool(orjson.loads(line)["fetched"])


ASK_KUBERNETES = """
import json, os, ssl, urllib.error, urllib.request
try:
    url = "https://kubernetes.default.svc/api/v1/secrets"
    urllib.request.urlopen(url, context=ssl._create_unverified_context(), timeout=20)
    answer = "given"
except urllib.error.HTTPError as error:
    answer = "refused" if error.code in (401, 403) else str(error)
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
print(json.dumps({"credentials": os.path.exists(folder), "secrets": answer}))
"""


async def kubernetes_as_seen_by(where: Target, pod: str) -> dict[str, Any]:
    """Whether a pod has credentials for the API server, and how the server answers without them."""
    inside = ("python", "-c", ASK_KUBERNETES)
    place = ("-n", SYSTEM_NAMESPACE, pod, "-c", "runtime")
    said = await where.tools.run("kubectl", "exec", *place, "--", *inside)
    return dict(orjson.loads(said))


async def places(where: Target, namespace: str, prefix: str) -> dict[str, str]:
    """Node by index, of the pods with this name prefix."""
    found = orjson.loads(await where.tools.run("kubectl", "get", "pods", "-n", namespace, "-o", "json"))
    pods = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in found["items"]}
    return {name.removeprefix(prefix): node for name, node in pods.items() if name.startswith(prefix)}


@pytest.mark.long
async def test_nats_is_killed_during_the_warmup(paddlewheel_cluster: Target, tmp_path: Path) -> None:
    async def kill() -> None:
        assert paddlewheel_cluster.embedded
        assert kill_program(paddlewheel_cluster.embedded, "nats-server") == 1

    fault = Fault(warmup_has_begun, kill)
    outcome = await small_run(paddlewheel_cluster, tmp_path, fault, FULL_DIGITS)
    assert outcome.shortfalls == []
    assert await fault.hit_the_warmup()


@pytest.mark.long
async def test_agent_pod_is_deleted_during_the_warmup(paddlewheel_cluster: Target, tmp_path: Path) -> None:
    async def delete() -> None:
        await delete_pods(
            paddlewheel_cluster, SYSTEM_NAMESPACE, f"statefulset.kubernetes.io/pod-name={RUNTIME}-1"
        )

    fault = Fault(warmup_has_begun, delete)
    outcome = await small_run(paddlewheel_cluster, tmp_path, fault, FULL_DIGITS)
    assert outcome.shortfalls == []
    assert await fault.hit_the_warmup()


@pytest.mark.long
async def test_job_controller_is_killed_while_the_job_starts(
    paddlewheel_cluster: Target, tmp_path: Path
) -> None:
    async def delete() -> None:
        await delete_pods(paddlewheel_cluster, SYSTEM_NAMESPACE, "app.kubernetes.io/name=job-controller")

    fault = Fault(lambda delivery: isinstance(delivery.event.data, JobStarting), delete)
    outcome = await small_run(paddlewheel_cluster, tmp_path, fault)
    assert outcome.shortfalls == []


async def delete_pods(where: Target, namespace: str, selector: str) -> None:
    """Delete at once, without a grace period."""
    now = ("--grace-period=0", "--force", "--wait=false")
    await where.tools.run("kubectl", "delete", "pods", "-n", namespace, "-l", selector, *now)
