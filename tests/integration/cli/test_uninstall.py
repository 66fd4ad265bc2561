"""`paddlewheel uninstall` on an API server of its own, with the chart installed and no node to run it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from paddlewheel.cli.install import SYSTEM_NAMESPACE
from paddlewheel.cli.uninstall import CRDS, KINDS, delete_all
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import finalizers_of, key_of
from paddlewheel.core.errors import NotFound, Permanent
from paddlewheel.devcluster.cluster import Cluster
from paddlewheel.devcluster.control_plane import control_plane
from paddlewheel.devcluster.state import load_record
from paddlewheel.kube import connect
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import PADDLE_JOBS, PODS, SAMPLE_SETS, Resource
from paddlewheel.testkit.audit import read_log
from paddlewheel.testkit.kubernetes import own_control_plane
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

CHART = Path(__file__).resolve().parents[3] / "deploy" / "charts" / "paddlewheel"
CONTAINER = {"name": "main", "image": "example/train:1"}
JOB = {"worker": {"replicas": 1, "template": {"spec": {"containers": [CONTAINER]}}}}
SET = {"partitions": 1, "source": {"uri": "s3://bucket/folder"}, "secretRef": {"name": "digits"}}
USERS = "example.com/keep"


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


class Installed:
    """An installation, and one job and one data set with finalizers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def install(self) -> None:
        kubeconfig = ("--kubeconfig", str(self.cluster.kubeconfig))
        namespace = ("--namespace", SYSTEM_NAMESPACE, "--create-namespace")
        helm = (program("helm"), "upgrade", "--install", "paddlewheel", str(CHART), *namespace, *kubeconfig)
        subprocess.run(helm, check=True, capture_output=True, timeout=120)

    def uninstall(self, *options: str) -> subprocess.CompletedProcess[str]:
        argv = (program("paddlewheel"), "uninstall", "--cluster", self.cluster.name, *options)
        return subprocess.run(argv, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)

    def create_objects(self) -> None:
        asyncio.run(self._create(PADDLE_JOBS, JOB, "finalizers.paddlepaddle.org"))
        asyncio.run(self._create(SAMPLE_SETS, SET, "paddlepaddle.org/sampleset-digits"))

    async def _create(self, kind: Resource, spec: dict[str, Any], finalizer: str) -> None:
        metadata = {"name": "digits", "namespace": "default", "finalizers": [USERS, finalizer]}
        async with await connect(str(self.cluster.kubeconfig)) as api:
            await eventually(lambda: self._is_served(api, kind), what=f"{kind.plural} are served")
            await api.create(kind, {"metadata": metadata, "spec": spec})

    async def _is_served(self, api: ApiCluster, kind: Resource) -> bool:
        """Large CRDs take the API server a while."""
        try:
            await api.list(kind)
        except NotFound:
            return False
        return True

    def finalizers(self, kind: Resource) -> list[str]:
        async def read() -> list[str]:
            async with await connect(str(self.cluster.kubeconfig)) as api:
                return list(finalizers_of(await api.get(kind, Key("default", "digits"))))

        return asyncio.run(read())

    async def crds(self) -> set[str]:
        """Kinds whose CRD is installed."""
        async with await connect(str(self.cluster.kubeconfig)) as api:
            there = {key_of(crd).name for crd in await api.list(CRDS)}
        return {kind.kind for kind in KINDS if f"{kind.plural}.{kind.group}" in there}


@pytest.fixture(scope="module")
def installed(test_run: TestRun) -> Iterator[Installed]:
    with own_control_plane(test_run, "uninstall") as cluster:
        made = Installed(cluster)
        made.install()
        made.create_objects()
        yield made


def test_nothing_is_removed_without_a_confirmation(installed: Installed) -> None:
    done = installed.uninstall()
    assert done.returncode == 2
    assert "add --yes" in done.stderr
    assert all(text in done.stderr for text in ("NATS with all stored events", "1 PaddleJob", "1 SampleSet"))
    assert USERS in installed.finalizers(PADDLE_JOBS)


def test_objects_that_cannot_be_deleted_are_named_with_their_finalizers(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddlewheel.cli.uninstall.DELETION_TIMEOUT_SECONDS", 0.5)

    async def delete() -> None:
        async with await connect(str(installed.cluster.kubeconfig)) as api:
            await delete_all(api, SAMPLE_SETS, lambda _text, _part: None)

    with pytest.raises(Permanent, match=rf"default/digits \({USERS}, paddlepaddle\.org/sampleset-digits\)"):
        asyncio.run(delete())


def test_what_stays_is_not_held_by_controllers_that_are_gone(installed: Installed) -> None:
    done = installed.uninstall("--yes", "-o", "json")
    assert done.returncode == 0, done.stderr
    printed = orjson.loads(done.stdout)
    assert (printed["removed"], printed["left"]) == (True, {"PaddleJob": 1, "SampleSet": 1})
    assert installed.finalizers(PADDLE_JOBS) == installed.finalizers(SAMPLE_SETS) == [USERS]
    assert asyncio.run(installed.crds()) == {kind.kind for kind in KINDS}


def test_crds_are_deleted_on_demand_even_after_the_services(installed: Installed) -> None:
    done = installed.uninstall("--yes", "--crds")
    assert done.returncode == 1, done.stderr
    assert "no services were installed" in done.stdout
    assert "error: NotDeleted: left: 1 PaddleJob, 1 SampleSet: finalizers of other programs" in done.stderr
    assert asyncio.run(installed.crds()) == {"PaddleJob", "SampleSet"}


async def test_what_a_service_asks_for_after_its_removal_is_no_lack_of_its_roles(
    installed: Installed,
) -> None:
    """By the audit log of a real API server, which `make rights` compares with the roles."""
    dirs = installed.cluster.dirs
    record = load_record(dirs)
    assert record is not None
    plane = control_plane(dirs, record)
    asking = [f"system:serviceaccount:{home}:job-controller" for home in (SYSTEM_NAMESPACE, "default")]
    for number, account in enumerate(asking):
        kubeconfig = plane.kubeconfig(f"asking-{number}", account, "system:serviceaccounts")
        async with await connect(str(kubeconfig)) as api:
            with pytest.raises(Permanent, match="cannot list resource"):
                await api.list(PODS)
    with dirs.audit_log.open() as lines:
        refused = read_log(lines).refused
    assert [request.user for request in refused if request.resource == "pods"] == asking[1:]
