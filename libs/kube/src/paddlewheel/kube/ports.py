"""The Kubernetes API as services use it: raw JSON objects, no generated models. The adapter is `api`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from paddlewheel.contracts.keys import Key

Object = dict[str, Any]
"""One Kubernetes object as parsed JSON. Objects from a store are shared: never change them in place."""

Objects = list[Object]
"""An alias, because classes with a method `list` cannot use `list[Object]`."""


@dataclass(frozen=True)
class Resource:
    """The place of a kind in the API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` of a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version


PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
EVENTS = Resource("", "v1", "events", "Event")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
HTTP_ROUTES = Resource("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
KNATIVE_SERVICES = Resource("serving.knative.dev", "v1", "services", "Service")
KNATIVE_REVISIONS = Resource("serving.knative.dev", "v1", "revisions", "Revision")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
POD_GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
VOLCANO_POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta1", "workloads", "Workload")
RESOURCE_FLAVORS = Resource(
    "kueue.x-k8s.io", "v1beta1", "resourceflavors", "ResourceFlavor", namespaced=False
)
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
WORKLOAD_PRIORITY_CLASSES = Resource(
    "kueue.x-k8s.io", "v1beta1", "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False
)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
PADDLE_JOBS = Resource("batch.paddlepaddle.org", "v1", "paddlejobs", "PaddleJob")
SAMPLE_SETS = Resource("batch.paddlepaddle.org", "v1alpha1", "samplesets", "SampleSet")
SAMPLE_JOBS = Resource("batch.paddlepaddle.org", "v1alpha1", "samplejobs", "SampleJob")
TRIGGERS = Resource("events.paddlepaddle.org", "v1alpha1", "triggers", "Trigger")
PADDLE_SERVICES = Resource("elasticserving.paddlepaddle.org", "v1", "paddleservices", "PaddleService")


@dataclass(frozen=True)
class Change:
    """One watch event.

    Args:
        obj: the object. On DELETED, its last known state, with the resourceVersion at which the deletion was
            detected.
        listed: the change was found by listing, so it may combine several changes.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    obj: Object
    listed: bool = field(default=False, compare=False)


class Cluster(Protocol):
    """Reads and writes. Every call has a time-out. Failures are mapped to these errors:

    - 404: NotFound
    - 409: AlreadyExists or Conflict
    - 400, 403, 422: Permanent, with reason and message of the server
    - 429, 5xx and connection errors: Retry
    """

    async def get(self, resource: Resource, key: Key) -> Object: ...

    async def list(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Objects:
        """All objects of a namespace ("" means all namespaces), read in pages."""
        ...

    async def create(self, resource: Resource, obj: Object) -> Object: ...

    async def patch(
        self,
        resource: Resource,
        key: Key,
        patch: Mapping[str, Any],
        *,
        subresource: Literal["", "status"] = "",
    ) -> Object:
        """Apply a JSON merge patch.

        With metadata.resourceVersion in `patch`, the call raises Conflict if the object has changed. With
        metadata.uid, it raises Permanent or Conflict for another object of the same name.
        """
        ...

    async def delete(
        self,
        resource: Resource,
        key: Key,
        *,
        uid: str = "",
        grace_seconds: int | None = None,
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
    ) -> None:
        """Delete the object. Do nothing if it does not exist, or has another uid."""
        ...

    async def read_log(self, pod: Key, *, container: str, lines: int, limit_bytes: int) -> str:
        """The last lines of a container's output, at most their last `limit_bytes`.

        Returns "" for a pod that is on no node. Raises Permanent when the container has not started.
        """
        ...


Keep = Callable[[Object], Object]


def whole(obj: Object) -> Object:
    """Keep the whole object."""
    return obj


class Watches(Protocol):
    """Watches resources."""

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        on_synced: Callable[[], None] | None = None,
        on_absent: Callable[[], None] | None = None,
        keep: Keep = whole,
        raises_permanent: bool = False,
    ) -> AsyncGenerator[Change, None]:
        """List the resource, then yield its changes forever. A relist is yielded as changes, too.

        Close the generator when done.

        Args:
            keep: returns the part of an object that is reported and remembered. It must include the metadata.
            on_synced: called after every object of a list or relist has been yielded.
            on_absent: called when the server does not have the resource (its CRD is not installed). The
                resource then has no objects, and the next attempt follows within 5 s.
            raises_permanent: raise Permanent instead of retrying, for example when the user may not watch.
        """
        ...


class WatchedCluster(Cluster, Watches, Protocol):
    """One API server: read, written and watched."""
