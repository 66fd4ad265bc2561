"""Plain Kubernetes: a Deployment, a Service and an autoscaler for each revision, and a route of the Gateway
API.

Without the Gateway API, or without a Gateway, requests cannot be spread: the Service of the default endpoint
is then the only way in.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import generation_of, is_deleting, key_of, labels_of, spec_of, status_of
from paddlewheel.contracts.reasons import Reason
from serving_controller.domain import names
from serving_controller.domain.engines.port import Child, Desired, RevisionState, RouteState, Wanted, metadata
from serving_controller.domain.model import Children, Raw
from serving_controller.domain.pods import end_of, is_ready, is_started, trouble_of
from serving_controller.domain.template import labels, share_models
from serving_controller.domain.template import pod as pod_of
from serving_controller.timing import ROUTE_LEAVE_GRACE_SECONDS, TERMINATION_GRACE_SECONDS

PORT = 80
"""Of the Services, whatever the port of the container is."""
NO_LIMIT = 1000
"""Pods of an autoscaler that has no limit; Kubernetes wants a number."""
NO_GATEWAY_API = "the cluster has no Gateway API, so requests cannot be spread: install it, or Knative"
NOT_INTRODUCED = "the gateway has not taken the revision into its route yet"
NO_GATEWAY = "no Gateway is set, so requests cannot be spread: set servingController.gateway of the chart"

_REFUSALS = {"Accepted": Reason.ROUTE_REFUSED, "ResolvedRefs": Reason.ROUTE_PENDING}
"""By the condition that is False. A gateway finds no backend for a moment after a Service was made."""
_REFUSALS_OF_ALL = {"Accepted": Reason.ROUTE_REFUSED}
"""While a revision is introduced: a backend that is not found may be its own, which gets no requests."""

Manifest = dict[str, Any]


class KubernetesEngine:
    """Engine over Kubernetes' own kinds."""

    def render(self, desired: Desired, children: Children) -> tuple[Child, ...]:
        """Services before the route that leads to them."""
        existing = children.get(names.DEPLOYMENT, {})
        deployments = tuple(_deployment(desired, w, existing.get(w.name)) for w in desired.revisions)
        services = tuple(_service(desired, wanted) for wanted in desired.revisions)
        autoscalers = tuple(_autoscaler(desired, w) for w in desired.revisions if w.pods and _scales(desired))
        return (*deployments, *services, *autoscalers, *_entry(desired, children))

    def revisions(self, children: Children, pods: tuple[Raw, ...]) -> Mapping[str, RevisionState]:
        sorted_out = by_revision(pods)
        found, reachable = children.get(names.DEPLOYMENT, {}), _reachable(children)
        states = {name: _state(found[name], sorted_out[name], reachable[name]) for name in found}
        return {name: _as_routed(state, name, children) for name, state in states.items()}

    def route(self, desired: Desired, children: Children) -> RouteState:
        if not _is_routed(desired):
            return _without_route(desired, children)
        found = children.get(names.ROUTE, {}).get(desired.name)
        host = names.host(desired.name, desired.namespace, desired.options.domain)
        return _route_state(found, f"http://{host}")


def _deployment(desired: Desired, wanted: Wanted, found: Raw | None) -> Child:
    name = wanted.name
    own = labels(desired.name, name)
    spec: Manifest = {
        "replicas": _start(desired, wanted),
        "revisionHistoryLimit": 0,
        "selector": {"matchLabels": own},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {"metadata": {"labels": {**desired.labels, **own}}, "spec": _pod(desired, wanted)},
    }
    manifest = _manifest("apps/v1", names.DEPLOYMENT, desired, name, spec, revision=name)
    return Child(names.DEPLOYMENT, name, manifest, _kept_replicas(desired, wanted, found))


def _pod(desired: Desired, wanted: Wanted) -> Manifest:
    made = pod_of(wanted.revision, desired.options)
    made["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": ROUTE_LEAVE_GRACE_SECONDS}}}
    share_models(made, wanted.revision, desired.options.model_cache, desired.namespace)
    return made | {"terminationGracePeriodSeconds": TERMINATION_GRACE_SECONDS}


def _start(desired: Desired, wanted: Wanted) -> int:
    if not wanted.pods:
        return 0
    most = desired.max_scale or NO_LIMIT
    return max(1, desired.min_scale, min(wanted.start_with, most))


def _kept_replicas(desired: Desired, wanted: Wanted, found: Raw | None) -> Manifest:
    """An autoscaler owns the number, but it leaves 0 at 0."""
    is_autoscaled = wanted.pods and _scales(desired) and found is not None
    if is_autoscaled and int(spec_of(found or {}).get("replicas", 1)) > 0:
        return {}
    return {"spec": {"replicas": _start(desired, wanted)}}


def _service(desired: Desired, wanted: Wanted) -> Child:
    spec = _service_spec(labels(desired.name, wanted.name))
    name = names.pods_of(wanted.name)
    manifest = _manifest("v1", names.SERVICE_KIND, desired, name, spec, revision=wanted.name)
    return Child(names.SERVICE_KIND, name, manifest, {"spec": spec})


def _service_spec(selector: Mapping[str, str]) -> Manifest:
    port = {"name": names.PORT_NAME, "port": PORT, "protocol": "TCP", "targetPort": names.PORT_NAME}
    return {"selector": dict(selector), "ports": [port]}


def _scales(desired: Desired) -> bool:
    """The number of pods is not fixed."""
    return desired.max_scale != max(1, desired.min_scale)


def _autoscaler(desired: Desired, wanted: Wanted) -> Child:
    """What may get all requests at once keeps as many pods as the stable revision."""
    scaling = wanted.revision.autoscaling
    by_cpu = scaling["metric"] == "cpu"
    percent = int(float(scaling["target"] if by_cpu else scaling["targetUtilizationPercentage"]))
    target = {"type": "Utilization", "averageUtilization": max(1, percent)}
    least = _start(desired, wanted) if wanted.name in desired.newest else max(1, desired.min_scale)
    spec: Manifest = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": names.DEPLOYMENT, "name": wanted.name},
        "minReplicas": least,
        "maxReplicas": desired.max_scale or NO_LIMIT,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }
    name = names.pods_of(wanted.name)
    manifest = _manifest("autoscaling/v2", names.AUTOSCALER, desired, name, spec, revision=wanted.name)
    return Child(names.AUTOSCALER, name, manifest, {"spec": spec})


def _entry(desired: Desired, children: Children) -> tuple[Child, ...]:
    """The ways in: for the cluster's own pods, and for everybody else."""
    private = private_service(desired, names.PORT_NAME)
    return (private, _http_route(desired, _weights(desired, children))) if _is_routed(desired) else (private,)


def private_service(desired: Desired, target_port: str) -> Child:
    """`<name>-default-private`, which leads to the stable revision."""
    name, spec = names.private_service(desired.name), _service_spec(labels(desired.name, desired.stable))
    spec["ports"][0]["targetPort"] = target_port
    return Child(
        names.SERVICE_KIND, name, _manifest("v1", names.SERVICE_KIND, desired, name, spec), {"spec": spec}
    )


def _is_routed(desired: Desired) -> bool:
    return desired.has_gateway_api and bool(desired.options.gateway)


def _weights(desired: Desired, children: Children) -> dict[str, int]:
    """Percent by revision; 0 introduces one that has endpoints to the gateway.

    A gateway reads routes and endpoints through watches of their own, in no common order. Led at once to a
    revision whose endpoints it does not have yet, it would answer 503.
    """
    weights = {name: percent for name, percent in desired.traffic.items() if percent}
    reachable = _reachable(children)
    return {name: 0 for name in desired.newest if reachable[name]} | weights


def _http_route(desired: Desired, weights: Mapping[str, int]) -> Child:
    namespace, _, gateway = desired.options.gateway.rpartition("/")
    parent = {"name": gateway, **({"namespace": namespace} if namespace else {})}
    backends = [
        {"name": names.pods_of(name), "port": PORT, "weight": weight}
        for name, weight in sorted(weights.items())
    ]
    spec = {
        "parentRefs": [parent],
        "hostnames": [names.host(desired.name, desired.namespace, desired.options.domain)],
        "rules": [{"backendRefs": backends}],
    }
    manifest = _manifest("gateway.networking.k8s.io/v1", names.ROUTE, desired, desired.name, spec)
    return Child(names.ROUTE, desired.name, manifest, {"spec": spec})


def _manifest(
    api_version: str, kind: str, desired: Desired, name: str, spec: Manifest, *, revision: str = ""
) -> Manifest:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata(desired, name, revision),
        "spec": spec,
    }


# What is observed


def by_revision(pods: Iterable[Raw]) -> Mapping[str, list[Raw]]:
    """Pods that are to stay, by the revision that they belong to; none for any other name."""
    sorted_out: defaultdict[str, list[Raw]] = defaultdict(list)
    for pod in pods:
        if not is_deleting(pod):
            sorted_out[labels_of(pod).get(names.LABEL_REVISION, "")].append(pod)
    return sorted_out


def _reachable(children: Children) -> Counter[str]:
    """Pods by revision that the gateway can know: a pod is ready some time before its Service has it."""
    found: Counter[str] = Counter()
    for endpoints in children.get(names.SLICE, {}).values():
        service = labels_of(endpoints).get(names.LABEL_OF_SLICE, "")
        ready = [e for e in endpoints.get("endpoints") or () if (e.get("conditions") or {}).get("ready")]
        found[names.revision_of_backend(service)] += len(ready)
    return found


def _state(deployment: Raw, pods: list[Raw], reachable: int) -> RevisionState:
    wanted, status = int(spec_of(deployment).get("replicas", 1)), status_of(deployment)
    is_current = int(status.get("observedGeneration", 0)) >= generation_of(deployment)
    ready = int(status.get("readyReplicas") or 0)
    replicas, usable = int(status.get("replicas") or 0), min(ready, reachable)
    if is_current and 0 < wanted <= usable:
        return RevisionState(True, True, replicas, ready, Reason.ALL_PODS_RUNNING)
    reason, message = trouble_of(pods) or _refused(status) or _starting(pods, _silent_port(deployment))
    return RevisionState(False, usable > 0, replicas, ready, reason, message)


def _as_routed(state: RevisionState, name: str, children: Children) -> RevisionState:
    """A revision that the gateway of an existing route does not know yet is not complete."""
    route = next(iter(children.get(names.ROUTE, {}).values()), None)
    if route is None or not state.complete:
        return state
    weight = _traffic(route).get(name)
    if weight or (weight == 0 and _has_taken(route) and _has_found_all(route)):
        return state
    return replace(state, complete=False, reason=Reason.ROUTE_PENDING, message=NOT_INTRODUCED)


def _starting(pods: list[Raw], silent: str) -> tuple[Reason, str]:
    if pods and all(is_ready(pod) for pod in pods):
        return Reason.PODS_STARTING, "the Service of the revision does not list all ready pods yet"
    is_running = any(is_started(pod) and not is_ready(pod) for pod in pods)
    message = end_of(pods) or (silent if is_running else "")
    return Reason.PODS_STARTING if pods else Reason.PODS_PENDING, message


def _silent_port(deployment: Raw) -> str:
    """Why a container may run and not be ready."""
    (own, *_) = spec_of(deployment)["template"]["spec"]["containers"]
    if "httpGet" in own["startupProbe"]:
        return "the container runs, and has not loaded its model yet"
    port = own["ports"][0]["containerPort"]
    return f"the container runs, but nothing answers on port {port} yet: check that it listens on this port"


def _refused(status: Raw) -> tuple[Reason, str] | None:
    """Pods that the API server did not take, as for a quota."""
    failed = next(
        (c for c in status.get("conditions") or () if (c["type"], c["status"]) == ("ReplicaFailure", "True")),
        None,
    )
    return (Reason.FAILED_CREATE, str(failed.get("message", ""))) if failed else None


def _without_route(desired: Desired, children: Children) -> RouteState:
    """The Service leads to the stable revision."""
    found = children.get(names.SERVICE_KIND, {}).get(names.private_service(desired.name))
    why = NO_GATEWAY if desired.has_gateway_api else NO_GATEWAY_API
    if found is None:
        return RouteState(can_split=False, message=why)
    revision = str((spec_of(found).get("selector") or {}).get(names.LABEL_REVISION, ""))
    return RouteState(True, {revision: 100}, "", False, Reason.SERVICE_ONLY, why)


def _route_state(route: Raw | None, url: str) -> RouteState:
    if route is None:
        return RouteState(url=url, message="the route is being made")
    traffic = _traffic(route)
    conditions = _route_conditions(route)
    refusals = _REFUSALS if all(traffic.values()) else _REFUSALS_OF_ALL
    for condition in conditions:
        if condition["status"] == "False" and condition["type"] in refusals:
            words = f"{condition.get('reason', '')}: {condition.get('message', '')}"
            return RouteState(False, {}, url, True, refusals[condition["type"]], words)
    if not any(c["type"] == "Accepted" for c in conditions):
        message = "no gateway has taken the route: check servingController.gateway of the chart"
        return RouteState(False, {}, url, True, Reason.ROUTE_PENDING, message)
    if not _has_taken(route):
        # It leads where it led before; requests are answered.
        return RouteState(True, {}, url, True, Reason.ROUTED)
    return RouteState(True, traffic, url, True, Reason.ROUTED)


def _route_conditions(route: Raw) -> list[Raw]:
    """Of the gateways that the route names now: entries of former ones may stay."""
    wanted = [_gateway_of(parent, route) for parent in spec_of(route).get("parentRefs") or ()]
    parents = status_of(route).get("parents") or ()
    own = [parent for parent in parents if _gateway_of(parent.get("parentRef") or {}, route) in wanted]
    return [c for parent in own for c in parent.get("conditions") or ()]


def _gateway_of(ref: Raw, route: Raw) -> Key:
    return Key(str(ref.get("namespace") or key_of(route).namespace), str(ref.get("name", "")))


def _has_taken(route: Raw) -> bool:
    """The gateway works with what the route says now."""
    now = generation_of(route)
    accepted = [c for c in _route_conditions(route) if c["type"] == "Accepted"]
    return bool(accepted) and all(int(c.get("observedGeneration", 0)) >= now for c in accepted)


def _has_found_all(route: Raw) -> bool:
    """The gateway knows every backend of the route."""
    return all(c["status"] != "False" for c in _route_conditions(route))


def _traffic(route: Raw) -> dict[str, int]:
    rules = spec_of(route).get("rules") or ()
    backends = [b for rule in rules for b in rule.get("backendRefs") or ()]
    return {names.revision_of_backend(str(b["name"])): int(b.get("weight", 1)) for b in backends}
