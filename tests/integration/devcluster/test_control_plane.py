"""Control planes on this machine: clean-up, recovery and isolation."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.api import AdminApi
from paddlewheel.devcluster.cluster import Cluster, down, running_cluster, up
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.state import cluster_dirs, clusters_dir
from paddlewheel.devcluster.status import RUNNING, STOPPED, status
from paddlewheel.testkit.kubernetes import run_kubectl
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def make_spec(run: TestRun, purpose: str) -> ClusterSpec:
    return ClusterSpec(name=run.claim_cluster(purpose), control_plane_only=True)


def api_of(cluster: Cluster) -> AdminApi:
    return AdminApi(cluster.dirs, cluster.record)


def create_config_map(cluster: Cluster, name: str) -> None:
    api_of(cluster).create(CONFIG_MAPS, {"metadata": {"name": name}})


def has_config_map(cluster: Cluster, name: str) -> bool:
    return api_of(cluster).get(f"{CONFIG_MAPS}/{name}") is not None


def said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def processes_of(cluster: Cluster) -> list[int]:
    """Host pids of all processes whose command line names the cluster's directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"{cluster.dirs.root}/".encode() in line:
                found.append(int(entry.name))
    return found


@dataclass(frozen=True)
class Traces:
    """Everything of one cluster that is visible on the host."""

    interfaces: tuple[str, ...]
    routes: tuple[str, ...]
    mounts: tuple[str, ...]
    processes: tuple[int, ...]
    files: tuple[Path, ...]


def traces_of(cluster: Cluster) -> Traces:
    interface, root = cluster.record.addresses.interface, str(cluster.dirs.root)
    links = json.loads(said("ip", "-j", "link"))
    return Traces(
        interfaces=tuple(link["ifname"] for link in links if link["ifname"] == interface),
        routes=tuple(line for line in said("ip", "route").splitlines() if f"dev {interface} " in f"{line} "),
        mounts=tuple(line for line in Path("/proc/self/mounts").read_text().splitlines() if root in line),
        processes=tuple(processes_of(cluster)),
        files=tuple(path for path in clusters_dir().iterdir() if cluster.name in path.name),
    )


def kill_everything(cluster: Cluster) -> None:
    for pid in processes_of(cluster):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.fixture(scope="module")
def cluster(test_run: TestRun) -> Iterator[Cluster]:
    with running_cluster(make_spec(test_run, "one")) as running:
        yield running


@pytest.fixture(scope="module")
def other(cluster: Cluster, test_run: TestRun) -> Iterator[Cluster]:
    with running_cluster(make_spec(test_run, "two")) as running:
        yield running


def make_and_lose(run: TestRun) -> Cluster:
    """Run a cluster whose block fails; while it runs, the host has its link but no new nftables rule."""
    rules = said("nft", "list", "ruleset")
    with contextlib.suppress(ZeroDivisionError), running_cluster(make_spec(run, "gone")) as running:
        assert traces_of(running).interfaces
        assert traces_of(running).processes
        assert said("nft", "list", "ruleset") == rules
        raise ZeroDivisionError
    return running


def test_a_cluster_leaves_no_traces_however_its_block_ends(test_run: TestRun) -> None:
    assert traces_of(make_and_lose(test_run)) == Traces((), (), (), (), ())


def test_down_returns_false_for_a_missing_cluster() -> None:
    assert down("never-was") is False


def test_kubectl_works_with_the_kubeconfig(cluster: Cluster) -> None:
    listed = run_kubectl(str(cluster.kubeconfig), "get", "ns", "-o", "name").stdout
    assert "namespace/kube-system" in listed


def test_native_gang_scheduling_is_enabled(cluster: Cluster) -> None:
    kinds = api_of(cluster).get("/apis/scheduling.k8s.io/v1alpha2")
    assert kinds is not None
    assert "PodGroup" in {kind["kind"] for kind in kinds["resources"]}


def test_up_of_a_running_cluster_changes_nothing(cluster: Cluster) -> None:
    before = set(processes_of(cluster))
    assert up(cluster.record.spec).kubeconfig == cluster.kubeconfig
    assert set(processes_of(cluster)) == before


def test_up_with_a_different_spec_is_rejected(cluster: Cluster) -> None:
    with pytest.raises(Permanent, match="cluster down") as caught:
        up(replace(cluster.record.spec, control_plane_only=False, nodes=1))
    assert caught.value.reason == "ClusterDiffers"


def test_status_shows_every_process_ready(cluster: Cluster) -> None:
    seen = status(cluster.name)
    assert seen.state == RUNNING
    assert {process.name for process in seen.processes} == {
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    }
    assert all(process.ready for process in seen.processes)


async def test_a_killed_api_server_is_restarted(cluster: Cluster) -> None:
    create_config_map(cluster, "before")
    server = next(
        pid for pid in processes_of(cluster) if "kube-apiserver" in Path(f"/proc/{pid}/exe").resolve().name
    )
    os.kill(server, signal.SIGKILL)
    await eventually(lambda: api_of(cluster).is_up() and has_config_map(cluster, "before"))


def test_two_clusters_are_isolated_from_each_other(cluster: Cluster, other: Cluster) -> None:
    assert not other.record.addresses.block.overlaps(cluster.record.addresses.block)
    create_config_map(other, "only-here")
    assert has_config_map(other, "only-here")
    assert not has_config_map(cluster, "only-here")


async def test_a_killed_cluster_restarts_with_its_objects(cluster: Cluster, other: Cluster) -> None:
    create_config_map(other, "kept")
    kill_everything(other)
    # SIGKILL is asynchronous: the processes are visible until the kernel has ended them.
    await eventually(lambda: status(other.name).state == STOPPED)
    again = up(other.record.spec)
    assert has_config_map(again, "kept")
    assert again.address == other.address
    assert api_of(cluster).is_up()


@pytest.mark.parametrize("step", ["alias", "addr", "netns"])
async def test_up_recovers_from_an_earlier_up_that_was_killed_midway(test_run: TestRun, step: str) -> None:
    """Right after a command with this word, as it prepares the network; the last lets the cluster go on."""
    spec = make_spec(test_run, f"midway-{step}")
    code = f"""
import os, signal
from paddlewheel.devcluster import network
from paddlewheel.devcluster.cluster import up
from paddlewheel.devcluster.spec import ClusterSpec

def run(command, run=network.run):
    done = run(command)
    if {step!r} in command:
        os.kill(os.getpid(), signal.SIGKILL)
    return done

network.run = run
up(ClusterSpec(name={spec.name!r}, control_plane_only=True))
"""
    try:
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
        if step == "netns":
            await eventually(cluster_dirs(spec.name).status.exists)
        assert api_of(up(spec)).is_up()
    finally:
        down(spec.name)
