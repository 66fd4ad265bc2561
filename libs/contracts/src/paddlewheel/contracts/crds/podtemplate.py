"""The pod template of a role: raw JSON for the controller, a typed skeleton for the API server.

The published CRD embedded all of Kubernetes' PodSpec, three times, as it was in 2021. Here the fields that
Paddlewheel reads or adds to are typed, so that controllers can rely on their types, and every other field of
the cluster's own PodSpec passes through to the pods, where the API server validates it. Template metadata is
limited to the five fields of the published CRD; anything else there is pruned.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import InstanceOf, WithJsonSchema

from paddlewheel.contracts.crds.base import RULES, rule
from paddlewheel.contracts.crds.placement import NODE_AFFINITY_SCHEMA, TOLERATIONS_SCHEMA
from paddlewheel.contracts.crds.quantity import QUANTITIES_SCHEMA

_STRING = {"type": "string"}
_STRINGS = {"type": "array", "items": _STRING}
_STRING_MAP = {"type": "object", "additionalProperties": _STRING}
_PORT = {"type": "integer", "format": "int32"}


def _open(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """A Kubernetes object with some typed fields; the others pass through."""
    made = {"type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": True}
    return {**made, "required": list(required)} if required else made


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _named_list(items: dict[str, Any]) -> dict[str, Any]:
    """A list in which a name stands once, so that several appliers can share it."""
    return {**_list(items), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


_CONTAINER = _open(
    {
        "name": _STRING,
        "image": _STRING,
        "imagePullPolicy": _STRING,
        "workingDir": _STRING,
        "command": _STRINGS,
        "args": _STRINGS,
        "env": _list(_open({"name": _STRING, "value": _STRING}, "name")),
        "envFrom": _list(_open({"prefix": _STRING})),
        "ports": _list(_open({"name": _STRING, "containerPort": _PORT, "hostPort": _PORT}, "containerPort")),
        "resources": _open({"limits": QUANTITIES_SCHEMA, "requests": QUANTITIES_SCHEMA}),
        "volumeMounts": _list(
            _open({"name": _STRING, "mountPath": _STRING, "subPath": _STRING}, "mountPath", "name")
        ),
    },
    "name",
)
_HAS_IMAGE = rule(
    "has(self.image) && self.image != ''",
    "image is required: name the container image to run",
    field=".image",
    reason="FieldValueRequired",
)
_CONTAINERS = {
    **_named_list({**_CONTAINER, RULES: [dict(_HAS_IMAGE)]}),
    "minItems": 1,
    "maxItems": 128,
    "description": "The first container receives Paddle's environment, ports and the mount of the data.",
}
_POD_SPEC = {
    **_open(
        {
            "containers": _CONTAINERS,
            "initContainers": _named_list(_CONTAINER),
            "volumes": _named_list(_open({"name": _STRING}, "name")),
            "affinity": _open({"nodeAffinity": NODE_AFFINITY_SCHEMA}),
            "tolerations": TOLERATIONS_SCHEMA,
            "nodeSelector": _STRING_MAP,
            "restartPolicy": _STRING,
            "schedulerName": _STRING,
            "priorityClassName": _STRING,
            "serviceAccountName": _STRING,
            "hostname": _STRING,
            "subdomain": _STRING,
            "hostNetwork": {"type": "boolean"},
            "terminationGracePeriodSeconds": {"type": "integer", "format": "int64"},
        }
    ),
    "description": "Kubernetes' PodSpec.",
}
_METADATA = {
    "type": "object",
    "description": "Labels and annotations are copied to the pods; name and namespace are overwritten.",
    "properties": {
        "annotations": _STRING_MAP,
        "finalizers": _STRINGS,
        "labels": _STRING_MAP,
        "name": _STRING,
        "namespace": _STRING,
    },
}
POD_TEMPLATE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"metadata": _METADATA, "spec": _POD_SPEC},
}

# Shared with the object it was parsed from: copy before changing.
PodTemplate = Annotated[dict[str, Any], InstanceOf(), WithJsonSchema(POD_TEMPLATE_SCHEMA)]
