"""The tokens, keys and rights that the chart gives to each client."""

from __future__ import annotations

import json
import re

import pytest

from paddlewheel.bus.admin.permissions import ROLES
from paddlewheel.contracts.bus_tokens import AUDIENCE, TOKEN_TIMEOUT_SECONDS
from paddlewheel.testkit.charts import CHARTS, Manifest, Manifests, helm, named, pod_specs, render

TOKENS = ("crds.install=false",)
KINDS = ("services", "agents", "evaluators", "watchers")


@pytest.fixture(scope="module")
def manifests() -> Manifests:
    return render("paddlewheel", *TOKENS)


def pods(manifests: Manifests) -> dict[str, Manifest]:
    return dict(pod_specs(manifests))


def sources(pod: Manifest) -> list[Manifest]:
    return [s for v in pod["volumes"] if v["name"] == "bus" for s in v["projected"]["sources"]]


def rights_of(role: Manifest) -> dict[tuple[str, str], list[str]]:
    return {
        (group, resource): rule["verbs"]
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def bindings_of(manifests: Manifests, account: str) -> set[tuple[str, str, str]]:
    """Kind and namespace of each, and the role."""
    return {
        (m["kind"], m["metadata"].get("namespace", ""), m["roleRef"]["name"])
        for m in manifests
        if m["kind"].endswith("Binding") and any(s["name"] == account for s in m["subjects"])
    }


REVIEWS = ("ClusterRoleBinding", "", "system:auth-delegator")
"""Kubernetes' own role: it may create TokenReviews and SubjectAccessReviews."""


def test_bus_auth_may_review_and_fill_its_own_secrets_and_nothing_else(manifests: Manifests) -> None:
    assert bindings_of(manifests, "bus-auth") == {REVIEWS, ("RoleBinding", "paddle-system", "bus-auth")}
    rules = named(manifests, "Role", "bus-auth")["rules"]
    assert {rule["resources"][0]: (rule["resourceNames"], rule["verbs"]) for rule in rules} == {
        "secrets": (["nats-ca", "nats-tls-server", "bus-auth-key"], ["get", "patch"]),
        "configmaps": (["bus-ca"], ["get", "patch"]),
    }

    others = render("paddlewheel", *TOKENS, "nats.tls.existing=true")
    assert bindings_of(others, "bus-auth") == {REVIEWS}


def test_a_binding_of_an_earlier_release_gets_no_other_role(manifests: Manifests) -> None:
    """The API server refuses that: the upgrade would fail at each attempt."""
    earlier = {"paddlewheel-bus-auth": "paddlewheel-bus-auth"}
    for manifest in manifests:
        if manifest["kind"] == "ClusterRoleBinding" and (name := manifest["metadata"]["name"]) in earlier:
            assert manifest["roleRef"]["name"] == earlier[name]


def test_a_team_is_joined_by_a_binding_to_its_role() -> None:
    teams = ("nats.subscribers[0].name=subscriber", "nats.subscribers[1].name=vision")
    room = ("nats.jetstream.maxFileStore=4Gi", "nats.persistence.size=5Gi")
    manifests = render("paddlewheel", *TOKENS, *teams, *room)

    for name in ("subscriber", "vision"):
        [rule] = named(manifests, "Role", f"bus-team-{name}")["rules"]
        assert rule == {
            "apiGroups": ["events.paddlepaddle.org"],
            "resources": ["busteams"],
            "resourceNames": [name],
            "verbs": ["use"],
        }
    bound = [m for m in manifests if m["kind"] == "RoleBinding" and "bus-team" in m["roleRef"]["name"]]
    assert bound == []


@pytest.mark.parametrize("profile", ["development", "production"])
def test_no_value_of_the_bus_restarts_the_servers(profile: str) -> None:
    """The container `config` has the server reload what changes."""
    plain = render("paddlewheel", *TOKENS, f"profile={profile}")
    changed = render(
        "paddlewheel",
        *TOKENS,
        f"profile={profile}",
        "nats.subscribers[0].name=vision",
        "nats.subscribers[0].namespaces={a}",
        "nats.services[0].name=notebooks",
        "nats.services[0].publishes[0].context=notebooks",
        "nats.streams.PW_JOBS.maxBytes=1Gi",
        "nats.jetstream.maxFileStore=6Gi",
        "nats.roleLimits.watchers=7",
        "nats.tls.serverNames={bus.example}",
        "rollout=b",
    )

    before, after = (named(each, "StatefulSet", "nats")["spec"] for each in (plain, changed))
    assert before == after
    config, other = (named(each, "ConfigMap", "nats-config")["data"] for each in (plain, changed))
    assert config != other


def test_nobody_uses_up_the_servers_connections() -> None:
    limits = [f"nats.roleLimits.{kind}={number}" for number, kind in enumerate(KINDS, 1)]
    config = named(render("paddlewheel", *TOKENS, *limits), "ConfigMap", "nats-config")["data"]["nats.conf"]

    found = {
        name: json.loads(account)["limits"]["max_connections"]
        for name, account in re.findall(r'^  "([^"]+)": (\{.*\})$', config, re.MULTILINE)
        if name not in ("PADDLEWHEEL", "SYS", "subscriber")
    }
    services = {"job-controller", "dataset-controller", "trigger-controller", "serving-controller"}
    assert found == {**dict.fromkeys(services, 1), "cache-runtime": 2, "evaluator": 3, "WATCHERS": 4}


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
        wanted = {"path": "token", "audience": AUDIENCE, "expirationSeconds": TOKEN_TIMEOUT_SECONDS}
        assert token["serviceAccountToken"] == wanted
        assert pods(manifests)[name]["serviceAccountName"], name
    assert clients >= {"job-controller", "dataset-controller", "bus-installer"}
    assert sources(pods(manifests)["bus-auth"]) == []
    others = pods(render("paddlewheel", *TOKENS, "nats.tls.existing=true"))
    assert [list(s) for s in sources(others["bus-auth"])] == [["configMap"]]


def test_no_role_has_a_certificate(manifests: Manifests) -> None:
    made = {m["metadata"]["name"] for m in manifests if m["kind"] == "Secret"}

    assert {"nats-ca", "nats-tls-server", "bus-auth-key"} <= made
    assert not [name for name in made if name.startswith("nats-tls-") and name != "nats-tls-server"]


@pytest.mark.parametrize(("values", "own"), [((), {}), (("nats.tls.existing=true",), {"bus-auth": ["all"]})])
def test_bus_auths_private_key_is_mounted_by_bus_auth_at_most(
    values: tuple[str, ...], own: dict[str, list[str]]
) -> None:
    holders = {
        name: [item["key"] for item in volume["secret"].get("items", [{"key": "all"}])]
        for name, pod in pods(render("paddlewheel", *TOKENS, *values)).items()
        for volume in pod["volumes"]
        if volume.get("secret", {}).get("secretName") == "bus-auth-key"
    }

    assert holders == {**own, "nats": ["tls.crt"]}


def test_an_account_of_another_namespace_can_be_made_an_evaluator(manifests: Manifests) -> None:
    [rule] = named(manifests, "Role", "bus-evaluator")["rules"]

    assert rule == {
        "apiGroups": ["events.paddlepaddle.org"],
        "resources": ["busroles"],
        "resourceNames": ["evaluator"],
        "verbs": ["use"],
    }
    assert not [m for m in manifests if m.get("roleRef", {}).get("name") == "bus-evaluator"]


@pytest.mark.parametrize(
    ("role", "accounts"),
    [("bus-readers", ["subscriber"]), ("bus-operators", ["evaluator", "operator", "subscriber"])],
)
def test_people_get_tokens_of_the_accounts_for_people_alone(
    manifests: Manifests, role: str, accounts: list[str]
) -> None:
    tokens, *_ = named(manifests, "Role", role)["rules"]

    assert tokens == {
        "apiGroups": [""],
        "resources": ["serviceaccounts/token"],
        "resourceNames": accounts,
        "verbs": ["create"],
    }


@pytest.mark.parametrize(("profile", "servers"), [("development", 1), ("production", 3)])
@pytest.mark.parametrize("role", ["bus-readers", "bus-operators"])
def test_people_forward_ports_to_the_servers_alone(role: str, profile: str, servers: int) -> None:
    """The release has pods with other ports: metrics, webhooks and the agents of data sets."""
    rules = named(render("paddlewheel", *TOKENS, f"profile={profile}"), "Role", role)["rules"]
    [rule] = [rule for rule in rules if "pods/portforward" in rule["resources"]]
    assert rule["resourceNames"] == [f"nats-{number}" for number in range(servers)]


@pytest.mark.parametrize("role", sorted({role.name for role in ROLES} - {"cache-runtime"}))
def test_the_account_of_each_role_is_in_the_releases_namespace(manifests: Manifests, role: str) -> None:
    """dataset-controller's part of the chart has the account of agents."""
    assert named(manifests, "ServiceAccount", role)


def test_the_servers_configuration_has_no_users_but_bus_auth(manifests: Manifests) -> None:
    config = named(manifests, "ConfigMap", "nats-config")["data"]["nats.conf"]

    assert '"users"' not in config
    assert config.count(" users: [") == 1
    assert "verify_and_map" not in config.split("cluster {")[0]


def test_with_certificates_of_ones_own_no_key_is_made() -> None:
    manifests = render("paddlewheel", *TOKENS, "nats.tls.existing=true")

    made = {m["metadata"]["name"] for m in manifests if m["kind"] in ("Secret", "ConfigMap")}
    assert not made & {"bus-auth-key", "bus-ca", "nats-tls-server"}
    assert "bus-auth" in pods(manifests)


MEMBERS = ("nats.subscribers[0].name=vision", "nats.subscribers[0].members={team-a/notifier,team-b/mail.v2}")


def test_members_of_a_team_belong_to_it_and_may_watch_its_namespaces() -> None:
    manifests = render("paddlewheel", *TOKENS, *MEMBERS, "nats.subscribers[0].namespaces={team-a,team-c}")

    for account in ("notifier", "mail.v2"):
        assert bindings_of(manifests, account) == {
            ("RoleBinding", "paddle-system", "bus-team-vision"),
            ("RoleBinding", "team-a", "paddlewheel-watch-facts"),
            ("RoleBinding", "team-c", "paddlewheel-watch-facts"),
        }
    [subjects] = [m["subjects"] for m in manifests if m["metadata"]["name"] == "bus-team-vision-members"]
    assert subjects == [
        {"kind": "ServiceAccount", "namespace": "team-a", "name": "notifier"},
        {"kind": "ServiceAccount", "namespace": "team-b", "name": "mail.v2"},
    ]


def test_members_of_a_team_of_all_namespaces_may_watch_all() -> None:
    assert bindings_of(render("paddlewheel", *TOKENS, *MEMBERS), "notifier") == {
        ("RoleBinding", "paddle-system", "bus-team-vision"),
        ("ClusterRoleBinding", "", "paddlewheel-watch-facts"),
    }


def test_members_of_a_service_connect_as_it_and_may_nothing_else() -> None:
    path = "nats.services[0]"
    values = (f"{path}.name=notebooks", f"{path}.follows={{jobs}}", f"{path}.members={{team-a/notebooks}}")

    assert bindings_of(render("paddlewheel", *TOKENS, *values), "notebooks") == {
        ("RoleBinding", "paddle-system", "bus-notebooks")
    }


def test_a_member_is_an_account_with_its_namespace() -> None:
    value = "nats.subscribers[0].name=vision,nats.subscribers[0].members={notifier}"
    ended = helm("template", "release", str(CHARTS / "paddlewheel"), "--set", value)
    assert ended.returncode != 0
    assert "members" in ended.stderr
