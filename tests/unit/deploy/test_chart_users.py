"""The rights that the chart adds to Kubernetes' own roles `view`, `edit` and `admin`, for every kind."""

from __future__ import annotations

import pytest

from paddlewheel.contracts.crds import KINDS
from paddlewheel.testkit.charts import services

READ = {"get", "list", "watch"}
WRITE = {"create", "update", "patch", "delete", "deletecollection"}

Rights = dict[tuple[str, str], set[str]]


def rights(role: str) -> Rights:
    """The verbs by API group and resource of all ClusterRoles that Kubernetes adds to `role`."""
    found: Rights = {}
    for manifest in services():
        labels = manifest["metadata"].get("labels", {})
        if labels.get(f"rbac.authorization.k8s.io/aggregate-to-{role}") != "true":
            continue
        assert manifest["kind"] == "ClusterRole"
        for rule in manifest["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def wanted(verbs: set[str], scale: set[str]) -> Rights:
    of_scale = {(kind.group, f"{kind.plural}/scale"): scale for kind in KINDS if kind.scale}
    status = {(kind.group, f"{kind.plural}/status"): {"get"} for kind in KINDS}
    return {(kind.group, kind.plural): verbs for kind in KINDS} | of_scale | status


def test_viewers_read_every_kind_and_write_nothing() -> None:
    assert rights("view") == wanted(READ, {"get"})


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_editors_also_write_every_kind_but_no_status(role: str) -> None:
    assert rights(role) == wanted(READ | WRITE, {"get", "update", "patch"})
