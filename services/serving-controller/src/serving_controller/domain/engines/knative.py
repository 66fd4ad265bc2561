"""Knative Serving: one Service of Knative's, whose revisions and traffic are named here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddlewheel.contracts.crds.paddleservice import HPA
from paddlewheel.contracts.objects import generation_of, spec_of, status_of
from paddlewheel.contracts.reasons import Reason
from serving_controller.domain import names
from serving_controller.domain.engines.kubernetes import by_revision, private_service
from serving_controller.domain.engines.port import Child, Desired, RevisionState, RouteState, Wanted, metadata
from serving_controller.domain.model import Children, Raw
from serving_controller.domain.pods import is_ready, trouble_of
from serving_controller.domain.template import labels
from serving_controller.domain.template import pod as pod_of
from serving_controller.timing import KNATIVE_REQUEST_TIMEOUT_SECONDS

AUTOSCALING = "autoscaling.knative.dev"
NO_GC = "serving.knative.dev/no-gc"
"""Revisions are kept and removed by this service: one wanted for a return must not vanish."""
QUEUE_PORT = "queue-port"
"""Port of Knative's proxy in every pod, which counts the requests."""

Manifest = dict[str, Any]


class KnativeEngine:
    """Engine over Knative's Service.

    The template is that of the revision that is being tried, or of the stable one, and is written only while
    no revision of its name exists: Knative refuses another template under the same name.
    """

    def render(self, desired: Desired, children: Children) -> tuple[Child, ...]:
        existing = children.get(names.KNATIVE_REVISION, {})
        kept = tuple(_kept_revision(desired, name) for name in existing if _is_kept(desired, name, children))
        return (_service(desired, children), private_service(desired, QUEUE_PORT), *kept)

    def revisions(self, children: Children, pods: tuple[Raw, ...]) -> Mapping[str, RevisionState]:
        sorted_out = by_revision(pods)
        found = children.get(names.KNATIVE_REVISION, {})
        return {name: _state(revision, sorted_out[name]) for name, revision in found.items()}

    def route(self, desired: Desired, children: Children) -> RouteState:
        found = children.get(names.KNATIVE_SERVICE, {}).get(desired.name)
        return (
            RouteState(message="the Service of Knative is being made")
            if found is None
            else _route_state(found)
        )


def _service(desired: Desired, children: Children) -> Child:
    existing = children.get(names.KNATIVE_REVISION, {})
    wanted = _next_template(desired, existing)
    manifest = {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": metadata(desired, desired.name),
        "spec": {"template": _template(desired, wanted), "traffic": _traffic(desired)},
    }
    kept: Manifest = {"traffic": _traffic(desired)}
    if wanted.name not in existing and wanted.name != _written(desired, children):
        kept["template"] = _template(desired, wanted)
    return Child(names.KNATIVE_SERVICE, desired.name, manifest, {"spec": kept})


def _next_template(desired: Desired, existing: Mapping[str, Raw]) -> Wanted:
    """The stable revision exists before another is tried, or it might never be made."""
    stable = desired.wanted(desired.stable) or desired.revisions[0]
    newest = [wanted for name in desired.newest if (wanted := desired.wanted(name))]
    missing = (wanted for wanted in (stable, *newest) if wanted.name not in existing)
    return next(missing, newest[0] if newest else stable)


def _written(desired: Desired, children: Children) -> str:
    """The revision that the template names now, "" without a Service."""
    found = children.get(names.KNATIVE_SERVICE, {}).get(desired.name) or {}
    template = spec_of(found).get("template") or {}
    return str((template.get("metadata") or {}).get("name", ""))


def _template(desired: Desired, wanted: Wanted) -> Manifest:
    spec = {
        **pod_of(wanted.revision, desired.options),
        "containerConcurrency": int(wanted.revision.autoscaling["concurrencyLimit"]),
        "timeoutSeconds": KNATIVE_REQUEST_TIMEOUT_SECONDS,
    }
    (own,) = spec["containers"]
    _probe_as_knative_does(own, desired.options.startup_seconds)
    return {
        "metadata": {
            "name": wanted.name,
            "labels": {**desired.labels, **labels(desired.name, wanted.name)},
            "annotations": {
                **_annotations(wanted),
                **_limits(desired),
                **_start(desired, wanted),
                NO_GC: "true",
            },
        },
        "spec": spec,
    }


def _probe_as_knative_does(container: Manifest, startup_seconds: int) -> None:
    """Readiness without times is looked at every 50 ms by Knative, which fills in the port as well. With a
    startup probe it would wait for the kubelet instead, and the first request after zero with it. So liveness
    has to wait until every start is over."""
    del container["startupProbe"]
    container["readinessProbe"] = _check_in(container["readinessProbe"])
    alive = container["livenessProbe"]
    container["livenessProbe"] = alive | _check_in(alive) | {"initialDelaySeconds": startup_seconds}


def _check_in(probe: Manifest) -> Manifest:
    """What it asks, without the port."""
    checks = {name: probe[name] for name in ("httpGet", "tcpSocket") if name in probe}
    return {
        name: {key: item for key, item in check.items() if key != "port"} for name, check in checks.items()
    }


def _annotations(wanted: Wanted) -> dict[str, str]:
    """The autoscaler's, by the names that the original wrote."""
    scaling = wanted.revision.autoscaling
    # Knative's own autoscaler knows no CPU, and that of Kubernetes nothing else.
    is_hpa = scaling["class"] == HPA or scaling["metric"] == "cpu"
    values = {
        "class": HPA if is_hpa else scaling["class"],
        "metric": "cpu" if is_hpa else scaling["metric"],
        "target": scaling["target"],
        "targetUtilizationPercentage": scaling["targetUtilizationPercentage"],
        "window": scaling["window"],
        "panicWindowPercentage": scaling["panicWindowPercentage"],
        "panicThresholdPercentage": scaling["panicThresholdPercentage"],
    }
    return {f"{AUTOSCALING}/{name}": value for name, value in values.items()}


def _limits(desired: Desired) -> dict[str, str]:
    return {
        f"{AUTOSCALING}/minScale": str(desired.min_scale),
        f"{AUTOSCALING}/maxScale": str(desired.max_scale),
    }


def _start(desired: Desired, wanted: Wanted) -> dict[str, str]:
    """Ready with fewer pods it would get at once what many have answered. Knative waits for all that it is
    told, so never for more than there may be."""
    number = min(wanted.start_with, desired.max_scale or wanted.start_with)
    return {f"{AUTOSCALING}/initial-scale": str(number)} if number > 1 else {}


def _traffic(desired: Desired) -> list[Manifest]:
    """By name, never `latest`. Only ready revisions get any, beside the stable one."""
    shares = sorted((name, percent) for name, percent in desired.traffic.items() if percent)
    return [{"revisionName": name, "percent": percent, "latestRevision": False} for name, percent in shares]


def _is_kept(desired: Desired, name: str, children: Children) -> bool:
    """Wanted, or named by the template, from which Knative would make it anew."""
    return desired.wanted(name) is not None or name == _written(desired, children)


def _kept_revision(desired: Desired, name: str) -> Child:
    """The limits of the number of pods change in the revision itself: no new revision is needed for them."""
    return Child(names.KNATIVE_REVISION, name, None, {"metadata": {"annotations": _limits(desired)}})


# What is observed


def _state(revision: Raw, pods: list[Raw]) -> RevisionState:
    status = status_of(revision)
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    ready = conditions.get("Ready", {})
    is_current = int(status.get("observedGeneration", 0)) >= generation_of(revision)
    running = sum(1 for pod in pods if is_ready(pod))
    if is_current and ready.get("status") == "True":
        # Without requests it may have no pods: the first request brings one.
        return RevisionState(True, True, len(pods), running, Reason.ALL_PODS_RUNNING)
    reason, message = trouble_of(pods) or _said(ready)
    return RevisionState(False, running > 0, len(pods), running, reason, message)


def _said(ready: Raw) -> tuple[Reason, str]:
    if ready.get("status") != "False":
        return Reason.PODS_STARTING, ""
    return Reason.REVISION_FAILED, f"{ready.get('reason', '')}: {ready.get('message', '')}"


def _route_state(service: Raw) -> RouteState:
    status = status_of(service)
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    routes, url = conditions.get("RoutesReady", {}), str(status.get("url", ""))
    traffic = {
        str(target.get("revisionName", "")): int(target.get("percent") or 0)
        for target in status.get("traffic") or ()
        if target.get("percent")
    }
    if routes.get("status") == "True":
        is_current = int(status.get("observedGeneration", 0)) >= generation_of(service)
        return RouteState(True, traffic if is_current else {}, url, True, Reason.ROUTED)
    words = f"{routes.get('reason', '')}: {routes.get('message', '')}".strip(": ")
    reason = Reason.ROUTE_REFUSED if routes.get("status") == "False" else Reason.ROUTE_PENDING
    return RouteState(False, traffic, url, True, reason, words)
