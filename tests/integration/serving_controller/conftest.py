"""The real serving-controller as processes, against a real API server with the CRDs of its engines, and a
real NATS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import AlreadyExists, NotFound
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import (
    DEPLOYMENTS,
    HTTP_ROUTES,
    KNATIVE_REVISIONS,
    KNATIVE_SERVICES,
    PADDLE_SERVICES,
    PODS,
    Object,
    Resource,
)
from paddlewheel.testkit.kubernetes import CRDS, set_pod_status
from paddlewheel.testkit.paddleservices import REVISION, PlainServing, make_service
from paddlewheel.testkit.service_harness import Backends, ServiceHarness, ServiceSpec
from paddlewheel.testkit.wait import eventually

SERVING_CONTROLLER = ServiceSpec("serving_controller", PADDLE_SERVICES, "pw.evt.serving.>")
SHORT = {"DRAIN_SECONDS": "1", "POLL_SECONDS": "0.5"}


def minimal_crd(resource: Resource) -> Object:
    """Of another project's kind: its names, and no schema."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": anything},
    }
    names = {"kind": resource.kind, "plural": resource.plural}
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            # Groups below k8s.io are refused without it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {"group": resource.group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


async def install(cluster: ApiCluster, resource: Resource) -> None:
    """The kind is served from then on."""
    crd = minimal_crd(resource)
    with suppress(AlreadyExists):
        await cluster.create(CRDS, crd)

    async def served() -> bool:
        try:
            await cluster.list(resource, "default")
        except NotFound:
            return False
        return True

    await eventually(served, what=f"{resource.plural} are served")


async def uninstall(cluster: ApiCluster, resource: Resource) -> None:
    """All objects of the kind go with it."""
    key = key_of(minimal_crd(resource))
    await cluster.delete(CRDS, key)

    async def gone() -> bool:
        try:
            await cluster.get(CRDS, key)
        except NotFound:
            return True
        return False

    await eventually(gone, what=f"{resource.plural} are gone")


class ServingServiceHarness(ServiceHarness):
    """serving-controller and everything a test asks of it. The test plays kubelet and gateway."""

    def __init__(self, backends: Backends) -> None:
        super().__init__(SERVING_CONTROLLER, backends)
        self.lac = self.key("lac")
        self._plain = PlainServing(self.cluster, self.lac)

    async def apply(self, **spec: Any) -> Key:
        return await self.create(make_service(**spec))

    async def change(self, **spec: Any) -> None:
        await self.cluster.patch(PADDLE_SERVICES, self.lac, {"spec": spec})

    async def newest(self, number: int) -> str:
        """Name of the revision with this number, once there is one."""

        async def named() -> str:
            revisions = (await self.status(self.lac)).get("revisions") or ()
            return next((str(r["name"]) for r in revisions if r["number"] == number), "")

        return await eventually(named, what=f"revision {number}")

    async def make_ready(self, revision: str) -> None:
        """Play the kubelet: Kubernetes' own controllers make the pod, and count it once it is ready."""

        async def ready() -> bool:
            pods = await self.cluster.list(PODS, self.namespace, label_selector=f"{REVISION}={revision}")
            for pod in pods:
                await set_pod_status(self.cluster, key_of(pod), "Running")
            deployment = await self.cluster.get(DEPLOYMENTS, self.key(revision))
            return bool((deployment.get("status") or {}).get("readyReplicas"))

        await eventually(ready, what=f"{revision} is ready")
        # Kubernetes lists only pods of a node that exists, and these have none.
        deployment = await self.cluster.get(DEPLOYMENTS, self.key(revision))
        await self._plain.reach(revision, deployment["status"]["readyReplicas"])

    async def route(self) -> None:
        """Play the gateway: it has taken in what the route says now."""

        async def taken() -> bool:
            try:
                await self._plain.route()
            except NotFound:
                return False
            return True

        await eventually(taken, what="the route is there")

    async def traffic(self) -> dict[str, int]:
        """Wanted of the gateway."""
        return await self._plain.traffic()

    async def wait_traffic(self, wanted: dict[str, int]) -> None:
        """Until that is wanted of the gateway, which takes in everything that it is told on the way."""

        async def reached() -> bool:
            await self.route()
            return await self.traffic() == wanted

        await eventually(reached, what=f"traffic {wanted}")
        await self.route()

    async def served(self, **spec: Any) -> str:
        """A service that answers; gives its revision."""
        await self.apply(mode="Kubernetes", **spec)
        first = await self.newest(1)
        await self.make_ready(first)
        await self.route()
        await self.wait_condition(self.lac, "Ready", "Serving")
        return first


@pytest.fixture
async def gateway_api(cluster: ApiCluster) -> None:
    """It stays installed: services of other tests do not mind."""
    await install(cluster, HTTP_ROUTES)


@pytest.fixture
async def knative(cluster: ApiCluster) -> AsyncIterator[None]:
    """Knative's API can be installed; it is gone after the test."""
    yield
    for resource in (KNATIVE_SERVICES, KNATIVE_REVISIONS):
        await uninstall(cluster, resource)


@pytest.fixture
async def harness(backends: Backends, gateway_api: None) -> AsyncIterator[ServingServiceHarness]:
    """No replica is started yet."""
    async with ServingServiceHarness(backends).opened() as opened:
        yield opened
