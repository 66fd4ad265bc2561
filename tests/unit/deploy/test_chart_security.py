"""Security of the bus in the rendered chart: certificates, accounts, profiles and network policies."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from paddlewheel.bus.admin.permissions import ROLES, user_of
from paddlewheel.bus.admin.teams import Team
from paddlewheel.testkit.chart_bus import teams_of
from paddlewheel.testkit.charts import (
    CHARTS,
    REPOSITORY,
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


def secrets(manifests: Manifests) -> dict[str, dict[str, bytes]]:
    """Those of the bus."""
    return {
        m["metadata"]["name"]: {name: base64.b64decode(value) for name, value in m["data"].items()}
        for m in manifests
        if m["kind"] == "Secret" and m["type"] == "kubernetes.io/tls"
    }


def certificate(data: dict[str, bytes]) -> x509.Certificate:
    return x509.load_pem_x509_certificate(data["tls.crt"])


def names_in(made: x509.Certificate) -> list[str]:
    found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return found.get_values_for_type(x509.DNSName)


def test_every_role_has_a_certificate_for_its_user_from_the_same_authority() -> None:
    made = secrets(services())
    authority = certificate(made["nats-ca"])

    assert set(made) == {"nats-ca", "nats-tls-server", *(f"nats-tls-{role.name}" for role in ROLES)}
    for role in ROLES:
        data = made[f"nats-tls-{role.name}"]
        assert names_in(certificate(data)) == [user_of(role.name)]
        assert data["ca.crt"] == made["nats-ca"]["tls.crt"]
        certificate(data).verify_directly_issued_by(authority)
        assert isinstance(certificate(data).public_key(), ec.EllipticCurvePublicKey)


def test_certificates_differ_from_each_other_but_not_within_one_render() -> None:
    made = secrets(services())
    keys = [data["tls.key"] for data in made.values()]

    assert len(set(keys)) == len(keys)
    assert len({data["ca.crt"] for name, data in made.items() if name != "nats-ca"}) == 1


def test_server_certificate_covers_all_server_names() -> None:
    names = set(names_in(certificate(secrets(services())["nats-tls-server"])))

    assert {"nats", "localhost", "nats.paddle-system.svc", "nats.paddle-system.svc.cluster.local"} <= names
    assert {f"nats-{index}.nats-servers.paddle-system.svc" for index in range(7)} <= names
    assert not {user_of(role.name) for role in ROLES} & names


def test_authority_key_is_never_mounted() -> None:
    for name, pod in pod_specs(services()):
        assert "nats-ca" not in json.dumps(pod), name


def mounted(pod: Manifest) -> dict[str, str]:
    """Mounted certificates by mount path; all must be read-only."""
    sources = {
        v["name"]: v["secret"]["secretName"] for v in pod["volumes"] if "nats-tls" in str(v.get("secret"))
    }
    mounts = [m for c in pod["containers"] for m in c["volumeMounts"] if m["name"] in sources]
    assert all(mount["readOnly"] for mount in mounts)
    return {mount["mountPath"]: sources[mount["name"]] for mount in mounts}


@pytest.mark.parametrize("service", CONTROLLERS)
def test_a_service_mounts_only_its_own_certificate(service: str) -> None:
    pod = dict(pod_specs(services()))[service]
    env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
    prefix = service.replace("-", "_").upper()
    assert mounted(pod) == {env[f"{prefix}_NATS_TLS_DIR"]: f"nats-tls-{service}"}


def test_runtime_pods_mount_the_certificate_of_agents() -> None:
    pod = dict(pod_specs(services()))["dataset-controller"]
    env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}

    assert env["DATASET_CONTROLLER_RUNTIME_NATS_SECRET"] == "nats-tls-cache-runtime"
    assert "nats-tls-cache-runtime" in secrets(services())


def test_services_use_existing_certificates() -> None:
    manifests = render("paddlewheel", "crds.install=false", "nats.tls.existing=true")

    assert secrets(manifests) == {}
    assert "nats-tls-job-controller" in mounted(dict(pod_specs(manifests))["job-controller"]).values()
    assert "nats-tls-server" in mounted(dict(pod_specs(manifests))["nats"]).values()


def test_nothing_of_tls_is_rendered_when_disabled() -> None:
    manifests = render("paddlewheel", "crds.install=false", "nats.tls.enabled=false")

    assert secrets(manifests) == {}
    assert "tls" not in named(manifests, "ConfigMap", "nats")["data"]["nats.conf"]
    for name, pod in pod_specs(manifests):
        assert mounted(pod) == {}, name
        assert "TLS" not in json.dumps(pod), name


def test_an_external_bus_can_use_existing_certificates() -> None:
    values = ("crds.install=false", "nats.enabled=false", "nats.url=tls://bus.example:4222")
    pod = dict(pod_specs(render("paddlewheel", *values, "nats.tls.existing=true")))["job-controller"]

    assert mounted(pod) == {"/etc/paddlewheel/bus": "nats-tls-job-controller"}
    assert mounted(dict(pod_specs(render("paddlewheel", *values)))["job-controller"]) == {}


def test_a_new_certificate_restarts_its_service() -> None:
    def annotations(manifests: Manifests) -> Any:
        return named(manifests, "Deployment", "job-controller")["spec"]["template"]["metadata"]["annotations"]

    key = "paddlepaddle.org/bus-certificate"
    assert (
        annotations(services())[key]
        != annotations(render("paddlewheel", "crds.install=false", "rollout="))[key]
    )


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
    assert f"sync_interval: {sync}" in named(manifests, "ConfigMap", "nats")["data"]["nats.conf"]
    pod = dict(pod_specs(manifests))["job-controller"]
    env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
    assert env["JOB_CONTROLLER_NATS_PROFILE"] == profile
    assert env["JOB_CONTROLLER_NATS_REPLICAS"] == str(replicas)
    hosts = [f"nats-{n}.nats-servers.paddle-system.svc" for n in range(replicas)]
    assert env["JOB_CONTROLLER_NATS_MONITOR_URL"] == ",".join(f"http://{host}:8222" for host in hosts)


@pytest.mark.parametrize(
    ("values", "warnings"),
    [
        (("profile=production",), ["nats.auth=certificates"]),
        (("profile=production", "nats.tls.existing=true"), ["nats.auth=certificates"]),
        (("profile=production", "nats.auth=tokens"), []),
        (
            ("profile=production", "nats.auth=tokens", "nats.antiAffinity=preferred"),
            ["nats.antiAffinity=preferred"],
        ),
        ((), ["profile=development may lose facts"]),
        (("nats.enabled=false", "nats.url=tls://bus.example:4222", "profile=production"), []),
    ],
)
def test_the_notes_warn_of_what_production_should_not_have(
    values: tuple[str, ...], warnings: list[str], tmp_path: Path
) -> None:
    said = re.findall(r"WARNING: ([^:\n]+?)(?::| and)", render_notes(tmp_path, *values))

    assert said == warnings


@pytest.mark.parametrize("auth", ["certificates", "tokens"])
def test_the_notes_name_members_that_cannot_connect(auth: str, tmp_path: Path) -> None:
    """They show tokens, which a bus of certificates does not know."""
    members = [
        f"nats.{kind}[0].{field}"
        for kind, name in (("subscribers", "vision"), ("services", "labels"))
        for field in (f"name={name}", "members={team-a/notifier}")
    ]

    said = "members of vision, labels have no effect" in render_notes(tmp_path, *members, f"nats.auth={auth}")
    assert said is (auth == "certificates")


def test_the_notes_say_what_a_certificate_is_worth_and_how_to_switch(tmp_path: Path) -> None:
    said = render_notes(tmp_path, "profile=production").partition("WARNING: nats.auth=certificates")[2]

    assert "in a Secret of each namespace with a SampleSet" in said
    assert "no certificate can be revoked alone" in said
    assert "--set nats.auth=tokens" in said
    title = "Switch from certificates"
    assert f'"{title}" in docs/tasks/access.md' in said
    assert f"\n## {title}\n" in (REPOSITORY / "docs/tasks/access.md").read_text()


@pytest.mark.parametrize(
    "value",
    [
        "nats.replicas=1",
        "nats.jetstream.syncInterval=1s",
        "nats.persistence.enabled=false",
        "nats.tls.enabled=false",
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


def test_only_servers_and_services_reach_cluster_and_monitor_ports() -> None:
    policy = named(services(), "NetworkPolicy", "nats")["spec"]
    rules = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["ingress"]}

    assert policy["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "nats"}
    assert rules["client"] is None
    assert rules["cluster"] == [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "nats"}}}]
    assert rules["monitor"] == [
        {"podSelector": {"matchLabels": {"app.kubernetes.io/part-of": "paddlewheel"}}}
    ]


def test_the_webhook_is_reached_by_those_who_are_named_and_by_nobody_else() -> None:
    def ports(*values: str) -> dict[str | int, Any]:
        policy = named(
            render("paddlewheel", "crds.install=false", *values), "NetworkPolicy", "trigger-controller"
        )["spec"]
        assert policy["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "trigger-controller"}
        return {rule["ports"][0]["port"]: rule.get("from") for rule in policy["ingress"]}

    assert ports() == {"http": None}
    stores = "triggerController.webhook.from[0].ipBlock.cidr=10.20.0.0/16"
    assert ports(stores) == {"http": None, 8081: [{"ipBlock": {"cidr": "10.20.0.0/16"}}]}


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


def test_each_team_of_subscribers_has_a_certificate_and_an_account() -> None:
    values = ("nats.subscribers[0].name=team-a", "nats.subscribers[0].namespaces={a}")
    manifests = render("paddlewheel", "crds.install=false", *values)

    made = secrets(manifests)
    assert names_in(certificate(made["nats-tls-team-a"])) == ["team-a.paddlewheel"]
    assert "nats-tls-subscriber" not in made
    assert teams_of(manifests) == (Team("team-a", ("a",)),)
    config = named(manifests, "ConfigMap", "nats")["data"]["nats.conf"]
    assert '"subject":"pw.evt.jobs.*.*.*.a.*"' in config
    assert '"subscriber"' not in config
    assert "@team@" not in config


@pytest.mark.parametrize("name", ["server", "installer", "operator", "job-controller", "team-a"])
def test_the_name_of_a_team_is_its_own(name: str) -> None:
    flags = ["nats.subscribers[0].name=team-a", f"nats.subscribers[1].name={name}"]
    ended = helm(
        "template", "release", str(CHARTS / "paddlewheel"), *(x for flag in flags for x in ("--set", flag))
    )

    assert ended.returncode != 0
    assert f"nats.subscribers: the name {name} is taken; choose one that is" in ended.stderr


@pytest.mark.parametrize(
    "values", [("nats.tls.enabled=false",), ("nats.enabled=false", "nats.url=nats://bus.example:4222")]
)
def test_without_accounts_there_are_no_teams(values: tuple[str, ...]) -> None:
    assert teams_of(render("paddlewheel", "crds.install=false", *values)) == ()


def test_the_installer_mounts_its_certificate_alone_and_has_no_rights_in_kubernetes() -> None:
    pod = dict(pod_specs(services()))["bus-installer"]

    assert mounted(pod) == {"/etc/paddlewheel/bus": "nats-tls-installer"}
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    others = [mounted(other) for name, other in pod_specs(services()) if name != "bus-installer"]
    assert not [each for each in others if "nats-tls-installer" in each.values()]
