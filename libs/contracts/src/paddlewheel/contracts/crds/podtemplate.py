"""Pod templates and parts of them: raw JSON for the controller, Kubernetes' own schema for the API server.

The API server refuses a misspelt field as in a Pod. It checks values only when the pod is created
(docs/decisions/0017-templates-have-the-schema-of-pods.md).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import GetJsonSchemaHandler, InstanceOf
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from paddlewheel.contracts.crds.base import RULES, rule

POD_SPEC_FILE = Path(__file__).with_name("pod_spec.json")
"""The schema of a PodSpec in `spec`, and its Kubernetes version in `kubernetes`. `podtemplate_gen` writes
it."""
_STRING_MAP = {"type": "object", "additionalProperties": {"type": "string"}}
METADATA_SCHEMA = {
    "type": "object",
    "properties": {
        "annotations": _STRING_MAP,
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "labels": _STRING_MAP,
        "name": {"type": "string"},
        "namespace": {"type": "string"},
    },
}
"""Metadata of a template: the five fields that the original operator's CRD has."""
_HAS_IMAGE = rule(
    "has(self.image) && self.image != ''",
    "image is required: name the container image to run",
    field=".image",
    reason="FieldValueRequired",
)
VOLUMES = ("properties", "volumes")
VOLUME_MOUNTS = ("properties", "containers", "items", "properties", "volumeMounts")
"""Paths of these lists in the schema of a PodSpec."""
_UNIQUE = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
"""Keywords of a list whose items have unique names, so that several clients can apply items of their own."""


def read_pod_spec() -> dict[str, Any]:
    """Read `POD_SPEC_FILE`."""
    found: dict[str, Any] = json.loads(POD_SPEC_FILE.read_text(encoding="utf-8"))
    return found


def pod_template_schema() -> dict[str, Any]:
    """The schema of `spec.<role>.template`."""
    spec = read_pod_spec()["spec"]
    # A rule of the role replaces it, with a message that describes what to do.
    del spec["required"]
    fields = spec["properties"]
    for name in ("containers", "initContainers", "volumes"):
        fields[name] |= _UNIQUE
    fields["containers"] |= {
        "items": {**fields["containers"]["items"], RULES: [dict(_HAS_IMAGE)]},
        "minItems": 1,
        "maxItems": 128,
        "description": "Containers of the pod. The first one gets Paddle's environment variables, the ports"
        " and the mount of the data set.",
    }
    described = "Metadata of the pods. Labels and annotations are copied; name and namespace are overwritten."
    return {
        "type": "object",
        "properties": {
            "metadata": {**METADATA_SCHEMA, "description": described},
            "spec": {**spec, "description": "Specification of the pods, a PodSpec of Kubernetes."},
        },
    }


def pod_field_schema(path: tuple[str, ...]) -> dict[str, Any]:
    """The schema at this path of a PodSpec."""
    node: dict[str, Any] = read_pod_spec()["spec"]
    for step in path:
        node = node[step]
    return node


class _TemplateSchema:
    """The schema of a pod template. It is read on request only, so services do not read it."""

    def __get_pydantic_json_schema__(self, _: CoreSchema, __: GetJsonSchemaHandler) -> JsonSchemaValue:
        return pod_template_schema()


# Shared with the object it was parsed from: copy before changing.
PodTemplate = Annotated[dict[str, Any], InstanceOf(), _TemplateSchema()]


class _PodField:
    """The schema at a path of a PodSpec. It is read on request only, so services do not read it."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path

    def __get_pydantic_json_schema__(self, _: CoreSchema, __: GetJsonSchemaHandler) -> JsonSchemaValue:
        return pod_field_schema(self._path)


Volumes = Annotated[list[dict[str, Any]], InstanceOf(), _PodField(VOLUMES)]
VolumeMounts = Annotated[list[dict[str, Any]], InstanceOf(), _PodField(VOLUME_MOUNTS)]
