"""Real pods on two nodes of one machine: they run, communicate and are isolated.

The pods run the pause image with the machine's own /usr mounted, so that they have a shell and Python without
building an image.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paddlewheel.devcluster import binaries, cgroups, namespace
from paddlewheel.devcluster.cluster import Cluster, up
from paddlewheel.devcluster.image_archive import write_pause_archive
from paddlewheel.devcluster.namespace import Namespace
from paddlewheel.testkit.kubernetes import run_kubectl
from paddlewheel.testkit.shared import kill as end_process
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

SHARED = "/var/lib/paddlewheel/mnt"
FOREVER = "trap exit TERM; while :; do sleep 1; done"
SYSTEM_FOLDERS = {
    "/usr": "/usr",
    "/lib": "/usr/lib",
    "/lib64": "/usr/lib64",
    "/bin": "/usr/bin",
    "/sbin": "/usr/sbin",
}


class Kubectl:
    """The real kubectl, for one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._kubeconfig = str(cluster.kubeconfig)

    def __call__(self, *arguments: str, text: str = "") -> str:
        done = run_kubectl(self._kubeconfig, *arguments, stdin=text, timeout=90)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        self("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("get", kind, name, "-o", "json"))
        return found

    def run_pod(self, pod: dict[str, Any]) -> None:
        self.apply(pod)
        self("wait", f"pod/{pod['metadata']['name']}", "--for=condition=Ready", "--timeout=60s")

    def shell(self, pod: str, script: str) -> str:
        return self("exec", pod, "--", "sh", "-c", script)


def make_pod(name: str, node: str, script: str = FOREVER, **labels: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "paddlewheel/pause:dev",
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [
            {"name": f"v{i}", "mountPath": p, "readOnly": True} for i, p in enumerate(SYSTEM_FOLDERS)
        ],
    }
    volumes = [{"name": f"v{i}", "hostPath": {"path": p}} for i, p in enumerate(SYSTEM_FOLDERS.values())]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": volumes,
        },
    }


def with_mount(pod: dict[str, Any], host_path: str, propagation: str = "None") -> dict[str, Any]:
    source = {"name": "shared", "hostPath": {"path": host_path, "type": "DirectoryOrCreate"}}
    mount = {"name": "shared", "mountPath": host_path, "mountPropagation": propagation}
    pod["spec"]["volumes"].append(source)
    pod["spec"]["containers"][0]["volumeMounts"].append(mount)
    return pod


def make_gate(name: str, node: str, url: str) -> dict[str, Any]:
    """Asks at this URL, as pods of jobs ask job-controller."""
    pod = make_pod(name, node)
    pod["spec"]["restartPolicy"] = "Never"
    pod["spec"]["containers"][0]["command"] = ["/gate", "--ask", url]
    return pod


def make_server(name: str, node: str, script: str) -> dict[str, Any]:
    """Serves the files that the script leaves in /tmp/w, at port 8000."""
    serve = f"mkdir /tmp/w; cd /tmp/w; {script}; exec python3 -m http.server 8000"
    pod = make_pod(name, node, serve, app=name)
    pod["spec"]["volumes"].append({"name": "tmp", "emptyDir": {}})
    pod["spec"]["containers"][0]["volumeMounts"].append({"name": "tmp", "mountPath": "/tmp"})
    return pod


def make_service(name: str, port: int, **fields: Any) -> dict[str, Any]:
    spec = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": port}], **fields}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def fetched(kubectl: Kubectl, pod: str, url: str) -> str:
    code = f"import urllib.request as u; print(u.urlopen('{url}', timeout=5).read().decode(), end='')"
    return kubectl("exec", pod, "--", "python3", "-c", code)


def answers_host(url: str) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=5) as answer:
            return bool(answer.read() == b"served\n")
    except OSError:
        return False


@pytest.fixture(scope="module")
def kubectl(two_nodes: Cluster) -> Kubectl:
    return Kubectl(two_nodes)


@pytest.fixture(scope="module")
def nodes(two_nodes: Cluster) -> tuple[str, str]:
    first, second = two_nodes.record.spec.node_names
    return first, second


@pytest.fixture(scope="module")
def pair(kubectl: Kubectl, nodes: tuple[str, str]) -> tuple[str, str]:
    """One pod with a shell on each node."""
    kubectl.run_pod(make_pod("left", nodes[0], f"echo hello from left; {FOREVER}"))
    kubectl.run_pod(make_pod("right", nodes[1]))
    return "left", "right"


async def test_logs_are_read_from_the_node(kubectl: Kubectl, pair: tuple[str, str]) -> None:
    await eventually(lambda: kubectl("logs", pair[0]) == "hello from left\n")


def test_exec_runs_a_command_in_a_pod(kubectl: Kubectl, pair: tuple[str, str]) -> None:
    assert kubectl.shell(pair[1], "echo $((6 * 7))") == "42\n"


def test_a_gate_asks_by_name_and_opens_when_the_names_in_the_answer_resolve(
    kubectl: Kubectl, nodes: tuple[str, str]
) -> None:
    kubectl.run_pod(make_server("answers", nodes[0], "echo kubernetes.default.svc late > names"))
    kubectl.apply(make_service("answers", 8000))
    kubectl.apply(make_gate("gate", nodes[1], "http://answers.default.svc/names"))
    kubectl("wait", "pod/gate", "--for=jsonpath={.status.phase}=Running", "--timeout=60s")
    kubectl.apply(make_service("late", 80))
    kubectl("wait", "pod/gate", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")


def test_a_gate_on_the_network_of_its_node_asks_by_address(kubectl: Kubectl, nodes: tuple[str, str]) -> None:
    """There it resolves no name of a Service."""
    kubectl.run_pod(make_server("yes", nodes[0], "touch none"))
    kubectl.apply(make_service("yes", 8000))
    address = kubectl.get("service", "yes")["spec"]["clusterIP"]
    gate = make_gate("host-gate", nodes[1], f"http://{address}/none")
    gate["spec"]["hostNetwork"] = True
    kubectl.apply(gate)
    kubectl("wait", "pod/host-gate", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")


async def test_a_service_is_reachable_from_everywhere(
    kubectl: Kubectl, nodes: tuple[str, str], two_nodes: Cluster, pair: tuple[str, str]
) -> None:
    """From the other node, from its own pod and from the host; by name and by node port."""
    kubectl.run_pod(make_server("web", nodes[1], "echo served > x"))
    kubectl.apply(make_service("web", 8000, type="NodePort"))
    await eventually(lambda: fetched(kubectl, pair[0], "http://web.default.svc/x") == "served\n")
    await eventually(lambda: fetched(kubectl, "web", "http://web.default.svc/x") == "served\n")
    port = kubectl.get("service", "web")["spec"]["ports"][0]["nodePort"]
    for index in range(2):
        url = f"http://{two_nodes.record.addresses.node(index)}:{port}/x"
        await eventually(partial(answers_host, url))


def test_a_mount_propagates_to_pods_of_the_same_node_only(kubectl: Kubectl, nodes: tuple[str, str]) -> None:
    """The cache relies on this: trainers see the mounts of the agent on their node."""
    kubectl.run_pod(with_mount(make_pod("agent", nodes[0]), SHARED, "Bidirectional"))
    kubectl.run_pod(with_mount(make_pod("near", nodes[0]), SHARED, "HostToContainer"))
    kubectl.run_pod(with_mount(make_pod("far", nodes[1]), SHARED, "HostToContainer"))
    kubectl.shell(
        "agent", f"mkdir {SHARED}/set; mount -t tmpfs tmpfs {SHARED}/set; echo data > {SHARED}/set/file"
    )
    assert kubectl.shell("near", f"cat {SHARED}/set/file") == "data\n"
    assert kubectl.shell("far", f"ls {SHARED}") == ""
    assert not Path(SHARED, "set").exists()
    assert f"{SHARED}/set" not in Path("/proc/self/mounts").read_text()


@pytest.mark.parametrize("folder", ["/var/lib/paddlewheel/cache", "/dev/shm/cache"])
def test_two_nodes_do_not_share_a_host_path(folder: str, kubectl: Kubectl, nodes: tuple[str, str]) -> None:
    suffix = folder.strip("/").replace("/", "-")
    kubectl.run_pod(with_mount(make_pod(f"one-{suffix}", nodes[0]), folder))
    kubectl.run_pod(with_mount(make_pod(f"two-{suffix}", nodes[1]), folder))
    kubectl.shell(f"one-{suffix}", f"echo mine > {folder}/file")
    assert kubectl.shell(f"two-{suffix}", f"ls {folder}") == ""
    assert not Path(folder, "file").exists()


def test_a_pod_reaches_the_host_at_the_gateway(
    kubectl: Kubectl, two_nodes: Cluster, pair: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "x").write_text("from the host\n")
    argv = (sys.executable, "-u", "-m", "http.server", "-d", str(tmp_path), "-b", two_nodes.gateway, "0")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().split("port ")[1].split(" ")[0]
        url = f"http://{two_nodes.gateway}:{port}/x"
        fetch = (
            f"python3 -c \"import urllib.request as u; print(u.urlopen('{url}', timeout=5).read().decode())\""
        )
        assert "from the host" in kubectl.shell(pair[0], fetch)
        server.terminate()


def test_kernel_settings_of_the_machine_are_unchanged(
    kernel_before: Mapping[str, str], pair: tuple[str, str]
) -> None:
    assert {name: Path("/proc/sys", name).read_text() for name in kernel_before} == kernel_before


def test_an_image_is_loaded_again_only_after_its_name_was_taken_by_another(
    two_nodes: Cluster, tmp_path: Path
) -> None:
    said: list[str] = []
    first, second = two_nodes.dirs.root / "pause.tar", tmp_path / "other.tar"
    (tmp_path / "program").write_bytes(b"not a program")
    write_pause_archive(tmp_path / "program", second)
    for archive in (first, second, second, first):
        two_nodes.load_image(archive, lambda message, part: said.append(message) if part == 0.0 else None)
    assert [message.split(" on ")[1] for message in said] == ["0 nodes", "2 nodes", "0 nodes", "2 nodes"]


def paddlewheel(*arguments: str) -> Any:
    """The command's JSON output."""
    program = str(Path(sys.executable).with_name("paddlewheel"))
    done = subprocess.run((program, *arguments, "-o", "json"), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_users_own_image_runs_on_every_node(
    two_nodes: Cluster, kubectl: Kubectl, nodes: tuple[str, str], tmp_path: Path
) -> None:
    archive, image = tmp_path / "train.tar", "team/train:1"
    program = binaries.ensure((binaries.PAUSE,), lambda _message, _part: None).path("pause")
    write_pause_archive(program, archive, image)
    loaded = paddlewheel("cluster", "load", str(archive), "--name", two_nodes.name)
    assert loaded == {"cluster": two_nodes.name, "images": [image]}
    row = next(row for row in paddlewheel("images", "list") if row["image"] == image)
    assert row["clusters"] == [two_nodes.name]
    for node in nodes:
        pod = make_pod(f"own-image-{node}", node)
        pod["spec"]["containers"][0] |= {"image": image, "imagePullPolicy": "IfNotPresent"}
        kubectl.run_pod(pod)


def host_processes(inside: Namespace) -> list[int]:
    """Host pids of the processes in a cluster's or node's PID namespace."""
    space = Path(f"/proc/{inside.init}/ns/pid").readlink()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "ns/pid").readlink() == space:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for pid in pids:
        end_process(pid)


def started_at(kubectl: Kubectl, pod: str) -> str:
    states = kubectl.get("pod", pod)["status"]["containerStatuses"]
    return str(states[0]["state"].get("running", {}).get("startedAt", ""))


async def test_a_killed_node_restarts_with_its_pods_and_does_not_affect_the_other(
    two_nodes: Cluster, kubectl: Kubectl, nodes: tuple[str, str], pair: tuple[str, str]
) -> None:
    inside = namespace.find(two_nodes.dirs.node(nodes[0]).plan)
    assert inside is not None
    left, right = started_at(kubectl, "left"), started_at(kubectl, "right")
    kill(host_processes(inside))
    await eventually(lambda: started_at(kubectl, "left") not in ("", left))
    assert kubectl.shell("left", "echo again") == "again\n"
    assert started_at(kubectl, "right") == right


async def test_a_killed_cluster_restarts_with_its_pods(
    two_nodes: Cluster, kubectl: Kubectl, pair: tuple[str, str]
) -> None:
    inside = namespace.find(two_nodes.dirs.plan)
    assert inside is not None
    before = [started_at(kubectl, pod) for pod in pair]
    kill([inside.outer, *host_processes(inside)])
    up(two_nodes.record.spec)
    await eventually(
        lambda: all(started_at(kubectl, p) not in ("", b) for p, b in zip(pair, before, strict=True)),
        within=90,
    )
    assert kubectl.shell("right", "echo again") == "again\n"


def test_nodes_have_separate_cgroups(two_nodes: Cluster, nodes: tuple[str, str]) -> None:
    for hierarchy in cgroups.hierarchies():
        subtree = hierarchy.subtree(two_nodes.record.slot)
        assert {path.name for path in subtree.iterdir() if path.is_dir()} == set(nodes)
