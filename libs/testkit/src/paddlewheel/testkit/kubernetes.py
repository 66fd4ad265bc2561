"""A real API server for tests: no kubelet, so a test sets the status of pods by hand."""

from __future__ import annotations

import asyncio
import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import AlreadyExists, NotFound, PaddlewheelError
from paddlewheel.core.tasks import end
from paddlewheel.devcluster.cluster import Cluster, opened, running_cluster, up
from paddlewheel.devcluster.commands import tool
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.kube import connect, ports
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import NAMESPACES, NODES, PODS, Object, Resource
from paddlewheel.testkit.rights import keep
from paddlewheel.testkit.shared import TestRun, kill
from paddlewheel.testkit.wait import eventually, patiently

if TYPE_CHECKING:
    # Takes a second to import, which unit tests should not pay.
    from paddlewheel.kube.api import ApiCluster

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
POLICIES = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False
)
BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    False,
)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
INSTALLED = {resource.kind: resource for resource in (CRDS, POLICIES, BINDINGS)}
REUSED = "PADDLEWHEEL_TEST_KUBECONFIG"
"""Names the kubeconfig of an API server that runs already; saves its start while one works on a test."""


def run_kubectl(
    kubeconfig: str, *arguments: str, stdin: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """The real kubectl, to its end, whether it succeeds or not."""
    command = [tool("kubectl"), "--kubeconfig", kubeconfig, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.fixture(scope="session")
def control_plane(test_run: TestRun) -> Cluster:
    """The test run's control plane: etcd, API server, controller manager, scheduler; no nodes.

    All workers share it. A test that disturbs it starts one of its own (`own_control_plane`).
    """

    def start(_: Path) -> Mapping[str, object]:
        name = test_run.claim_cluster("shared")
        up(ClusterSpec(name=name, control_plane_only=True))
        return {"name": name}

    return opened(str(test_run.share("control-plane", start)["name"]))


@contextmanager
def own_control_plane(run: TestRun, purpose: str, *, strict_owners: bool = False) -> Iterator[Cluster]:
    """One that no other test sees, while the block runs."""
    name = run.claim_cluster(purpose)
    spec = ClusterSpec(name=name, control_plane_only=True, strict_owners=strict_owners)
    with running_cluster(spec) as started:
        try:
            yield started
        finally:
            keep(spec.name)


@pytest.fixture(scope="session")
def api_server(request: pytest.FixtureRequest, test_run: TestRun) -> str:
    """Path of the kubeconfig of a real control plane with this project's CRDs and admission policies."""
    kubeconfig = os.environ.get(REUSED) or str(request.getfixturevalue("control_plane").kubeconfig)

    def install_crds(_: Path) -> Mapping[str, object]:
        crds = request.config.rootpath / "deploy/charts/paddlewheel/files/crds"
        asyncio.run(install(kubeconfig, crds))
        return {}

    test_run.share("crds", install_crds)
    return kubeconfig


def own_servers(purpose: str) -> tuple[Any, Any]:
    """Fixtures of a module whose tests disturb their servers, or what others make there:

    control_plane, api_server = own_servers("outages")
    """

    @pytest.fixture(scope="module")
    def control_plane(test_run: TestRun) -> Iterator[Cluster]:
        with own_control_plane(test_run, purpose) as started:
            yield started

    @pytest.fixture(scope="module")
    def api_server(control_plane: Cluster, pytestconfig: pytest.Config) -> str:
        crds = pytestconfig.rootpath / "deploy/charts/paddlewheel/files/crds"
        asyncio.run(install(str(control_plane.kubeconfig), crds))
        return str(control_plane.kubeconfig)

    return control_plane, api_server


def kill_api_server(started: Cluster) -> None:
    """kill -9; return when it has ended. The control plane's supervisor starts it again after half a second
    and more."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            argv = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argv[0].endswith(b"kube-apiserver") and any(
            str(started.dirs.root).encode() in arg for arg in argv
        ):
            kill(int(entry.name))
            return
    raise LookupError(f"no API server of cluster {started.name} runs")


@pytest.fixture
async def cluster(api_server: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiCluster]:
    """A client with all rights and long time-outs, for servers that do not answer for a moment."""
    for limit in ("CALL_TIMEOUT_SECONDS", "CONNECT_TIMEOUT_SECONDS"):
        monkeypatch.setattr(f"paddlewheel.kube.api.{limit}", 90.0)
    async with await connect(api_server) as connected:
        yield connected


@pytest.fixture
async def namespace(cluster: ApiCluster) -> AsyncIterator[str]:
    """A fresh namespace in which pods may be created; deleted after the test."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    await cluster.create(NAMESPACES, {"metadata": {"name": name}})
    await eventually(lambda: _exists(cluster, SERVICE_ACCOUNTS, Key(name, "default")))
    yield name
    await cluster.delete(NAMESPACES, Key("", name))


@pytest.fixture
async def nodes(cluster: ApiCluster, namespace: str) -> AsyncIterator[list[str]]:
    """Three nodes that the real scheduler takes for real, for pods that tolerate `taint(namespace)` alone."""
    names = [f"node-{uuid.uuid4().hex[:8]}" for _ in range(3)]
    for name in names:
        await _create_node(cluster, name, taint(namespace))
    await eventually(
        lambda: _are_ready(cluster, names), within=90, what="nodes without a taint of Kubernetes"
    )
    heartbeats = asyncio.create_task(_send_heartbeats(cluster, names))
    yield names
    await end(heartbeats)
    for name in names:
        await cluster.delete(NODES, Key("", name))


def taint(namespace: str) -> Object:
    """Keeps the pods of other tests away from a test's nodes."""
    return {"key": "test.paddlepaddle.org/namespace", "value": namespace, "effect": "NoSchedule"}


def toleration(namespace: str) -> Object:
    """The toleration of the taint."""
    return {**taint(namespace), "operator": "Equal"}


HEARTBEAT = 10.0
"""Seconds between a node's heartbeats, as a kubelet's: without them its pods are not ready after 50 s."""


async def _create_node(cluster: ports.Cluster, name: str, taint: Object) -> None:
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    await cluster.create(NODES, {"metadata": metadata, "spec": {"taints": [taint]}})
    await _send_heartbeat(cluster, name)


async def _are_ready(cluster: ports.Cluster, names: Sequence[str]) -> bool:
    """Until Kubernetes has seen the first heartbeat, a taint of its own keeps everything away."""
    found = [await cluster.get(NODES, Key("", name)) for name in names]
    return all(len(node["spec"]["taints"]) == 1 for node in found)


async def _send_heartbeats(cluster: ports.Cluster, names: Sequence[str]) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT)
        for name in names:
            with suppress(PaddlewheelError):
                await _send_heartbeat(cluster, name)


async def _send_heartbeat(cluster: ports.Cluster, name: str) -> None:
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {
        "type": "Ready", "status": "True", "reason": "Test", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }  # fmt: skip
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
    await cluster.patch(NODES, Key("", name), {"status": status}, subresource="status")


async def install(kubeconfig: str, folder: Path) -> None:
    """Create or update every manifest of the folder and wait until the kinds are served."""
    manifests = [doc for path in sorted(folder.glob("*.yaml")) for doc in _documents(path)]
    async with await connect(kubeconfig) as cluster:
        for manifest in manifests:
            await apply(cluster, INSTALLED[manifest["kind"]], manifest)
        keys = [key_of(manifest) for manifest in manifests if manifest["kind"] == CRDS.kind]
        await eventually(lambda: _are_established(cluster, keys))


def _documents(path: Path) -> list[Object]:
    return [doc for doc in yaml.load_all(path.read_text(), yaml.CSafeLoader) if doc]


async def apply(cluster: ports.Cluster, resource: Resource, manifest: Object) -> None:
    """Create or update an object. The call is repeated if the server does not answer in time."""

    async def applied() -> None:
        try:
            await cluster.create(resource, manifest)
        except AlreadyExists:
            await cluster.patch(resource, key_of(manifest), manifest)

    await patiently(applied)


async def _are_established(cluster: ports.Cluster, keys: list[Key]) -> bool:
    crds = [await cluster.get(CRDS, key) for key in keys]
    return all(_is_true(crd, "Established") for crd in crds)


def _is_true(obj: Object, condition: str) -> bool:
    conditions = obj.get("status", {}).get("conditions") or ()
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)


async def _exists(cluster: ports.Cluster, resource: Resource, key: Key) -> bool:
    try:
        await cluster.get(resource, key)
    except NotFound:
        return False
    return True


async def set_pod_status(
    cluster: ports.Cluster,
    key: Key,
    phase: str,
    *,
    ready: bool | None = None,
    ip: str = "",
    exit_code: int | None = None,
    message: str = "",
) -> Object:
    """Play the kubelet for one pod.

    Args:
        phase: Pending, Running, Succeeded or Failed.
        ready: whether the pod and all containers are ready; None = only in phase Running.
        ip: `status.podIP`; "" = none.
        exit_code: exit code of all containers; None = 0 for Succeeded, 1 for Failed.
        message: the termination message of all containers.
    """
    pod = await cluster.get(PODS, key)
    is_ready = phase == "Running" if ready is None else ready
    state = _state(phase, exit_code, message)
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": str(is_ready)}],
        "containerStatuses": [
            _container_status(container, is_ready, state) for container in pod["spec"]["containers"]
        ],
    }
    if ip:
        status |= {"podIP": ip, "podIPs": [{"ip": ip}]}
    return await cluster.patch(PODS, key, {"status": status}, subresource="status")


def _container_status(container: Object, ready: bool, state: Object) -> Object:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": ready,
        "restartCount": 0,
        "state": state,
    }


def _state(phase: str, exit_code: int | None, message: str) -> Object:
    if phase == "Pending":
        return {"waiting": {"reason": "ContainerCreating"}}
    if phase == "Running":
        return {"running": {}}
    code = (0 if phase == "Succeeded" else 1) if exit_code is None else exit_code
    return {
        "terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "message": message}
    }
