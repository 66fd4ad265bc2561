"""Nodes seeded with images that were imported once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paddlewheel.devcluster import image_store
from paddlewheel.devcluster.api import AdminApi
from paddlewheel.devcluster.binaries import CONTAINERD, PAUSE, cache_dir, ensure
from paddlewheel.devcluster.cluster import Cluster, down, ignore, up
from paddlewheel.devcluster.image_archive import write_pause_archive
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def archives(tmp_path: Path) -> list[Path]:
    """Two small images."""
    program = ensure((PAUSE,), ignore).path("pause")
    paths = [tmp_path / f"{name}.tar" for name in ("one", "two")]
    for path in paths:
        write_pause_archive(program, path, f"docker.io/paddlewheel/{path.stem}:dev")
    return paths


@pytest.fixture
def own_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leaves the user's stores alone, but uses the programs that are already built."""
    cache = tmp_path / "cache" / "paddlewheel"
    cache.mkdir(parents=True)
    (cache / "bin").symlink_to(cache_dir() / "bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache / "stores"


STOPS_HALFWAY = """
import pathlib, sys, time
from paddlewheel.devcluster import image_store
from paddlewheel.devcluster.binaries import CONTAINERD, ensure
from paddlewheel.devcluster.cluster import ignore

def report(message, share):
    print(message, flush=True)
    time.sleep(600)

image_store.ensure([pathlib.Path(sys.argv[1])], ensure((CONTAINERD,), ignore), report)
"""


def kill_during_import(archive: Path) -> None:
    """kill -9 a process whose containerd runs and that has not imported the archive yet."""
    argv = (sys.executable, "-c", STOPS_HALFWAY, str(archive))
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith(b"importing")
        finally:
            process.kill()


def run_pod(cluster: Cluster, image: str) -> None:
    container = {"name": "main", "image": f"paddlewheel/{image}:dev", "imagePullPolicy": "Never"}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    AdminApi(cluster.dirs, cluster.record).create(PODS, {"metadata": {"name": image}, "spec": spec})


def is_running(cluster: Cluster, pod: str) -> bool:
    found = AdminApi(cluster.dirs, cluster.record).get(f"{PODS}/{pod}")
    return found is not None and found["status"]["phase"] == "Running"


async def test_a_new_node_runs_images_that_were_never_imported_on_it(
    archives: list[Path], own_stores: Path, test_run: TestRun
) -> None:
    spec = ClusterSpec(name=test_run.claim_cluster("store"), nodes=1)
    said: list[str] = []
    try:
        up(spec, images=archives[:1])
        down(spec.name)
        cluster = up(spec, images=archives)
        for archive in archives:
            cluster.load_image(archive, lambda message, _: said.append(message))
            run_pod(cluster, archive.stem)
        await eventually(lambda: is_running(cluster, "one") and is_running(cluster, "two"))
    finally:
        down(spec.name)
    assert [message for message in said if message.startswith("loading")] == [
        "loading one.tar on 0 nodes",
        "loading two.tar on 0 nodes",
    ]
    assert len(list(own_stores.glob("*/root"))) == 2


def test_a_store_that_a_killed_process_left_unfinished_is_replaced(
    archives: list[Path], own_stores: Path
) -> None:
    kill_during_import(archives[0])
    assert list(own_stores.glob(".new-*/root"))
    store = image_store.ensure(archives, ensure((CONTAINERD,), ignore), ignore)
    assert list(own_stores.glob("*/root")) == [store]
