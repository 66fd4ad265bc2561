"""What pods of a real kubelet see of a mount that is not there yet, that dies, and that comes back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.devcluster.test_nodes import Kubectl, make_pod, with_mount

from dataset_controller.domain.sampleset.render import mount_parent, mount_path
from paddlewheel.devcluster.cluster import Cluster
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

UID = "lost-mounts"
STORE = "/var/lib/lost-mounts"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def kubectl(two_nodes: Cluster) -> Kubectl:
    return Kubectl(two_nodes)


def make_agent(node: str) -> dict[str, Any]:
    """With the Python of these tests, and all that it imports."""
    run = f"exec {sys.executable} {Path(__file__).with_name('agent.py')} {mount_path(UID)} /run/state {STORE}"
    script = f"mkdir -p /tmp && {run}"  # JuiceFS has its sockets there
    pod = with_mount(make_pod("mounter", node, script), mount_parent(UID), "Bidirectional")
    folders = {STORE: "DirectoryOrCreate", str(ROOT): "Directory", sys.base_prefix: "Directory"}
    for number, (folder, type_) in enumerate(folders.items()):
        pod["spec"]["volumes"].append({"name": f"own-{number}", "hostPath": {"path": folder, "type": type_}})
        mount = {"name": f"own-{number}", "mountPath": folder}
        pod["spec"]["containers"][0]["volumeMounts"].append(mount)
    return pod


def make_reader(name: str, node: str) -> dict[str, Any]:
    """As a pod with the claim of a data set; a container that ends is started again."""
    pod = make_pod(name, node)
    pod["spec"]["volumes"].append(
        {"name": "data", "hostPath": {"path": mount_path(UID), "type": "Directory"}}
    )
    mount = {"name": "data", "mountPath": "/data", "mountPropagation": "HostToContainer"}
    pod["spec"]["containers"][0]["volumeMounts"].append(mount)
    return pod


def waits_for_the_mount(kubectl: Kubectl, pod: str) -> bool:
    about = f"involvedObject.name={pod},reason=FailedMount"
    events = kubectl("get", "events", "--field-selector", about, "-o", "jsonpath={.items[*].message}")
    return "hostPath type check failed" in events


def reads(kubectl: Kubectl, pod: str) -> bool:
    return kubectl.shell(pod, "cat /data/a 2>&1 || true") == "data\n"


async def test_pods_wait_for_the_mount_and_have_it_again_when_it_comes_back(
    two_nodes: Cluster, kubectl: Kubectl
) -> None:
    node = two_nodes.record.spec.node_names[0]
    kubectl.apply(make_reader("early", node))
    await eventually(lambda: waits_for_the_mount(kubectl, "early"), what="it waits")
    kubectl.run_pod(make_agent(node))
    kubectl("wait", "pod/early", "--for=condition=Ready", "--timeout=80s")
    kubectl.shell("early", "echo data > /data/a")

    kubectl.shell("mounter", "pkill -KILL juicefs")
    await eventually(lambda: reads(kubectl, "early"), what="it reads again, from a new client")

    kubectl("delete", "pod", "mounter", "--wait")
    assert "Transport endpoint is not connected" in kubectl.shell("early", "cat /data/a 2>&1 || true")
    kubectl.apply(make_reader("late", node))
    await eventually(lambda: waits_for_the_mount(kubectl, "late"), what="it waits")
    kubectl.run_pod(make_agent(node))
    await eventually(lambda: reads(kubectl, "early"), what="it reads again, from another agent")
    kubectl("wait", "pod/late", "--for=condition=Ready", "--timeout=80s")
    assert reads(kubectl, "late")
