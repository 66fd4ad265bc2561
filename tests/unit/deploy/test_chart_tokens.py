"""The chart with `nats.auth=tokens`: who gets which token, key and right."""

from __future__ import annotations

import pytest

from paddlewheel.bus.admin.permissions import ROLES
from paddlewheel.contracts.bus_tokens import AUDIENCE, TOKEN_SECONDS
from paddlewheel.testkit.charts import CHARTS, Manifest, Manifests, helm, named, pod_specs, render, services

TOKENS = ("crds.install=false", "nats.auth=tokens")
NO_ROLE_BINDING = {"cache-runtime", "subscriber"}
"""Recognized by their pod, and by the namespaces that they may watch."""


@pytest.fixture(scope="module")
def manifests() -> Manifests:
    return render("paddlewheel", *TOKENS)


def pods(manifests: Manifests) -> dict[str, Manifest]:
    return dict(pod_specs(manifests))


def sources(pod: Manifest) -> list[Manifest]:
    return [s for v in pod["volumes"] if v["name"] == "bus" for s in v["projected"]["sources"]]


def test_certificates_are_the_default() -> None:
    assert "bus-auth" not in pods(services())
    assert not [m for m in services() if m["metadata"]["name"].startswith("bus-auth")]


def test_bus_auth_may_review_and_look_up_and_nothing_else(manifests: Manifests) -> None:
    rights = {
        (group, resource): rule["verbs"]
        for rule in named(manifests, "ClusterRole", "paddlewheel-bus-auth")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    bound = [
        m["roleRef"]["name"]
        for m in manifests
        if m["kind"].endswith("Binding") and any(s["name"] == "bus-auth" for s in m["subjects"])
    ]

    assert rights == {
        ("authentication.k8s.io", "tokenreviews"): ["create"],
        ("authorization.k8s.io", "subjectaccessreviews"): ["create"],
        ("", "pods"): ["get"],
        ("batch.paddlepaddle.org", "samplesets"): ["get"],
    }
    assert bound == ["paddlewheel-bus-auth"]


@pytest.mark.parametrize(("profile", "count"), [("development", 1), ("production", 2)])
def test_bus_auth_has_two_replicas_in_production(profile: str, count: int) -> None:
    manifests = render("paddlewheel", *TOKENS, f"profile={profile}")

    assert named(manifests, "Deployment", "bus-auth")["spec"]["replicas"] == count
    budgets = [
        m for m in manifests if (m["kind"], m["metadata"]["name"]) == ("PodDisruptionBudget", "bus-auth")
    ]
    assert len(budgets) == count - 1


def test_every_client_shows_a_token_that_is_worth_nothing_to_the_api_server(manifests: Manifests) -> None:
    clients = {name for name in pods(manifests) if name not in ("nats", "bus-auth")}
    for name in clients:
        [authority, token] = sources(pods(manifests)[name])
        assert authority["configMap"]["name"] == "bus-ca"
        wanted = {"path": "token", "audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS}
        assert token["serviceAccountToken"] == wanted
        assert pods(manifests)[name]["serviceAccountName"], name
    assert clients >= {"job-controller", "dataset-controller", "bus-installer"}
    assert [list(s) for s in sources(pods(manifests)["bus-auth"])] == [["configMap"]]


def test_no_role_has_a_certificate(manifests: Manifests) -> None:
    made = {m["metadata"]["name"] for m in manifests if m["kind"] == "Secret"}

    assert {"nats-ca", "nats-tls-server", "bus-auth-key"} <= made
    assert not [name for name in made if name.startswith("nats-tls-") and name != "nats-tls-server"]


def test_bus_auths_private_key_is_mounted_by_bus_auth_alone(manifests: Manifests) -> None:
    holders = {
        name: [item["key"] for item in volume["secret"].get("items", [{"key": "all"}])]
        for name, pod in pods(manifests).items()
        for volume in pod["volumes"]
        if volume.get("secret", {}).get("secretName") == "bus-auth-key"
    }

    assert holders == {"bus-auth": ["all"], "nats": ["tls.crt"]}


@pytest.mark.parametrize("role", sorted({role.name for role in ROLES} - NO_ROLE_BINDING))
def test_a_role_belongs_to_the_account_of_its_name_in_the_releases_namespace(
    manifests: Manifests, role: str
) -> None:
    [rule] = named(manifests, "Role", f"bus-{role}")["rules"]
    binding = named(manifests, "RoleBinding", f"bus-{role}")

    assert rule == {
        "apiGroups": ["events.paddlepaddle.org"],
        "resources": ["busroles"],
        "resourceNames": [role],
        "verbs": ["use"],
    }
    assert binding["roleRef"]["name"] == f"bus-{role}"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": role, "namespace": "paddle-system"}]
    assert named(manifests, "ServiceAccount", role)


def test_nobody_has_a_role_by_its_pods_alone(manifests: Manifests) -> None:
    for role in NO_ROLE_BINDING:
        assert not [m for m in manifests if m["metadata"]["name"] == f"bus-{role}"]


def test_the_servers_configuration_has_no_users_but_bus_auth(manifests: Manifests) -> None:
    config = named(manifests, "ConfigMap", "nats")["data"]["nats.conf"]

    assert '"users"' not in config
    assert config.count(" users: [") == 1
    assert "verify_and_map" not in config.split("cluster {")[0]


@pytest.mark.parametrize("values", ["nats.tls.enabled=false", "nats.enabled=false,nats.url=nats://bus:4222"])
def test_tokens_are_sent_over_tls_to_the_charts_own_server_only(values: str) -> None:
    ended = helm("template", "r", str(CHARTS / "paddlewheel"), "--set", f"nats.auth=tokens,{values}")

    assert ended.returncode != 0
    assert "nats.auth=tokens needs nats.enabled=true and nats.tls.enabled=true" in ended.stderr


def test_with_certificates_of_ones_own_no_key_is_made() -> None:
    manifests = render("paddlewheel", *TOKENS, "nats.tls.existing=true")

    made = {m["metadata"]["name"] for m in manifests if m["kind"] in ("Secret", "ConfigMap")}
    assert not made & {"bus-auth-key", "bus-ca", "nats-tls-server"}
    assert "bus-auth" in pods(manifests)
