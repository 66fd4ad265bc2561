"""RBAC of each service: a closed list that covers everything its code uses."""

from __future__ import annotations

import ast

import pytest

from paddlewheel.kube import ports as kube
from paddlewheel.kube.ports import Resource
from paddlewheel.testkit.charts import REPOSITORY, Manifest, named, pod_specs, services

GROUP = "batch.paddlepaddle.org"
EVENTS_GROUP = "events.paddlepaddle.org"
SERVING_GROUP = "elasticserving.paddlepaddle.org"
READ = {"get", "list", "watch"}
OWN = {*READ, "create", "patch", "delete"}

Rights = dict[tuple[str, str], set[str]]

RIGHTS: dict[str, Rights] = {
    "job-controller": {
        (GROUP, "paddlejobs"): {*READ, "patch", "delete"},
        (GROUP, "paddlejobs/status"): {"patch"},
        (GROUP, "paddlejobs/finalizers"): {"update"},
        (GROUP, "samplesets"): {"get"},
        ("", "pods"): OWN,
        ("", "pods/log"): {"get"},
        ("", "services"): OWN,
        ("", "configmaps"): OWN,
        ("scheduling.k8s.io", "podgroups"): OWN,
        ("scheduling.volcano.sh", "podgroups"): OWN,
        ("kueue.x-k8s.io", "workloads"): OWN - {"patch"},
        ("kueue.x-k8s.io", "workloads/status"): {"patch"},
        ("kueue.x-k8s.io", "resourceflavors"): {"get"},
        ("kueue.x-k8s.io", "workloadpriorityclasses"): {"get"},
        ("scheduling.k8s.io", "priorityclasses"): {"get"},
        ("", "events"): {"get", "list", "create", "patch"},
    },
    "dataset-controller": {
        (GROUP, "samplesets"): {*READ, "patch"},
        (GROUP, "samplesets/status"): {"patch"},
        (GROUP, "samplesets/finalizers"): {"update"},
        (GROUP, "samplejobs"): {*READ, "patch"},
        (GROUP, "samplejobs/status"): {"patch"},
        (GROUP, "samplejobs/finalizers"): {"update"},
        ("apps", "statefulsets"): OWN,
        ("", "services"): OWN,
        ("", "secrets"): OWN,
        ("", "persistentvolumes"): OWN,
        ("", "persistentvolumeclaims"): OWN,
        ("", "pods"): {*READ, "patch"},
        ("", "nodes"): {*READ, "patch"},
        ("storage.k8s.io", "csidrivers"): READ,
        ("", "events"): {"get", "create", "patch"},
    },
    "serving-controller": {
        (SERVING_GROUP, "paddleservices"): {*READ, "patch"},
        (SERVING_GROUP, "paddleservices/status"): {"patch"},
        (SERVING_GROUP, "paddleservices/finalizers"): {"update"},
        ("discovery.k8s.io", "endpointslices"): {"list", "watch"},
        ("apps", "deployments"): OWN,
        ("apps", "controllerrevisions"): OWN,
        ("", "services"): OWN,
        ("autoscaling", "horizontalpodautoscalers"): OWN,
        ("gateway.networking.k8s.io", "httproutes"): OWN,
        ("serving.knative.dev", "services"): OWN,
        ("serving.knative.dev", "revisions"): {*READ, "patch", "delete"},
        ("", "pods"): {"list", "watch"},
        ("", "events"): {"get", "create", "patch"},
    },
    "trigger-controller": {
        (EVENTS_GROUP, "triggers"): READ,
        (EVENTS_GROUP, "triggers/status"): {"patch"},
        (EVENTS_GROUP, "triggers/finalizers"): {"update"},
        (GROUP, "samplejobs"): {*READ, "create", "delete"},
        (GROUP, "paddlejobs"): {*READ, "create", "delete"},
        ("", "events"): {"get", "create", "patch"},
    },
}
"""Everything a service may do outside its own namespace: a closed list."""


def rights_of(role: Manifest) -> Rights:
    rights: Rights = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                rights.setdefault((group, resource), set()).update(rule["verbs"])
    return rights


def resources_named_in(service: str) -> set[Resource]:
    """Every Resource constant used in the service's code."""
    found: set[Resource] = set()
    for path in (REPOSITORY / "services" / service / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = (
                node.id
                if isinstance(node, ast.Name)
                else node.attr
                if isinstance(node, ast.Attribute)
                else ""
            )
            constant = getattr(kube, name, None)
            if isinstance(constant, Resource):
                found.add(constant)
    return found


SHARES = {"job-controller", "dataset-controller", "serving-controller"}
"""Services whose replicas shard the objects; each replica holds a Lease."""


@pytest.mark.parametrize("service", sorted(RIGHTS))
def test_a_service_has_exactly_these_permissions(service: str) -> None:
    manifests = services()

    assert rights_of(named(manifests, "ClusterRole", f"paddlewheel-{service}")) == RIGHTS[service]
    own = [rights_of(m) for m in manifests if (m["kind"], m["metadata"]["name"]) == ("Role", service)]
    assert own == ([{("coordination.k8s.io", "leases"): OWN}] if service in SHARES else [])


@pytest.mark.parametrize("service", sorted(RIGHTS))
def test_a_service_may_read_every_resource_its_code_uses(service: str) -> None:
    used = {(resource.group, resource.plural) for resource in resources_named_in(service)}

    assert used, "no Resource constants found: has the code moved?"
    assert used <= set(RIGHTS[service])


@pytest.mark.parametrize("service", sorted(RIGHTS))
def test_a_services_account_is_bound_to_its_roles_only(service: str) -> None:
    bindings = [
        (m["roleRef"]["kind"], m["roleRef"]["name"])
        for m in services()
        if m["kind"].endswith("Binding") and any(s["name"] == service for s in m.get("subjects", []))
    ]

    own = [("Role", service)] if service in SHARES else []
    assert sorted(bindings) == [("ClusterRole", f"paddlewheel-{service}"), *own]


def test_only_the_controllers_have_a_token() -> None:
    holders = [n for n, pod in pod_specs(services()) if pod.get("automountServiceAccountToken", True)]

    assert sorted(holders) == sorted(RIGHTS)
