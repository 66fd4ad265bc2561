"""Services under test have the chart's identities and rights on the test run's API server, not all rights."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from paddlewheel.devcluster.control_plane import control_plane
from paddlewheel.devcluster.state import ClusterDirs, load_record
from paddlewheel.kube import connect
from paddlewheel.kube.ports import Resource
from paddlewheel.testkit.charts import Manifest
from paddlewheel.testkit.kubernetes import REUSED, apply
from paddlewheel.testkit.rights import NAMESPACE, everywhere, granted
from paddlewheel.testkit.shared import TestRun

_GROUP = "rbac.authorization.k8s.io"
_KINDS = {
    "ClusterRole": Resource(_GROUP, "v1", "clusterroles", "ClusterRole", False),
    "ClusterRoleBinding": Resource(_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
}


async def chart_identities(run: TestRun, kubeconfig: str) -> Mapping[str, str]:
    """Kubeconfigs of the chart's accounts, by the names of their services; what they may do in the namespace
    of the chart, they may do in all: each test has another.

    None for an API server that runs already (`REUSED`), whose authority is not ours.
    """
    dirs = ClusterDirs(Path(kubeconfig).parent)
    if os.environ.get(REUSED) or not dirs.is_cluster():
        return {}

    def prepare(_: Path) -> Mapping[str, object]:
        asyncio.run(_install(kubeconfig))
        return _issue(dirs)

    issued = await asyncio.to_thread(run.share, f"identities-{dirs.root.name}", prepare)
    return {service: str(path) for service, path in issued.items()}


async def _install(kubeconfig: str) -> None:
    async with await connect(kubeconfig) as cluster:
        for manifest in map(_of_cluster, _roles()):
            await apply(cluster, _KINDS[manifest["kind"]], manifest)


def _of_cluster(manifest: Manifest) -> Manifest:
    """A Role goes with its namespace, while the service may still be at work. No name is that of the chart:
    other tests install it, and Helm takes over no objects of others."""
    kind = manifest["kind"]
    made = {**manifest, "kind": f"Cluster{kind.removeprefix('Cluster')}"}
    made["metadata"] = {"name": _name(kind, manifest["metadata"]["name"])}
    if role := manifest.get("roleRef"):
        made["roleRef"] = {**role, "kind": "ClusterRole", "name": _name(role["kind"], role["name"])}
    return made


def _name(kind: str, name: str) -> str:
    if name.startswith("system:"):
        return name
    return f"test-cluster-{name}" if kind.startswith("Cluster") else f"test-{name}"


def _issue(dirs: ClusterDirs) -> Mapping[str, object]:
    record = load_record(dirs)
    assert record is not None, dirs.root
    plane = control_plane(dirs, record)
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
    return {
        name: str(plane.kubeconfig(name, f"system:serviceaccount:{NAMESPACE}:{name}", *groups))
        for name in sorted({right.account for right in granted(everywhere())})
    }


def _roles() -> list[Manifest]:
    wanted = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    return [m for m in everywhere() if m["kind"] in wanted]
