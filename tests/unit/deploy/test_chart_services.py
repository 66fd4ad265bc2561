"""The chart with `nats.services`: accounts and roles of services of others."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from paddlewheel.bus.admin.permissions import FACTS, permissions_of
from paddlewheel.bus.admin.services import DeclaredService, Publication, declared_with
from paddlewheel.bus.streams import STREAMS
from paddlewheel.testkit.chart_bus import services_of
from paddlewheel.testkit.charts import CHARTS, Manifests, helm, named, pod_specs, render

FIRST, SECOND = "nats.services[0]", "nats.services[1]"
BASE = ("crds.install=false", "nats.jetstream.maxFileStore=4Gi")
SERVICES = (
    f"{FIRST}.name=notebooks",
    f"{FIRST}.publishes[0].context=notebooks",
    f"{FIRST}.publishes[0].maxBytes=16Mi",
    f"{FIRST}.publishes[0].maxAge=168h",
    f"{FIRST}.follows={{jobs,datasets}}",
    f"{SECOND}.name=reports",
    f"{SECOND}.publishes[0].context=reports",
    f"{SECOND}.follows={{notebooks}}",
)
TEAMS = (
    "nats.subscribers[0].name=subscriber",
    "nats.subscribers[1].name=vision",
    "nats.subscribers[1].namespaces={a}",
)
DECLARED = (
    DeclaredService(
        name="notebooks",
        publishes=(Publication(context="notebooks", max_bytes="16Mi", max_age="168h"),),
        follows=("jobs", "datasets"),
    ),
    DeclaredService(
        name="reports",
        publishes=(Publication(context="reports", max_bytes="64Mi", max_age="7d"),),
        follows=("notebooks",),
    ),
)


@pytest.fixture(scope="module")
def manifests() -> Manifests:
    return render("paddlewheel", *BASE, *SERVICES, *TEAMS)


def accounts_of(manifests: Manifests) -> dict[str, dict[str, Any]]:
    config = named(manifests, "ConfigMap", "nats-config")["data"]["nats.conf"]
    return {n: json.loads(body) for n, body in re.findall(r'^  "([^"]+)": (\{.*\})$', config, re.MULTILINE)}


def test_installer_and_bus_auth_read_what_the_values_declare() -> None:
    assert services_of(render("paddlewheel", *BASE, *SERVICES)) == DECLARED
    tokens = render("paddlewheel", *BASE, *SERVICES)
    [container] = dict(pod_specs(tokens))["bus-auth"]["containers"]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    [installer] = dict(pod_specs(tokens))["bus-installer"]["containers"]
    assert {"name": "BUS_INSTALLER_SERVICES", "value": env["BUS_AUTH_SERVICES"]} in installer["env"]


def test_on_a_server_of_ones_own_the_installer_makes_them_too() -> None:
    own = ("nats.enabled=false", "nats.url=nats://bus.example:4222")
    assert services_of(render("paddlewheel", *BASE, *SERVICES, *own)) == DECLARED


def test_an_account_imports_what_bus_auth_lets_its_users_publish(manifests: Manifests) -> None:
    declared, accounts = declared_with(DECLARED), accounts_of(manifests)

    for service in ("notebooks", "reports"):
        imported = {each["service"]["subject"] for each in accounts[service]["imports"]}
        assert imported == permissions_of(declared.role(service), declared).publish
        assert accounts[service]["limits"] == {"max_connections": 200}


def test_only_the_service_itself_is_given_what_it_imports(manifests: Manifests) -> None:
    exports = accounts_of(manifests)["PADDLEWHEEL"]["exports"]
    given = {each["service"]: each["accounts"] for each in exports if "service" in each}

    assert given["pw.evt.notebooks.>"] == ["notebooks"]
    assert given["$JS.API.CONSUMER.MSG.NEXT.PW_JOBS.notebooks-jobs"] == ["notebooks"]
    assert given["$JS.API.CONSUMER.MSG.NEXT.PW_NOTEBOOKS.reports-notebooks"] == ["reports"]
    strange = [s for s, who in given.items() if {"notebooks", "reports"} & set(who) and len(who) > 1]
    assert strange == []


def test_teams_and_watchers_hear_its_facts_and_teams_have_copies(manifests: Manifests) -> None:
    accounts = accounts_of(manifests)

    def heard(account: str) -> set[str]:
        streams = (each["stream"] for each in accounts[account]["imports"] if "stream" in each)
        return {each["subject"] for each in streams if each["subject"].startswith("pw.live.PW_NOTEBOOKS.")}

    assert heard("WATCHERS") == heard("subscriber") == {"pw.live.PW_NOTEBOOKS.>"}
    assert heard("vision") == {"pw.live.PW_NOTEBOOKS.*.*.*.a.*"}
    for team in ("subscriber", "vision"):
        assert accounts[team]["jetstream"]["max_streams"] == 2 * len(FACTS) + 2
        assert {
            "stream": {"account": "PADDLEWHEEL", "subject": f"pw.mirror.{team}.PW_NOTEBOOKS"}
        } in accounts[team]["imports"]


def test_nothing_is_left_of_the_template(manifests: Manifests) -> None:
    assert "@" not in named(manifests, "ConfigMap", "nats-config")["data"]["nats.conf"]


def test_it_has_a_role_that_nobody_is_bound_to(manifests: Manifests) -> None:
    [rule] = named(manifests, "Role", "bus-notebooks")["rules"]
    assert rule == {
        "apiGroups": ["events.paddlepaddle.org"],
        "resources": ["busroles"],
        "resourceNames": ["notebooks"],
        "verbs": ["use"],
    }
    bound = [
        m for m in manifests if m["kind"].endswith("Binding") and m["roleRef"]["name"] == "bus-notebooks"
    ]
    assert bound == []


def refused(*values: str) -> str:
    """What Helm says; "" when it renders."""
    flags = [part for value in ("crds.install=false", *values) for part in ("--set", value)]
    return helm("template", "release", str(CHARTS / "paddlewheel"), "--namespace", "p", *flags).stderr


def test_streams_of_services_and_their_copies_count_among_what_the_server_keeps() -> None:
    mib = 1024**2
    stored = [stream for stream in (*STREAMS, *FACTS) if stream.storage == "file"]
    needs = sum(stream.max_bytes for stream in stored) // mib + 2 * 16
    values = [value for value in SERVICES if value.startswith(f"{FIRST}.")]

    assert f"({needs}Mi)" in refused(*values, f"nats.jetstream.maxFileStore={needs - 1}Mi")
    assert refused(*values, f"nats.jetstream.maxFileStore={needs}Mi") == ""


@pytest.mark.parametrize(
    ("values", "why"),
    [
        *(
            ((f"{FIRST}.name={name}",), f"nats.services[0].name: {name} is taken; choose a name")
            for name in ("job-controller", "subscriber", "installer", "bus-auth")
        ),
        *(
            (
                (f"{FIRST}.name={name}",),
                f"nats.services[0].name: {name} begins with {prefix}, which the bus uses",
            )
            for name, prefix in (("mirror", "mirror"), ("mirror-a", "mirror"), ("team-a", "team"))
        ),
        (
            ("nats.subscribers[0].name=vision", f"{FIRST}.name=vision"),
            "nats.services[0].name: vision is taken; choose a name that no other service and none of",
        ),
        ((f"{FIRST}.name=a", f"{SECOND}.name=a"), "nats.services[1].name: a is taken"),
        *(
            (
                (f"{FIRST}.name=a", f"{FIRST}.publishes[0].context={context}"),
                f"nats.services[0].publishes: the context {context} is taken; choose one",
            )
            for context in ("jobs", "work", "dlq", "sources")
        ),
        (
            (
                f"{FIRST}.name=a",
                f"{FIRST}.publishes[0].context=b",
                f"{SECOND}.name=c",
                f"{SECOND}.publishes[0].context=b",
            ),
            "nats.services[1].publishes: the context b is taken",
        ),
        (
            (f"{FIRST}.name=a", f"{FIRST}.follows={{jobs,notebooks}}"),
            "nats.services[0].follows: nobody publishes notebooks; name contexts of cache, cacheprogress",
        ),
        ((f"{FIRST}.name=a", f"{FIRST}.follows={{work}}"), "nats.services[0].follows: nobody publishes work"),
        ((f"{FIRST}.name=A",), "nats.services.0.name"),
        ((f"{FIRST}.name=a", f"{FIRST}.publishes[0].context=a-b"), "nats.services.0.publishes.0.context"),
        ((f"{FIRST}.name=a", f"{FIRST}.follows={{jobs,jobs}}"), "nats.services.0.follows"),
    ],
    ids=lambda value: "-".join(value)[-60:] if isinstance(value, tuple) else "",
)
def test_values_that_cannot_be_are_refused_with_the_field_and_the_remedy(
    values: tuple[str, ...], why: str
) -> None:
    assert why in refused(*values)


def test_no_service_has_a_name_that_an_object_of_the_chart_has(manifests: Manifests) -> None:
    """The Role of a service is `bus-<name>`."""
    own = {m["metadata"]["name"] for m in manifests if m["kind"] in ("Role", "RoleBinding")}
    taken = {name.removeprefix("bus-") for name in own if name.startswith("bus-")}
    taken -= {each.name for each in DECLARED}

    assert {"auth", "readers", "operators", "team-vision"} <= taken
    for name in sorted(taken):
        ended = helm("template", "r", str(CHARTS / "paddlewheel"), "--set", f"{FIRST}.name={name}")
        assert ended.returncode != 0, name
        assert f"nats.services[0].name: {name} " in ended.stderr


@pytest.mark.parametrize("values", [(*SERVICES, *TEAMS), (f"{FIRST}.name=x", f"{SECOND}.name=x-members")])
def test_no_object_is_rendered_twice(values: tuple[str, ...]) -> None:
    members = (f"{FIRST}.members={{a/b}}", f"{SECOND}.members={{a/b}}")
    names = [
        (m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"])
        for m in render("paddlewheel", *BASE, *values, *members)
    ]

    assert [name for name in names if names.count(name) > 1] == []
