"""Builders of PaddleServices, and what plays the cluster: Kubernetes with a gateway, or Knative."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.measurements_v1 import RevisionMeasured
from paddlewheel.contracts.generated.models_v1 import ModelPublished
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound
from paddlewheel.kube.ports import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    HTTP_ROUTES,
    KNATIVE_REVISIONS,
    KNATIVE_SERVICES,
    PODS,
    Cluster,
    Object,
)

REVISION = "elasticserving.paddlepaddle.org/revision"
URL = "http://lac.default.example.com"


def make_endpoint(tag: str = "1", **fields: Any) -> Object:
    """An image of this tag."""
    return {"containerImage": "example/lac", "tag": tag, "port": 9292, **fields}


def make_service(name: str = "lac", namespace: str = "default", **spec: Any) -> Object:
    """A PaddleService of one image; keywords replace parts of its spec."""
    return {
        "apiVersion": "elasticserving.paddlepaddle.org/v1",
        "kind": "PaddleService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"default": make_endpoint(), **spec},
    }


def make_published(
    name: str, version: str, namespace: str = "default", *, time: datetime | None = None
) -> Event:
    """ModelPublished of a job of the namespace."""
    ref = ObjectRef(namespace=namespace, name="train", uid="uid-train")
    model = ModelPublished(
        source=ref,
        name=name,
        version=version,
        uri=f"s3://models/{name}/{version}",
        digest=f"sha256:{version.rjust(64, '0')}",
    )
    return make_event(
        model,
        id=f"{name}-{version}",
        source="test",
        namespace=namespace,
        uid=ref.uid,
        time=time or datetime.now(UTC),
    )


def make_measured(service: Object, revision: str, time: datetime | None = None, **metrics: float) -> Event:
    """RevisionMeasured of a PaddleService as the API server has it."""
    metadata, at = service["metadata"], time or datetime.now(UTC)
    ref = ObjectRef(namespace=metadata["namespace"], name=metadata["name"])
    return make_event(
        RevisionMeasured(service=ref, revision=revision, metrics=metrics),
        id=f"{revision}-{at.timestamp()}-{metrics}",
        source="test",
        namespace=ref.namespace,
        uid=metadata["uid"],
        time=at,
    )


class Serving(Protocol):
    """Plays what a cluster does with the objects of an engine."""

    mode: str

    async def make_ready(self, revision: str) -> None:
        """All wanted pods of the revision are ready."""
        ...

    async def make_unready(self, revision: str, reason: str = "CrashLoopBackOff") -> None:
        """Its one pod does not come up."""
        ...

    async def route(self) -> None:
        """The gateway takes in what is wanted now."""
        ...

    async def traffic(self) -> dict[str, int]:
        """Revision to the percentage of requests that the gateway should send to it."""
        ...

    async def revisions(self) -> list[str]:
        """Names of the revisions in the engine, sorted."""
        ...

    async def running(self) -> list[str]:
        """Names of the revisions that may have pods, sorted."""
        ...


class PlainServing:
    """Plays the controllers of Deployments and a gateway of the Gateway API."""

    mode = "Kubernetes"

    def __init__(self, cluster: Cluster, service: Key) -> None:
        self._cluster = cluster
        self._service = service

    async def make_ready(self, revision: str) -> None:
        await _delete_pods(self._cluster, self._service.namespace, revision)
        deployment = await self._deployment(revision)
        wanted = deployment["spec"]["replicas"]
        await self._report(revision, {"replicas": wanted, "readyReplicas": wanted, "conditions": []})

    async def make_unready(self, revision: str, reason: str = "CrashLoopBackOff") -> None:
        deployment = await self._deployment(revision)
        replicas = deployment["spec"]["replicas"]
        await _make_waiting_pod(self._cluster, self._service, revision, reason)
        await self._report(revision, {"replicas": replicas, "readyReplicas": 0})

    async def _deployment(self, revision: str) -> Object:
        return await self._cluster.get(DEPLOYMENTS, Key(self._service.namespace, revision))

    async def _report(self, revision: str, status: Object) -> None:
        key = Key(self._service.namespace, revision)
        generation = (await self._cluster.get(DEPLOYMENTS, key))["metadata"].get("generation", 0)
        patch = {"status": {**status, "observedGeneration": generation}}
        await self._cluster.patch(DEPLOYMENTS, key, patch, subresource="status")
        await self.reach(revision, status["readyReplicas"])

    async def reach(self, revision: str, pods: int) -> None:
        """The revision's Service has so many ready pods."""
        name = f"{revision}-pods"
        labels = {"PaddleService": self._service.name, REVISION: revision, "kubernetes.io/service-name": name}
        key = Key(self._service.namespace, f"{name}-test")
        endpoints = [
            {"addresses": [f"192.0.2.{n}"], "conditions": {"ready": True}} for n in range(1, pods + 1)
        ]
        try:
            await self._cluster.patch(ENDPOINT_SLICES, key, {"endpoints": endpoints})
        except NotFound:
            await self._cluster.create(
                ENDPOINT_SLICES,
                {
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {"name": key.name, "namespace": key.namespace, "labels": labels},
                    "addressType": "IPv4",
                    "endpoints": endpoints,
                },
            )

    async def route(self) -> None:
        route = await self._cluster.get(HTTP_ROUTES, self._service)
        generation = route["metadata"].get("generation", 0)
        conditions = [
            {"type": type_, "status": "True", "observedGeneration": generation}
            for type_ in ("Accepted", "ResolvedRefs")
        ]
        (parent,) = route["spec"]["parentRefs"]
        patch = {"status": {"parents": [{"parentRef": parent, "conditions": conditions}]}}
        await self._cluster.patch(HTTP_ROUTES, self._service, patch, subresource="status")

    async def traffic(self) -> dict[str, int]:
        route = await self._cluster.get(HTTP_ROUTES, self._service)
        backends = route["spec"]["rules"][0]["backendRefs"]
        return {backend["name"].removesuffix("-pods"): backend["weight"] for backend in backends}

    async def revisions(self) -> list[str]:
        listed = await self._cluster.list(DEPLOYMENTS, self._service.namespace)
        return sorted(deployment["metadata"]["name"] for deployment in listed)

    async def running(self) -> list[str]:
        listed = await self._cluster.list(DEPLOYMENTS, self._service.namespace)
        return sorted(d["metadata"]["name"] for d in listed if d["spec"]["replicas"])


class KnativeServing:
    """Plays Knative: it makes the revision that a template names, and keeps to its own rules."""

    mode = "Knative"

    def __init__(self, cluster: Cluster, service: Key) -> None:
        self._cluster = cluster
        self._service = service

    async def make_ready(self, revision: str) -> None:
        await _delete_pods(self._cluster, self._service.namespace, revision)
        await self._report(revision, "True")

    async def make_unready(self, revision: str, reason: str = "CrashLoopBackOff") -> None:
        await _make_waiting_pod(self._cluster, self._service, revision, reason)
        await self._report(revision, "False")

    async def _report(self, revision: str, ready: str) -> None:
        await self.make_revisions()
        key = Key(self._service.namespace, revision)
        generation = (await self._cluster.get(KNATIVE_REVISIONS, key))["metadata"].get("generation", 0)
        status = {"observedGeneration": generation, "conditions": [{"type": "Ready", "status": ready}]}
        await self._cluster.patch(KNATIVE_REVISIONS, key, {"status": status}, subresource="status")

    async def make_revisions(self) -> None:
        """Create the revision that the template names."""
        service = await self._cluster.get(KNATIVE_SERVICES, self._service)
        template = service["spec"]["template"]
        name = template["metadata"]["name"]
        if name not in await self.revisions():
            revision = {
                "apiVersion": "serving.knative.dev/v1",
                "kind": "Revision",
                "metadata": {**template["metadata"], "namespace": self._service.namespace, "generation": 1},
                "spec": template["spec"],
            }
            await self._cluster.create(KNATIVE_REVISIONS, revision)

    async def route(self) -> None:
        await self.make_revisions()
        service = await self._cluster.get(KNATIVE_SERVICES, self._service)
        status = {
            "observedGeneration": service["metadata"].get("generation", 0),
            "url": URL,
            "traffic": service["spec"]["traffic"],
            "conditions": [{"type": "RoutesReady", "status": "True"}],
        }
        await self._cluster.patch(KNATIVE_SERVICES, self._service, {"status": status}, subresource="status")

    async def traffic(self) -> dict[str, int]:
        service = await self._cluster.get(KNATIVE_SERVICES, self._service)
        return {target["revisionName"]: target["percent"] for target in service["spec"]["traffic"]}

    async def revisions(self) -> list[str]:
        listed = await self._cluster.list(KNATIVE_REVISIONS, self._service.namespace)
        return sorted(revision["metadata"]["name"] for revision in listed)

    async def running(self) -> list[str]:
        return await self.revisions()


def waiting_pod(revision: str, namespace: str, labels: Mapping[str, str], reason: str) -> Object:
    """A pod whose container ended with some last lines, and waits."""
    lines = "loading\nno such file: /models/lac\n"
    ended = {"exitCode": 1, "message": lines, "reason": "Error"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{revision}-0", "namespace": namespace, "labels": dict(labels)},
        "spec": {"containers": [{"name": "main"}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "example/lac:1",
                    "state": {"waiting": {"reason": reason, "message": "back-off"}},
                    "lastState": {"terminated": ended},
                }
            ],
        },
    }


async def _make_waiting_pod(cluster: Cluster, service: Key, revision: str, reason: str) -> None:
    labels = {"PaddleService": service.name, REVISION: revision}
    await _delete_pods(cluster, service.namespace, revision)
    pod = waiting_pod(revision, service.namespace, labels, reason)
    await cluster.create(PODS, pod)
    key = Key(service.namespace, pod["metadata"]["name"])
    await cluster.patch(PODS, key, {"status": pod["status"]}, subresource="status")


async def _delete_pods(cluster: Cluster, namespace: str, revision: str) -> None:
    key = Key(namespace, f"{revision}-0")
    try:
        pod = await cluster.get(PODS, key)
    except NotFound:
        return
    await cluster.delete(PODS, key, uid=pod["metadata"]["uid"], grace_seconds=0)
