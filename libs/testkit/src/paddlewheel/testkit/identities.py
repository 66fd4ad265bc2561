"""Services under test have the chart's identities and rights on the test run's API server, not all rights."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from paddlewheel.devcluster.control_plane import control_plane
from paddlewheel.devcluster.state import ClusterDirs, load_record
from paddlewheel.kube import connect, ports
from paddlewheel.kube.ports import Resource
from paddlewheel.testkit.charts import Manifest
from paddlewheel.testkit.kubernetes import REUSED, apply
from paddlewheel.testkit.rights import NAMESPACE, everywhere
from paddlewheel.testkit.shared import TestRun

_GROUP = "rbac.authorization.k8s.io"
_KINDS = {
    "ClusterRole": Resource(_GROUP, "v1", "clusterroles", "ClusterRole", False),
    "ClusterRoleBinding": Resource(_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    "Role": Resource(_GROUP, "v1", "roles", "Role"),
    "RoleBinding": Resource(_GROUP, "v1", "rolebindings", "RoleBinding"),
}
_OF_NAMESPACE = ("Role", "RoleBinding")


async def chart_identities(
    run: TestRun, cluster: ports.Cluster, kubeconfig: str, namespace: str
) -> Mapping[str, str]:
    """Kubeconfigs of the chart's accounts, by the names of their services; what they may do in the namespace
    of the chart, they may do in this one.

    None for an API server that runs already (`REUSED`), whose authority is not ours.
    """
    dirs = ClusterDirs(Path(kubeconfig).parent)
    if os.environ.get(REUSED) or not dirs.is_cluster():
        return {}

    def prepare(_: Path) -> Mapping[str, object]:
        asyncio.run(_install(kubeconfig))
        return _issue(dirs)

    issued = await asyncio.to_thread(run.share, f"identities-{dirs.root.name}", prepare)
    for manifest in _roles(_OF_NAMESPACE):
        metadata = {**manifest["metadata"], "namespace": namespace}
        await cluster.create(_KINDS[manifest["kind"]], {**manifest, "metadata": metadata})
    return {service: str(path) for service, path in issued.items()}


async def _install(kubeconfig: str) -> None:
    async with await connect(kubeconfig) as cluster:
        for manifest in _roles(set(_KINDS) - set(_OF_NAMESPACE)):
            await apply(cluster, _KINDS[manifest["kind"]], manifest)


def _issue(dirs: ClusterDirs) -> Mapping[str, object]:
    record = load_record(dirs)
    assert record is not None, dirs.root
    plane = control_plane(dirs, record)
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
    return {
        name: str(plane.kubeconfig(name, f"system:serviceaccount:{NAMESPACE}:{name}", *groups))
        for name in _accounts()
    }


def _accounts() -> list[str]:
    return sorted({s["name"] for m in _roles(["ClusterRoleBinding"]) for s in m["subjects"]})


def _roles(kinds: Iterable[str]) -> list[Manifest]:
    wanted = set(kinds)
    return [m for m in everywhere() if m["kind"] in wanted]
