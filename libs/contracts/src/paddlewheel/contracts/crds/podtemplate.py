"""Pod templates and parts of them: raw JSON for the controller, Kubernetes' own schema for the API server.

The API server refuses a misspelt field as it would in a Pod. What is wrong with a value it says when the pod
is created (docs/decisions/0017-templates-have-the-schema-of-pods.md).
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
"""Written by `podtemplate_gen`: `spec` is the schema, `kubernetes` the version that it is of."""
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
"""Metadata of a template: the five fields of the published CRD. Others are unknown."""
_HAS_IMAGE = rule(
    "has(self.image) && self.image != ''",
    "image is required: name the container image to run",
    field=".image",
    reason="FieldValueRequired",
)
VOLUMES = ("properties", "volumes")
VOLUME_MOUNTS = ("properties", "containers", "items", "properties", "volumeMounts")
"""Where lists of a PodSpec are in its schema."""
_UNIQUE = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
"""Lists in which a name stands once, so that several appliers can share them."""


def read_pod_spec() -> dict[str, Any]:
    """The content of `POD_SPEC_FILE`."""
    found: dict[str, Any] = json.loads(POD_SPEC_FILE.read_text(encoding="utf-8"))
    return found


def pod_template_schema() -> dict[str, Any]:
    """Of `spec.<role>.template`."""
    spec = read_pod_spec()["spec"]
    # A rule of the role says what is missing, and the remedy.
    del spec["required"]
    fields = spec["properties"]
    for name in ("containers", "initContainers", "volumes"):
        fields[name] |= _UNIQUE
    fields["containers"] |= {
        "items": {**fields["containers"]["items"], RULES: [dict(_HAS_IMAGE)]},
        "minItems": 1,
        "maxItems": 128,
        "description": "The first container receives Paddle's environment, ports and the mount of the data.",
    }
    described = "Labels and annotations are copied to the pods; name and namespace are overwritten."
    return {
        "type": "object",
        "properties": {
            "metadata": {**METADATA_SCHEMA, "description": described},
            "spec": {**spec, "description": "Kubernetes' PodSpec."},
        },
    }


def pod_field_schema(path: tuple[str, ...]) -> dict[str, Any]:
    """Of a list of Kubernetes' own PodSpec."""
    node: dict[str, Any] = read_pod_spec()["spec"]
    for step in path:
        node = node[step]
    return node


class _TemplateSchema:
    """Read when a schema is asked for, so not by services."""

    def __get_pydantic_json_schema__(self, _: CoreSchema, __: GetJsonSchemaHandler) -> JsonSchemaValue:
        return pod_template_schema()


# Shared with the object it was parsed from: copy before changing.
PodTemplate = Annotated[dict[str, Any], InstanceOf(), _TemplateSchema()]


class _PodField:
    """Its schema is read when it is asked for, so not by services."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path

    def __get_pydantic_json_schema__(self, _: CoreSchema, __: GetJsonSchemaHandler) -> JsonSchemaValue:
        return pod_field_schema(self._path)


Volumes = Annotated[list[dict[str, Any]], InstanceOf(), _PodField(VOLUMES)]
VolumeMounts = Annotated[list[dict[str, Any]], InstanceOf(), _PodField(VOLUME_MOUNTS)]
