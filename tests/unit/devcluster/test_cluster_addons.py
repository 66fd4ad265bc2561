"""Add-ons of a cluster: what is asked for, what is applied, and when they are ready."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster import binaries, cluster, network
from paddlewheel.devcluster.addons import install as addon_install
from paddlewheel.devcluster.addons import render
from paddlewheel.devcluster.addons.prepare import (
    KNATIVE_IMAGES,
    MODULES,
    Prepared,
    gateway_objects,
    knative_objects,
)
from paddlewheel.devcluster.addons.ready import holds, is_rolled_out, missing, runs_since
from paddlewheel.devcluster.api import AdminApi
from paddlewheel.devcluster.go import GoBuild
from paddlewheel.devcluster.images import image_reference
from paddlewheel.devcluster.spec import ADDONS, ClusterSpec
from paddlewheel.devcluster.state import ClusterDirs, ClusterRecord, cluster_dirs, load_record, save_record
from paddlewheel.testkit.charts import Manifest, named, pod_specs

DEPLOY = Path(__file__).parents[3] / "deploy"
GATEWAY = (DEPLOY / "addons/gateway.yaml").read_text()
SETTINGS = (DEPLOY / "addons/knative.yaml").read_text()
UPSTREAM = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: controller, namespace: knative-serving}
spec:
  template:
    metadata: {labels: {app: controller}}
    spec: {containers: [{name: controller, image: "ko://knative.dev/serving/cmd/controller"}]}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: config-deployment
  namespace: knative-serving
  annotations: {knative.dev/example-checksum: abc}
data: {_example: "a long text", queue-sidecar-image: "ko://knative.dev/serving/cmd/queue"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: admin}
aggregationRule: {clusterRoleSelectors: []}
rules: []
---
apiVersion: v1
kind: Namespace
metadata: {name: knative-serving}
"""
CONFIGS = "\n".join(
    f"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: knative-serving}}"
    for name in (
        "config-network",
        "config-gateway",
        "config-domain",
        "config-leader-election",
        "config-observability",
    )
)
PODS = "/api/v1/namespaces/knative-serving/pods"
STARTED = 1795305604.7
"""When the cluster was started: 2026-11-22T00:00:04.7Z."""


class ApiOf(AdminApi):
    """An API server with these objects by path."""

    def __init__(self, objects: dict[str, Manifest]) -> None:
        self._objects = objects

    def get(self, path: str) -> dict[str, Any] | None:
        return self._objects.get(path)


def knative(content: str = "1") -> tuple[Manifest, ...]:
    return knative_objects(UPSTREAM, CONFIGS, SETTINGS, content)


def data(manifests: tuple[Manifest, ...], config: str) -> dict[str, str]:
    return cast("dict[str, str]", named(manifests, "ConfigMap", config)["data"])


@pytest.mark.parametrize(
    ("asked", "installed"),
    [
        ((), ()),
        (("gateway",), ("gateway",)),
        (("knative",), ("gateway", "knative")),
        (("knative", "gateway", "knative"), ("gateway", "knative")),
    ],
)
def test_an_addon_brings_what_it_needs_before_itself(
    asked: tuple[str, ...], installed: tuple[str, ...]
) -> None:
    assert ClusterSpec(addons=asked).addons == installed


def test_error_for_an_unknown_addon_lists_those_that_exist() -> None:
    with pytest.raises(Permanent, match="InvalidAddon: addons: no istio; there are: gateway, knative"):
        ClusterSpec(addons=("gateway", "istio"))


def test_addons_need_nodes() -> None:
    with pytest.raises(Permanent, match=r"addons: gateway needs nodes.*leave out --control-plane-only"):
        ClusterSpec(addons=("gateway",), control_plane_only=True)


def test_an_addon_is_no_difference_of_an_existing_cluster() -> None:
    assert ClusterSpec().differences(ClusterSpec(addons=("knative",))) == ()
    assert ClusterSpec(addons=("gateway",)).differences(ClusterSpec(nodes=3)) == ("nodes 2, not 3",)


def test_options_repeat_the_addons() -> None:
    assert ClusterSpec("a", addons=("knative",)).options() == ("--name a", "--with gateway", "--with knative")


def test_more_addons_are_added_to_a_spec() -> None:
    assert ClusterSpec(addons=("gateway",)).with_addons(("knative",)).addons == ("gateway", "knative")
    assert ClusterSpec(addons=("knative",)).with_addons(()).addons == ("gateway", "knative")


def test_the_record_keeps_the_addons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    dirs = cluster_dirs("a")
    dirs.root.mkdir(parents=True)
    record = ClusterRecord(ClusterSpec("a", addons=("knative",)), slot=0)
    save_record(dirs, record)
    assert load_record(dirs) == record


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ClusterDirs, ClusterRecord]:
    """A cluster of three nodes without add-ons."""
    monkeypatch.setenv("PADDLEWHEEL_HOME", str(tmp_path))
    dirs = cluster_dirs("a")
    dirs.root.mkdir(parents=True)
    dirs.plan.touch()
    record = ClusterRecord(ClusterSpec("a", nodes=3), slot=0)
    save_record(dirs, record)
    return dirs, record


def test_an_addon_is_recorded_once_it_is_installed(
    recorded: tuple[ClusterDirs, ClusterRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    def install_gateway_only(*arguments: Any) -> None:
        if arguments[2].name != "gateway":
            raise Permanent("AddonNotReady", "the images are not there")

    monkeypatch.setattr(cluster, "install", install_gateway_only)
    addons = tuple(Prepared(name, (), ()) for name in ADDONS)
    with pytest.raises(Permanent, match="the images are not there"):
        cluster._install(*recorded, addons, cluster.ignore)
    found = load_record(recorded[0])
    assert found is not None
    assert found.spec.addons == ("gateway",)


def test_a_new_cluster_is_recorded_without_addons(
    recorded: tuple[ClusterDirs, ClusterRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "machine_lock", nullcontext)
    monkeypatch.setattr(network, "free_slot", lambda *_: 1)
    monkeypatch.setattr(network, "claim_link", lambda *_: None)
    made = cluster._claim(recorded[0], None, ClusterSpec("a", addons=("knative",)))
    assert (made.spec.addons, load_record(recorded[0])) == ((), made)


def test_an_addon_that_is_not_ready_names_the_command_that_installs_it_again(
    recorded: tuple[ClusterDirs, ClusterRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addon_install, "AdminApi", lambda *_: ApiOf({}))
    monkeypatch.setattr(addon_install, "_ADDON_READY_TIMEOUT_SECONDS", -1.0)
    with pytest.raises(
        Permanent, match="`paddlewheel cluster up --name a --nodes 3 --with gateway` installs it"
    ):
        addon_install.await_addon(*recorded, "gateway", cluster.ignore)


def test_every_addon_says_what_it_is_built_from() -> None:
    assert set(MODULES) == set(ADDONS)


def test_manifests_are_joined_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files,) = binaries.GATEWAY_API.data.values()
    for number, file in enumerate(files):
        path = tmp_path / "module" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"number: {number}")

    def refuse(task: GoBuild, _report: object) -> None:
        raise AssertionError(f"{task.name} was compiled")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(binaries, "build", refuse)
    monkeypatch.setattr(binaries, "module_folder", lambda _source, _name: tmp_path / "module")
    binaries.ensure((binaries.GATEWAY_API,), lambda _text, _share: None)
    joined = binaries.data_file(binaries.GATEWAY_API).read_text()
    assert list(yaml.safe_load_all(joined)) == [{"number": number} for number in range(len(files))]


@pytest.mark.parametrize("name", ["gateway-api", "knative", "knative-ingress"])
def test_modules_of_addons_are_pinned_by_checksum(name: str) -> None:
    module = next(module for listed in MODULES.values() for module in listed if module.name == name)
    sums = (DEPLOY / module.folder / "go.sum").read_text()
    assert all(f"{source} v" in sums for source in module.data)


def test_the_gateways_pods_are_unprivileged_and_run_our_image() -> None:
    ((_, pod),) = pod_specs(gateway_objects("", GATEWAY, "1"))
    (container,) = pod["containers"]
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 65532)
    assert container["image"] == image_reference("traefik")
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"readinessProbe", "livenessProbe", "resources"} <= set(container)


def test_every_listener_has_an_entry_point_and_a_service_in_front() -> None:
    manifests = (*gateway_objects("", GATEWAY, "1"), *knative())
    ((_, pod),) = pod_specs(gateway_objects("", GATEWAY, "1"))
    arguments = pod["containers"][0]["args"]
    ports = {port["name"]: port["containerPort"] for port in pod["containers"][0]["ports"]}
    behind = {
        ports[port["targetPort"]]: found["metadata"]["name"]
        for found in manifests
        if found["kind"] == "Service"
        for port in found["spec"]["ports"]
    }
    listeners = [found["spec"]["listeners"] for found in manifests if found["kind"] == "Gateway"]
    assert [listener["port"] for (listener,) in listeners] == [8000, 8001]
    for (listener,) in listeners:
        assert any(text.endswith(f".address=:{listener['port']}") for text in arguments)
        assert listener["port"] in behind


def test_a_rebuilt_image_starts_new_pods() -> None:
    def template(content: str) -> Manifest:
        return cast("Manifest", named(gateway_objects("", GATEWAY, content), "Deployment", "traefik")["spec"])

    assert template("1") == template("1") != template("2")


def test_knative_runs_our_images() -> None:
    ((_, pod),) = pod_specs(knative())
    assert pod["containers"][0]["image"] == "docker.io/paddlewheel/knative-controller:dev"
    assert data(knative(), "config-deployment")["queue-sidecar-image"] == image_reference("knative-queue")
    assert "ko://" not in str(knative())
    assert len(set(KNATIVE_IMAGES.values())) == len(KNATIVE_IMAGES)


def test_knative_asks_no_registry_for_our_images() -> None:
    skipped = data(knative(), "config-deployment")["registries-skipping-tag-resolving"].split(",")
    assert {"index.docker.io", "docker.io"} <= set(skipped)


def test_knative_uses_gateways_and_services_that_exist() -> None:
    manifests = (*gateway_objects("", GATEWAY, "1"), *knative())
    known = {(m["kind"], f"{m['metadata'].get('namespace')}/{m['metadata']['name']}") for m in manifests}
    for setting in data(knative(), "config-gateway").values():
        (entry,) = yaml.safe_load(setting)
        assert {("Gateway", entry["gateway"]), ("Service", entry["service"])} <= known
        assert entry["class"] == named(manifests, "GatewayClass", "traefik")["metadata"]["name"]


def test_documentation_and_rules_that_the_cluster_fills_in_are_left_out() -> None:
    assert "_example" not in data(knative(), "config-deployment")
    assert "example-checksum" not in str(knative())
    assert "rules" not in named(knative(), "ClusterRole", "admin")


def test_settings_for_a_config_map_that_knative_does_not_have_are_refused() -> None:
    with pytest.raises(KeyError, match="config-network"):
        knative_objects(UPSTREAM, "", SETTINGS, "1")


def test_definitions_and_namespaces_come_first() -> None:
    text = "kind: A\n---\nkind: CustomResourceDefinition\n---\nkind: Namespace\n"
    objects = render.objects(text)
    assert [found["kind"] for found in render.definitions(objects)] == ["CustomResourceDefinition"]
    assert [found["kind"] for found in render.others(objects)] == ["Namespace", "A"]


def make_deployment(generation: int = 2, **status: int) -> Manifest:
    counts = {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
    return {
        "metadata": {"name": "a", "generation": generation},
        "spec": {"replicas": 2},
        "status": {**counts, **status},
    }


@pytest.mark.parametrize(
    ("deployment", "ready"),
    [
        (make_deployment(), True),
        (make_deployment(generation=3), False),
        (make_deployment(availableReplicas=1), False),
        (make_deployment(updatedReplicas=1), False),
        (make_deployment(replicas=3), False),
        ({"metadata": {"name": "a", "generation": 1}, "spec": {"replicas": 1}}, False),
    ],
)
def test_a_deployment_is_rolled_out_when_only_current_pods_are_left(
    deployment: Manifest, ready: bool
) -> None:
    assert is_rolled_out(deployment) is ready


def make_pod(*, ready: bool = True, started: str | None = "2026-11-22T00:00:05Z") -> Manifest:
    state = {"running": {"startedAt": started}} if started else {"waiting": {"reason": "CrashLoopBackOff"}}
    return {
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"containerStatuses": [{"name": "main", "ready": ready, "state": state}]},
    }


@pytest.mark.parametrize(
    ("pod", "ready"),
    [
        (make_pod(), True),
        (make_pod(started="2026-11-22T00:00:04Z"), True),
        (make_pod(started="2026-11-22T00:00:03Z"), False),
        (make_pod(ready=False), False),
        (make_pod(ready=False, started=None), False),
        ({**make_pod(), "status": {"containerStatuses": None}}, False),
        ({**make_pod(), "spec": {"containers": [{"name": "main"}, {"name": "second"}]}}, False),
    ],
)
def test_a_pod_counts_when_its_containers_are_of_this_start_of_the_cluster(
    pod: Manifest, ready: bool
) -> None:
    assert runs_since(pod, STARTED) is ready


def test_a_pod_that_goes_away_is_not_waited_for() -> None:
    gone = {**make_pod(ready=False), "metadata": {"name": "b", "deletionTimestamp": "2026-11-22T00:00:05Z"}}
    objects = {**ready_objects(), PODS: {"items": [make_pod(), gone]}}
    assert missing(ApiOf(objects), "knative", STARTED) == ()
    objects[PODS] = {"items": [make_pod(ready=False)]}
    assert missing(ApiOf(objects), "knative", STARTED) == ("Pod knative-serving/a",)


@pytest.mark.parametrize("status", [{}, {"conditions": None}, {"conditions": []}])
def test_a_new_object_has_no_conditions(status: dict[str, Any]) -> None:
    assert not holds({"status": status}, "Programmed")


def ready_objects() -> dict[str, Manifest]:
    webhook = {"webhooks": [{"clientConfig": {"caBundle": "x"}}]}
    programmed = {"status": {"conditions": [{"type": "Programmed", "status": "True"}]}}
    registered = "/apis/admissionregistration.k8s.io/v1"
    gateways = "/apis/gateway.networking.k8s.io/v1/namespaces/paddle-gateway/gateways"
    return {
        "/apis/apps/v1/namespaces/knative-serving/deployments": {"items": [make_deployment()]},
        PODS: {"items": [make_pod()]},
        f"{gateways}/paddlewheel-local": programmed,
        f"{registered}/mutatingwebhookconfigurations/webhook.serving.knative.dev": webhook,
        f"{registered}/validatingwebhookconfigurations/config.webhook.serving.knative.dev": webhook,
        f"{registered}/validatingwebhookconfigurations/validation.webhook.serving.knative.dev": webhook,
    }


def test_nothing_is_missing_from_an_addon_that_is_ready() -> None:
    assert missing(ApiOf(ready_objects()), "knative", STARTED) == ()


@pytest.mark.parametrize("path", sorted(ready_objects().keys() - {PODS}))
def test_an_addon_is_not_ready_without_any_of_its_parts(path: str) -> None:
    objects = {known: found for known, found in ready_objects().items() if known != path}
    assert len(missing(ApiOf(objects), "knative", STARTED)) == 1
