"""Checks through the API server whether add-ons are ready."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddlewheel.devcluster.api import AdminApi

NAMESPACES = {"gateway": "paddle-gateway", "knative": "knative-serving"}
"""Add-on to the namespace of its pods."""
_GATEWAYS = {"gateway": "paddlewheel", "knative": "paddlewheel-local"}
_WEBHOOKS = {
    "gateway": (),
    "knative": (
        "mutatingwebhookconfigurations/webhook.serving.knative.dev",
        "validatingwebhookconfigurations/config.webhook.serving.knative.dev",
        "validatingwebhookconfigurations/validation.webhook.serving.knative.dev",
    ),
}


@dataclass(frozen=True)
class AddonStatus:
    """One add-on; `url` is where the host reaches its routes, "" while there is none."""

    name: str
    ready: bool
    url: str


def addon_status(api: AdminApi, addon: str, since: float) -> AddonStatus:
    """The status of one add-on; see `missing`."""
    return AddonStatus(addon, not missing(api, addon, since), gateway_url(api))


def missing(api: AdminApi, addon: str, since: float) -> tuple[str, ...]:
    """The parts of an add-on that are not ready yet.

    Args:
        api: the cluster's API server.
        addon: name of the add-on.
        since: when the cluster was started, in seconds since the epoch. The status of older containers is
            stale.

    Raises:
        Retry: Unreachable.
    """
    parts = (_deployments(api, addon), _pods(api, addon, since), _gateway(api, addon), _webhooks(api, addon))
    return tuple(lack for part in parts for lack in part)


def gateway_url(api: AdminApi) -> str:
    """URL of the gateway for the host, "" when it does not exist: a route is chosen by the Host header."""
    service = api.get(f"/api/v1/namespaces/{NAMESPACES['gateway']}/services/gateway")
    return f"http://{service['spec']['clusterIP']}" if service else ""


def _deployments(api: AdminApi, addon: str) -> Iterator[str]:
    namespace = NAMESPACES[addon]
    found = (api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments") or {"items": []})["items"]
    if not found:
        yield f"the Deployments in namespace {namespace}"
    for deployment in found:
        if not is_rolled_out(deployment):
            yield f"Deployment {namespace}/{deployment['metadata']['name']}"


def _pods(api: AdminApi, addon: str, since: float) -> Iterator[str]:
    namespace = NAMESPACES[addon]
    for pod in (api.get(f"/api/v1/namespaces/{namespace}/pods") or {"items": []})["items"]:
        if "deletionTimestamp" not in pod["metadata"] and not runs_since(pod, since):
            yield f"Pod {namespace}/{pod['metadata']['name']}"


def runs_since(pod: dict[str, Any], since: float) -> bool:
    """Whether all containers of a pod are ready and were started at or after `since`, in whole seconds."""
    containers = pod.get("status", {}).get("containerStatuses") or ()
    running = [
        item["state"]["running"] for item in containers if item["ready"] and "running" in item["state"]
    ]
    starts = [dt.datetime.fromisoformat(state["startedAt"]).timestamp() for state in running]
    return len(starts) == len(pod["spec"]["containers"]) and min(starts) >= int(since)


def holds(manifest: dict[str, Any], condition: str) -> bool:
    """Whether an object has this condition, and it is true; a new object may have none, or null."""
    conditions = manifest.get("status", {}).get("conditions") or ()
    return any(item["type"] == condition and item["status"] == "True" for item in conditions)


def is_rolled_out(deployment: dict[str, Any]) -> bool:
    """Whether all replicas that are wanted run the current template and are available."""
    status, wanted = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
    current = status.get("observedGeneration") == deployment["metadata"]["generation"]
    counts = (status.get(name, 0) for name in ("updatedReplicas", "availableReplicas", "replicas"))
    return current and all(count == wanted for count in counts)


def _gateway(api: AdminApi, addon: str) -> Iterator[str]:
    name, namespace = _GATEWAYS[addon], NAMESPACES["gateway"]
    found = api.get(f"/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/gateways/{name}")
    if not holds(found or {}, "Programmed"):
        yield f"Gateway {namespace}/{name}"


def _webhooks(api: AdminApi, addon: str) -> Iterator[str]:
    """Knative's webhook fills in its own certificate; requests fail until then."""
    for path in _WEBHOOKS[addon]:
        found = api.get(f"/apis/admissionregistration.k8s.io/v1/{path}") or {"webhooks": [{}]}
        if not all(hook.get("clientConfig", {}).get("caBundle") for hook in found["webhooks"]):
            yield f"the certificate of {path}"
