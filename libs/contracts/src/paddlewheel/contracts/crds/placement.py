"""Node affinity and tolerations: Kubernetes' types as raw JSON. The schema checks only their structure."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import InstanceOf, WithJsonSchema

_STRING = {"type": "string"}
_REQUIREMENT = {
    "type": "object",
    "required": ["key", "operator"],
    "properties": {"key": _STRING, "operator": _STRING, "values": {"type": "array", "items": _STRING}},
}
_REQUIREMENTS = {"type": "array", "items": _REQUIREMENT}
_TERM = {
    "type": "object",
    "properties": {"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS},
}
_REQUIRED = {
    "type": "object",
    "required": ["nodeSelectorTerms"],
    "properties": {"nodeSelectorTerms": {"type": "array", "items": _TERM}},
}
_PREFERRED = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["preference", "weight"],
        "properties": {"preference": _TERM, "weight": {"type": "integer", "format": "int32"}},
    },
}
NODE_AFFINITY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "requiredDuringSchedulingIgnoredDuringExecution": _REQUIRED,
        "preferredDuringSchedulingIgnoredDuringExecution": _PREFERRED,
    },
}
TOLERATIONS_SCHEMA: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "key": _STRING,
            "operator": _STRING,
            "value": _STRING,
            "effect": _STRING,
            "tolerationSeconds": {"type": "integer", "format": "int64"},
        },
    },
}

NodeAffinity = Annotated[dict[str, Any], InstanceOf(), WithJsonSchema(NODE_AFFINITY_SCHEMA)]
Tolerations = Annotated[list[dict[str, Any]], InstanceOf(), WithJsonSchema(TOLERATIONS_SCHEMA)]
