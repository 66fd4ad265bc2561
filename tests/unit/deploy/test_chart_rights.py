"""RBAC of each service: a closed list that covers everything its code uses."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import pytest
import yaml

from paddlewheel.kube import ports as kube
from paddlewheel.kube.ports import Resource
from paddlewheel.testkit.charts import REPOSITORY, Manifest, named, pod_specs, render, services

GROUP = "batch.paddlepaddle.org"
EVENTS_GROUP = "events.paddlepaddle.org"
SERVING_GROUP = "elasticserving.paddlepaddle.org"
SEE = {"list", "watch"}
READ = {"get", *SEE}
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
        ("", "services"): OWN - {"patch"},
        ("", "configmaps"): OWN,
        ("scheduling.k8s.io", "podgroups"): OWN - {"patch"},
        ("scheduling.volcano.sh", "podgroups"): OWN,
        ("kueue.x-k8s.io", "workloads"): OWN - {"patch"},
        ("kueue.x-k8s.io", "workloads/status"): {"patch"},
        ("", "events"): {"get", "list", "create", "patch"},
    },
    "dataset-controller": {
        (GROUP, "samplesets"): {*READ, "patch"},
        (GROUP, "samplesets/status"): {"patch"},
        (GROUP, "samplejobs"): {*SEE, "patch", "delete"},
        (GROUP, "samplejobs/status"): {"patch"},
        ("apps", "statefulsets"): SEE,
        ("", "services"): SEE,
        ("", "persistentvolumeclaims"): READ,
        ("", "pods"): SEE,
        ("", "events"): {"get", "create", "patch"},
    },
    "serving-controller": {
        (SERVING_GROUP, "paddleservices"): {*READ, "patch"},
        (SERVING_GROUP, "paddleservices/status"): {"patch"},
        (SERVING_GROUP, "paddleservices/finalizers"): {"update"},
        ("discovery.k8s.io", "endpointslices"): SEE,
        ("apps", "deployments"): OWN,
        ("apps", "controllerrevisions"): OWN - {"patch"},
        ("", "services"): OWN,
        ("autoscaling", "horizontalpodautoscalers"): OWN,
        ("gateway.networking.k8s.io", "httproutes"): OWN,
        ("serving.knative.dev", "services"): OWN,
        ("serving.knative.dev", "revisions"): {*READ, "patch", "delete"},
        ("", "pods"): SEE,
        ("", "events"): {"get", "create", "patch"},
    },
    "trigger-controller": {
        (EVENTS_GROUP, "triggers"): {*READ, "patch"},
        (EVENTS_GROUP, "triggers/status"): {"patch"},
        (EVENTS_GROUP, "triggers/finalizers"): {"update"},
        (GROUP, "samplejobs"): {*READ, "create", "delete"},
        (GROUP, "paddlejobs"): {*READ, "create", "delete"},
        ("", "events"): {"get", "create", "patch"},
    },
}
"""Everything a service may do in all namespaces, or in the one that it serves alone: a closed list."""

CLUSTER_RIGHTS: dict[str, Rights] = {
    "job-controller": {
        ("kueue.x-k8s.io", "resourceflavors"): {"get"},
        ("kueue.x-k8s.io", "workloadpriorityclasses"): {"get"},
        ("scheduling.k8s.io", "priorityclasses"): {"get"},
        ("coordination.k8s.io", "leases"): {"get"},
    },
    "dataset-controller": {
        ("", "persistentvolumes"): OWN - {"patch"},
        ("", "nodes"): {*SEE, "patch"},
        ("storage.k8s.io", "csidrivers"): SEE,
    },
}
"""For kinds that are in no namespace, and one Lease; also of a service that serves one namespace alone."""

NAMESPACE_RIGHTS: Rights = {
    ("", "secrets"): {"get", "patch", "delete"},
    ("apps", "statefulsets"): {"delete"},
    ("", "services"): {"delete"},
    ("", "persistentvolumeclaims"): {"create", "patch", "delete"},
    (GROUP, "samplesets/finalizers"): {"update"},
}
"""The rights of dataset-controller in each namespace that is served."""
RUNTIME_RIGHTS: Rights = {
    ("", "secrets"): {"get", "create", "patch", "delete"},
    ("apps", "statefulsets"): OWN,
    ("", "services"): OWN - {"patch"},
    ("", "pods"): {*SEE, "patch"},
}
"""The rights of dataset-controller in the namespace of the release."""
NAMESPACE_ROLE = "paddlewheel-dataset-namespace"
ONE = tuple(f"{name}Controller.namespace=team-a" for name in ("job", "dataset", "trigger", "serving"))
"""Every service serves one namespace."""


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


NODE_LEASES = "paddlewheel-node-leases"
"""Lets job-controller read the Leases of nodes, and nothing else, in kube-node-lease."""
LEASES: Rights = {("coordination.k8s.io", "leases"): OWN}
OWN_ROLES: dict[str, dict[str, Rights]] = {
    "job-controller": {"leases": LEASES},
    "dataset-controller": {"dataset-controller": RUNTIME_RIGHTS, "leases": LEASES},
    "serving-controller": {"leases": LEASES},
}
"""Everything that a service may do in the namespace of the release, by its Roles there."""


@pytest.mark.parametrize("service", sorted(RIGHTS))
def test_a_service_has_exactly_these_permissions(service: str) -> None:
    manifests = services()

    assert rights_of(named(manifests, "ClusterRole", f"paddlewheel-{service}")) == {
        **RIGHTS[service],
        **CLUSTER_RIGHTS.get(service, {}),
    }
    for role, rights in OWN_ROLES.get(service, {}).items():
        assert rights_of(named(manifests, "Role", role)) == rights


@pytest.mark.parametrize("service", sorted(RIGHTS))
def test_a_service_may_read_every_resource_its_code_uses(service: str) -> None:
    used = {(resource.group, resource.plural) for resource in resources_named_in(service)}

    assert used, "no Resource constants found: has the code moved?"
    namespaced = NAMESPACE_RIGHTS if service == "dataset-controller" else {}
    own = OWN_ROLES[service]["leases"] if service == "job-controller" else {}
    assert used <= {*RIGHTS[service], *CLUSTER_RIGHTS.get(service, {}), *namespaced, *own}


@pytest.mark.parametrize("service", sorted(RIGHTS))
def test_a_services_account_is_bound_to_its_roles_only(service: str) -> None:
    bindings = [
        (m["roleRef"]["kind"], m["roleRef"]["name"])
        for m in services()
        if m["kind"].endswith("Binding") and any(s["name"] == service for s in m.get("subjects", []))
    ]

    own = [("Role", role) for role in OWN_ROLES.get(service, {})]
    nodes = [("Role", NODE_LEASES)] if service == "job-controller" else []
    assert sorted(bindings) == [("ClusterRole", f"paddlewheel-{service}"), *own, *nodes]


def test_the_leases_of_nodes_can_be_read_and_not_written() -> None:
    for manifests in (services(), render("paddlewheel", "crds.install=false", *ONE)):
        role, bound = named(manifests, "Role", NODE_LEASES), named(manifests, "RoleBinding", NODE_LEASES)
        assert rights_of(role) == {("coordination.k8s.io", "leases"): {"get", "list"}}
        assert {m["metadata"]["namespace"] for m in (role, bound)} == {"kube-node-lease"}
        assert [subject["name"] for subject in bound["subjects"]] == ["job-controller"]


def test_of_other_leases_only_the_schedulers_can_be_read() -> None:
    for manifests in (services(), render("paddlewheel", "crds.install=false", *ONE)):
        rules = [
            rule
            for m in manifests
            if m["kind"] == "ClusterRole" and "job-controller" in m["metadata"]["name"]
            for rule in m["rules"]
            if "leases" in rule["resources"]
        ]
        assert [rule["resourceNames"] for rule in rules] == [["kube-scheduler"]]


@pytest.mark.parametrize("service", sorted(RIGHTS))
def test_a_service_of_one_namespace_has_a_role_there_and_next_to_nothing_in_the_cluster(
    service: str,
) -> None:
    manifests = render("paddlewheel", "crds.install=false", *ONE)
    role = named(manifests, "Role", f"paddlewheel-{service}")
    assert (role["metadata"]["namespace"], rights_of(role)) == ("team-a", RIGHTS[service])
    bound = named(manifests, "RoleBinding", f"paddlewheel-{service}")
    assert (bound["metadata"]["namespace"], bound["roleRef"]["kind"]) == ("team-a", "Role")
    in_the_cluster = [
        m["roleRef"]["name"]
        for m in manifests
        if m["kind"] == "ClusterRoleBinding" and any(s["name"] == service for s in m["subjects"])
    ]
    assert in_the_cluster == [cluster_role(service)] * (service in CLUSTER_RIGHTS)
    if service in CLUSTER_RIGHTS:
        role = named(manifests, "ClusterRole", cluster_role(service))
        assert rights_of(role) == CLUSTER_RIGHTS[service]


def test_only_in_the_releases_namespace_there_are_rights_to_run_pods() -> None:
    assert named(services(), "Role", "dataset-controller")["metadata"]["namespace"] == "paddle-system"
    elsewhere = {**RIGHTS["dataset-controller"], **NAMESPACE_RIGHTS}
    for kind in (("apps", "statefulsets"), ("", "pods"), ("", "secrets"), ("", "services")):
        assert "create" not in elsewhere[kind]


def test_agents_have_an_account_without_rights() -> None:
    account = named(services(), "ServiceAccount", "cache-runtime")
    assert account["automountServiceAccountToken"] is False
    bound = [m for m in services() if m["kind"].endswith("Binding") and "cache-runtime" in str(m["subjects"])]
    assert bound == []


def test_a_namespace_is_served_only_where_it_is_bound() -> None:
    assert rights_of(named(services(), "ClusterRole", NAMESPACE_ROLE)) == NAMESPACE_RIGHTS
    assert bindings_of(services()) == []
    two = render("paddlewheel", "crds.install=false", "datasetController.namespaces={team-a,team-b}")
    assert bindings_of(two) == [("RoleBinding", "team-a"), ("RoleBinding", "team-b")]
    alone = render("paddlewheel", "crds.install=false", *ONE)
    assert bindings_of(alone) == [("RoleBinding", "team-a")]
    everywhere = render("paddlewheel", "crds.install=false", "datasetController.namespaces={*}")
    assert bindings_of(everywhere) == [("ClusterRoleBinding", "")]


def test_attack_no_service_can_list_or_watch_secrets() -> None:
    for manifests in (services(), render("paddlewheel", "crds.install=false", *ONE)):
        rights = [rights_of(m).get(("", "secrets"), set()) for m in manifests if m["kind"].endswith("Role")]
        assert not {"list", "watch", "*"} & set().union(*rights)


def test_the_demos_namespace_is_served_as_the_chart_would() -> None:
    rendered = render("paddlewheel", "crds.install=false", "datasetController.namespaces={paddle-demo}")
    wanted = named(rendered, "RoleBinding", "paddlewheel-dataset-controller")
    written = yaml.safe_load((REPOSITORY / "examples/digits/access.yaml").read_text())
    assert (written["roleRef"], written["subjects"]) == (wanted["roleRef"], wanted["subjects"])
    assert written["metadata"]["namespace"] == wanted["metadata"]["namespace"]
    # Helm refuses to take over what somebody else has made, so that has another name.
    assert written["metadata"]["name"] == NAMESPACE_ROLE != wanted["metadata"]["name"]


def bindings_of(manifests: Iterable[Manifest]) -> list[tuple[str, str]]:
    """Kind and namespace of those to the role of a served namespace."""
    return sorted(
        (m["kind"], m["metadata"].get("namespace", ""))
        for m in manifests
        if m["kind"].endswith("Binding") and m["roleRef"]["name"] == NAMESPACE_ROLE
    )


def cluster_role(service: str) -> str:
    return f"paddlewheel-{service}-cluster"


def test_only_the_controllers_have_a_token() -> None:
    holders = [n for n, pod in pod_specs(services()) if pod.get("automountServiceAccountToken", True)]

    assert sorted(holders) == sorted({*RIGHTS, "bus-auth"})
