"""Where the pods of every workload run, and what they carry."""

from __future__ import annotations

from typing import Any

import pytest

from paddlewheel.testkit.charts import CHARTS, Manifest, Manifests, helm, named, render, services

WORKLOADS = {
    "bus-auth",
    "bus-installer",
    "dataset-controller",
    "job-controller",
    "nats",
    "serving-controller",
    "trigger-controller",
}
TOLERATION = {"key": "infra", "operator": "Exists"}
EVERYWHERE = (
    "crds.install=false",
    "nodeSelector.pool=infra",
    "tolerations[0].key=infra,tolerations[0].operator=Exists",
    "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
    ".matchExpressions[0].key=disk",
    "priorityClassName=system-cluster-critical",
    "podAnnotations.team=platform",
)


def templates(manifests: Manifests) -> dict[str, Manifest]:
    """The pod template of every workload by name."""
    return {
        m["metadata"]["name"]: m["spec"]["template"]
        for m in manifests
        if m["kind"] in {"Deployment", "StatefulSet", "DaemonSet", "Job"}
    }


def test_every_workload_is_placed_by_the_values() -> None:
    assert set(templates(services())) == WORKLOADS
    for name, template in templates(render("paddlewheel", *EVERYWHERE)).items():
        pod = template["spec"]
        assert pod["nodeSelector"] == {"pool": "infra"}, name
        assert pod["tolerations"] == [TOLERATION], name
        assert "nodeAffinity" in pod["affinity"], name
        assert pod["priorityClassName"] == "system-cluster-critical", name
        assert template["metadata"]["annotations"]["team"] == "platform", name


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_a_workload_has_values_of_its_own(workload: str) -> None:
    own = f"workloads.{workload}"
    manifests = render(
        "paddlewheel",
        *EVERYWHERE,
        f"{own}.nodeSelector.pool=bus",
        f"{own}.priorityClassName=high",
        f"{own}.podAnnotations.team=bus",
    )

    for name, template in templates(manifests).items():
        mine = name == workload
        assert template["spec"]["nodeSelector"]["pool"] == ("bus" if mine else "infra")
        assert template["spec"]["priorityClassName"] == ("high" if mine else "system-cluster-critical")
        assert template["metadata"]["annotations"]["team"] == ("bus" if mine else "platform")
        assert template["spec"]["tolerations"] == [TOLERATION]


def test_a_workload_may_have_nothing_where_others_have_something() -> None:
    found = templates(render("paddlewheel", *EVERYWHERE, "workloads.nats.priorityClassName="))
    assert {name for name, each in found.items() if "priorityClassName" not in each["spec"]} == {"nats"}


def test_by_default_nothing_is_said_about_nodes() -> None:
    fields = {"nodeSelector", "tolerations", "affinity", "priorityClassName"}
    assert not [name for name, each in templates(services()).items() if fields & set(each["spec"])]


def affinity(*values: str) -> dict[str, Any]:
    rendered = templates(render("paddlewheel", "crds.install=false", "profile=production", *values))
    return dict(rendered["nats"]["spec"]["affinity"])


def test_servers_stay_apart_beside_another_affinity() -> None:
    plain = affinity()
    pinned = affinity(*EVERYWHERE[1:])

    assert pinned["podAntiAffinity"] == plain["podAntiAffinity"]
    assert "nodeAffinity" in pinned
    own = (
        "workloads.nats.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1"
    )
    assert affinity(own) == {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    }


def test_an_unknown_workload_is_refused() -> None:
    ended = helm("template", "r", str(CHARTS / "paddlewheel"), "--set", "workloads.redis.priorityClassName=a")

    assert ended.returncode != 0
    assert "redis" in ended.stderr


def test_metrics_are_monitored_when_asked() -> None:
    assert not [m for m in services() if m["kind"] == "ServiceMonitor"]
    asked = ("serviceMonitor.enabled=true", "serviceMonitor.labels.release=prometheus")
    manifests = render("paddlewheel", "crds.install=false", *asked)

    monitors = {m["metadata"]["name"]: m for m in manifests if m["kind"] == "ServiceMonitor"}
    assert set(monitors) == {"paddlewheel", "cache-runtime"}
    assert all(m["metadata"]["labels"]["release"] == "prometheus" for m in monitors.values())
    service = named(manifests, "Service", "paddlewheel-metrics")
    wanted = monitors["paddlewheel"]["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    [endpoint], [port] = monitors["paddlewheel"]["spec"]["endpoints"], service["spec"]["ports"]
    assert endpoint["port"] == port["name"]
    measured = {
        name: {p["name"] for c in each["spec"]["containers"] for p in c["ports"]}
        for name, each in templates(manifests).items()
        if service["spec"]["selector"].items() <= each["metadata"]["labels"].items()
    }
    # A NATS server has no metrics in Prometheus' form.
    assert set(measured) == WORKLOADS - {"nats"}
    assert all(port["targetPort"] in names for names in measured.values())
    runtime = monitors["cache-runtime"]["spec"]
    assert runtime["selector"]["matchLabels"] == {"app.kubernetes.io/managed-by": "dataset-controller"}
    assert runtime["endpoints"] == [{"port": "service"}]
