"""Security of the bus in the rendered chart: certificates, accounts, profiles and network policies."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

import pytest

from paddlewheel.bus.admin.teams import Team
from paddlewheel.testkit.chart_bus import server_names, teams_of
from paddlewheel.testkit.charts import (
    CHARTS,
    Manifest,
    Manifests,
    helm,
    named,
    pod_specs,
    render,
    render_notes,
    services,
)

CONTROLLERS = ("job-controller", "dataset-controller", "serving-controller", "trigger-controller")
RUNTIME = {
    "app.kubernetes.io/component": "cache-runtime",
    "app.kubernetes.io/managed-by": "dataset-controller",
}


FILLED = {"nats-ca", "nats-tls-server", "bus-auth-key"}
"""The Secrets that bus-auth fills."""


def test_no_certificate_is_rendered() -> None:
    """Helm would issue another one each time where it sees no cluster."""
    secrets = {m["metadata"]["name"]: m for m in services() if m["kind"] == "Secret"}

    assert set(secrets) == {*FILLED, "job-controller-progress"}
    for name in FILLED:
        assert (secrets[name]["type"], secrets[name].get("data")) == ("Opaque", None)
    assert "data" not in named(services(), "ConfigMap", "bus-ca")


def test_without_a_cluster_two_renderings_differ_in_nothing() -> None:
    """Argo CD and `helm template | kubectl apply` render so; a second one restarts nothing."""
    chart = str(CHARTS / "paddlewheel")
    given = ("--set", "crds.install=false,jobController.progress.keySecret=mine")
    first, second = (helm("template", "release", chart, *given).stdout for _ in range(2))

    assert first == second


def test_server_certificate_covers_all_server_names() -> None:
    names = set(server_names(services()))

    assert {"nats", "localhost", "nats.paddle-system.svc", "nats.paddle-system.svc.cluster.local"} <= names
    assert {f"nats-{index}.nats-servers.paddle-system.svc" for index in range(7)} <= names


def test_authority_key_is_never_mounted() -> None:
    for name, pod in pod_specs(services()):
        assert '"nats-ca"' not in json.dumps(pod), name


def mounted(pod: Manifest) -> dict[str, str]:
    """Mounted certificates by mount path; all must be read-only."""
    sources = {
        v["name"]: v["secret"]["secretName"] for v in pod["volumes"] if "nats-tls" in str(v.get("secret"))
    }
    mounts = [m for c in pod["containers"] for m in c["volumeMounts"] if m["name"] in sources]
    assert all(mount["readOnly"] for mount in mounts)
    return {mount["mountPath"]: sources[mount["name"]] for mount in mounts}


def test_services_use_existing_certificates() -> None:
    manifests = render("paddlewheel", "crds.install=false", "nats.tls.existing=true")

    assert not [m for m in manifests if m["kind"] == "Secret" and m["metadata"]["name"] in FILLED]
    assert mounted(dict(pod_specs(manifests))["nats"]) == {"/etc/nats-tls": "nats-tls-server"}


def bus_sources(manifests: Manifests, service: str) -> list[str]:
    """The kinds of volume sources that a service mounts for the bus."""
    pod = dict(pod_specs(manifests))[service]
    volumes = [v for v in pod["volumes"] if v["name"] == "bus"]
    return [kind for v in volumes for source in v["projected"]["sources"] for kind in source]


def test_a_bus_of_ones_own_takes_credentials_and_an_authority() -> None:
    values = ("crds.install=false", "nats.enabled=false", "nats.url=tls://bus.example:4222")
    plain = render("paddlewheel", *values, "nats.credentialsSecret=mine")

    assert bus_sources(plain, "job-controller") == []
    assert bus_sources(render("paddlewheel", *values, "nats.tls.existing=true"), "job-controller") == [
        "configMap"
    ]
    pod = dict(pod_specs(plain))["job-controller"]
    env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
    assert env["JOB_CONTROLLER_NATS_CREDS_FILE"] == "/etc/paddlewheel/nats/nats.creds"
    assert not {"JOB_CONTROLLER_NATS_TLS_DIR", "JOB_CONTROLLER_NATS_TOKEN_FILE"} & set(env)
    assert "bus-auth" not in dict(pod_specs(plain))


def test_pods_get_no_service_environment_variables() -> None:
    for name, pod in pod_specs(services()):
        assert pod["enableServiceLinks"] is False, name


def spread_of(manifests: Manifests) -> str:
    """Whether servers are on different nodes: "required", "preferred", or "" without a rule."""
    affinity = dict(pod_specs(manifests))["nats"].get("affinity")
    if not affinity:
        return ""
    [(rule, [term])] = affinity["podAntiAffinity"].items()
    term = term.get("podAffinityTerm", term)
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"] == {"app.kubernetes.io/name": "nats"}
    return str(rule).removesuffix("DuringSchedulingIgnoredDuringExecution")


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        (("nats.replicas=3",), "preferred"),
        (("nats.replicas=3", "nats.antiAffinity=required"), "required"),
        (("profile=production", "nats.antiAffinity=preferred"), "preferred"),
        (("nats.antiAffinity=required",), ""),
    ],
)
def test_whether_servers_share_a_node_can_be_chosen(values: tuple[str, ...], spread: str) -> None:
    assert spread_of(render("paddlewheel", "crds.install=false", *values)) == spread


@pytest.mark.parametrize(
    ("profile", "replicas", "sync", "claims", "spread"),
    [("development", 1, '"2m"', 0, ""), ("production", 3, '"always"', 1, "required")],
)
def test_profile_defaults(profile: str, replicas: int, sync: str, claims: int, spread: str) -> None:
    manifests = render("paddlewheel", "crds.install=false", f"profile={profile}")
    server = named(manifests, "StatefulSet", "nats")["spec"]

    assert server["replicas"] == replicas
    assert len(server.get("volumeClaimTemplates", [])) == claims
    assert spread_of(manifests) == spread
    env = {each["name"]: each.get("value") for each in server["template"]["spec"]["containers"][0]["env"]}
    assert env["SYNC_INTERVAL"] == sync
    assert (
        "sync_interval: $SYNC_INTERVAL" in named(manifests, "ConfigMap", "nats-config")["data"]["nats.conf"]
    )
    pod = dict(pod_specs(manifests))["job-controller"]
    env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
    assert env["JOB_CONTROLLER_NATS_PROFILE"] == profile
    assert env["JOB_CONTROLLER_NATS_REPLICAS"] == str(replicas)
    hosts = [f"nats-{n}.nats-servers.paddle-system.svc" for n in range(replicas)]
    assert env["JOB_CONTROLLER_NATS_MONITOR_URL"] == ",".join(f"http://{host}:8222" for host in hosts)


@pytest.mark.parametrize(
    ("values", "warnings"),
    [
        (("profile=production",), []),
        (("profile=production", "nats.antiAffinity=preferred"), ["nats.antiAffinity=preferred"]),
        ((), ["profile=development may lose facts"]),
        (("nats.enabled=false", "nats.url=tls://bus.example:4222", "profile=production"), []),
    ],
)
def test_the_notes_warn_of_what_production_should_not_have(
    values: tuple[str, ...], warnings: list[str], tmp_path: Path
) -> None:
    said = re.findall(r"WARNING: ([^:\n]+?)(?::| and)", render_notes(tmp_path, *values))

    assert said == warnings


@pytest.mark.parametrize(
    "value",
    [
        "nats.replicas=1",
        "nats.jetstream.syncInterval=1s",
        "nats.persistence.enabled=false",
    ],
)
def test_production_refuses_values_that_lose_facts(value: str) -> None:
    ended = helm("template", "r", str(CHARTS / "paddlewheel"), "--set", f"profile=production,{value}")

    assert ended.returncode != 0
    assert f"profile=production refuses {value}" in ended.stderr


def test_production_reports_all_unsafe_values_at_once() -> None:
    values = "profile=production,nats.replicas=1,nats.persistence.enabled=false"

    said = helm("template", "r", str(CHARTS / "paddlewheel"), "--set", values).stderr

    assert "nats.replicas=1" in said
    assert "nats.persistence.enabled=false" in said


def test_streams_have_three_replicas_at_most() -> None:
    pod = dict(pod_specs(render("paddlewheel", "crds.install=false", "nats.replicas=5")))["job-controller"]

    env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}

    assert env["JOB_CONTROLLER_NATS_REPLICAS"] == "3"


def test_only_servers_reach_the_cluster_port() -> None:
    policy = named(services(), "NetworkPolicy", "nats")["spec"]
    rules = {port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]}

    assert policy["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "nats"}
    assert rules == {
        "client": None,
        "monitor": [{"podSelector": {"matchLabels": {"app.kubernetes.io/part-of": "paddlewheel"}}}],
        "cluster": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "nats"}}}],
    }


_PATH = "triggerController.webhook.sources[0]"
SOURCE = f"{_PATH}.name=images,{_PATH}.namespaces={{team-a}}"


def test_the_webhook_does_not_listen_without_a_source() -> None:
    def listens(*values: str) -> bool:
        pod = dict(pod_specs(render("paddlewheel", "crds.install=false", *values)))["trigger-controller"]
        [container] = pod["containers"]
        return "TRIGGER_CONTROLLER_WEBHOOK_TOKENS_DIR" in {each["name"] for each in container["env"]}

    assert not listens()
    assert listens(SOURCE)


def test_the_webhook_is_reached_by_those_who_are_named_and_by_nobody_else() -> None:
    def ports(*values: str) -> dict[str | int, Any]:
        manifests = render("paddlewheel", "crds.install=false", SOURCE, *values)
        policy = named(manifests, "NetworkPolicy", "trigger-controller")["spec"]
        assert policy["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "trigger-controller"}
        return {rule["ports"][0]["port"]: rule.get("from") for rule in policy["ingress"]}

    assert ports() == {"http": None}
    stores = "triggerController.webhook.from[0].ipBlock.cidr=10.20.0.0/16"
    assert ports(stores) == {"http": None, 8081: [{"ipBlock": {"cidr": "10.20.0.0/16"}}]}


def test_the_webhook_is_served_over_tls_with_a_secret() -> None:
    value = "triggerController.webhook.tlsSecret=webhook-tls"
    manifests = render("paddlewheel", "crds.install=false", SOURCE, value)
    pod = dict(pod_specs(manifests))["trigger-controller"]
    [container] = pod["containers"]
    folder = {each["name"]: each.get("value") for each in container["env"]}[
        "TRIGGER_CONTROLLER_WEBHOOK_TLS_DIR"
    ]
    [mount] = [each for each in container["volumeMounts"] if each["mountPath"] == folder]
    [volume] = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    # Not optional: without it the webhook would be served in plain text.
    assert volume["secret"] == {"secretName": "webhook-tls", "defaultMode": 288}


def test_sources_are_granted_to_nobody_unless_the_operator_names_namespaces() -> None:
    def grants(*values: str) -> dict[str, list[str]]:
        pod = named(render("paddlewheel", "crds.install=false", *values), "Deployment", "trigger-controller")[
            "spec"
        ]["template"]["spec"]
        env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
        return cast("dict[str, list[str]]", json.loads(env["TRIGGER_CONTROLLER_SOURCES"]))

    assert grants() == {}
    path = "triggerController.webhook.sources[0]"
    assert grants(f"{path}.name=images", f"{path}.namespaces={{team-a,team-b}}") == {
        "images": ["team-a", "team-b"]
    }


def test_a_source_is_granted_once_so_that_no_grant_is_dropped() -> None:
    path = "triggerController.webhook.sources"
    twice = ",".join(f"{path}[{n}].name=images,{path}[{n}].namespaces={{team-{n}}}" for n in range(2))
    ended = helm("template", "release", str(CHARTS / "paddlewheel"), "--set", twice)
    assert ended.returncode != 0
    assert f"{path}[1].name: images is named twice" in ended.stderr


def test_agents_do_not_reach_the_api_server() -> None:
    value = "networkPolicies.runtime.apiServer={10.0.0.1/32,fd00::1/128}"
    policy = named(render("paddlewheel", "crds.install=false", value), "NetworkPolicy", "cache-runtime")

    assert policy["spec"]["podSelector"]["matchLabels"] == RUNTIME
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["spec"]["ingress"] == [{"ports": [{"port": "service", "protocol": "TCP"}]}]
    blocks = [peer["ipBlock"] for rule in policy["spec"]["egress"] for peer in rule["to"]]
    assert {block["cidr"]: block["except"] for block in blocks} == {
        "0.0.0.0/0": ["10.0.0.1/32"],
        "::/0": ["fd00::1/128"],
    }


def test_without_a_cluster_only_connections_to_agents_are_limited() -> None:
    """The addresses of the API server are unknown then; a rule for all others would deny nothing."""
    policy = named(services(), "NetworkPolicy", "cache-runtime")

    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert "egress" not in policy["spec"]


def test_network_policies_can_be_disabled() -> None:
    manifests = render("paddlewheel", "crds.install=false", "networkPolicies.enabled=false")

    assert not [m for m in manifests if m["kind"] == "NetworkPolicy"]


def test_each_team_of_subscribers_has_an_account() -> None:
    values = ("nats.subscribers[0].name=team-a", "nats.subscribers[0].namespaces={a}")
    manifests = render("paddlewheel", "crds.install=false", *values)

    assert teams_of(manifests) == (Team("team-a", ("a",)),)
    config = named(manifests, "ConfigMap", "nats-config")["data"]["nats.conf"]
    assert '"subject":"pw.live.PW_JOBS.*.*.*.a.*"' in config
    assert '"subscriber"' not in config
    assert "@team@" not in config


@pytest.mark.parametrize("name", ["installer", "operator", "job-controller", "team-a"])
def test_the_name_of_a_team_is_its_own(name: str) -> None:
    flags = ["nats.subscribers[0].name=team-a", f"nats.subscribers[1].name={name}"]
    ended = helm(
        "template", "release", str(CHARTS / "paddlewheel"), *(x for flag in flags for x in ("--set", flag))
    )

    assert ended.returncode != 0
    assert f"nats.subscribers: the name {name} is taken; choose one that is" in ended.stderr


def test_a_bus_of_ones_own_has_no_teams() -> None:
    own = ("nats.enabled=false", "nats.url=nats://bus.example:4222")
    assert teams_of(render("paddlewheel", "crds.install=false", *own)) == ()


def test_the_installer_has_no_rights_in_kubernetes() -> None:
    pod = dict(pod_specs(services()))["bus-installer"]

    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == "installer"
    bound = [m for m in services() if m["kind"].endswith("Binding")]
    assert not [m for m in bound if any(s["name"] == "installer" for s in m["subjects"])]
