"""The first objects of a new cluster: RBAC for its DNS, and the nodes simulated by kwok."""

from __future__ import annotations

from typing import Any

from paddlewheel.devcluster.api import AdminApi
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.state import ClusterRecord

DNS_USER = "system:paddlewheel-dns"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def create_objects(api: AdminApi, record: ClusterRecord) -> bool:
    """Create whatever does not exist yet; returns True.

    Raises:
        Retry: Unreachable, or Refused (a new API server may not have created its own roles yet).
    """
    api.create(f"{_RBAC}/clusterroles", _dns_role())
    api.create(f"{_RBAC}/clusterrolebindings", _dns_binding())
    for name in fake_node_names(record.spec):
        api.create("/api/v1/nodes", fake_node(name))
    return True


def fake_node_names(spec: ClusterSpec) -> tuple[str, ...]:
    """Names of the nodes simulated by kwok."""
    return tuple(f"{spec.name}-fake-{number}" for number in range(1, spec.fake_nodes + 1))


def _dns_role() -> dict[str, Any]:
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    return {"kind": "ClusterRole", "metadata": {"name": DNS_USER}, "rules": rules}


def _dns_binding() -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": DNS_USER},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": DNS_USER},
        "subjects": [{"apiGroup": group, "kind": "User", "name": DNS_USER}],
    }


def fake_node(name: str) -> dict[str, Any]:
    """A node with 32 cores that exists only in the API."""
    capacity = {"cpu": "32", "memory": "256Gi", "pods": "256"}
    labels = {
        "type": "kwok",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/role": "agent",
    }
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": capacity, "capacity": capacity},
    }
