"""Renders pydantic models as the structural OpenAPI schemas that apiextensions/v1 requires."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddlewheel.contracts.crds.base import API_DEFAULT, RULES, CrdModel
from paddlewheel.contracts.crds.kinds import CATEGORY, Kind

Schema = dict[str, Any]

# A title repeats the name. Defaults of the model are the controller's: only `api_default` is in the schema.
_DROPPED = ("title", "default", "$defs")


def structural(model: type[CrdModel]) -> Schema:
    """The schema of the model without references. Optional fields may be absent, but not null."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(raw, raw.get("$defs", {}))


def crd(kind: Kind) -> Schema:
    """The CustomResourceDefinition of a kind."""
    names: Schema = {
        "categories": [CATEGORY],
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.crd_name},
        "spec": {"group": kind.group, "names": names, "scope": "Namespaced", "versions": [_version(kind)]},
    }


def _version(kind: Kind) -> Schema:
    return {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": _subresources(kind),
        "additionalPrinterColumns": [
            {"name": c.name, "jsonPath": c.path, "type": c.type, **({"priority": 1} if c.is_wide else {})}
            for c in kind.columns
        ],
        "schema": {"openAPIV3Schema": _root(kind)},
    }


def _subresources(kind: Kind) -> Schema:
    if kind.scale is None:
        return {"status": {}}
    paths = {"specReplicasPath": kind.scale.spec, "statusReplicasPath": kind.scale.status}
    selector = {"labelSelectorPath": kind.scale.selector} if kind.scale.selector else {}
    return {"status": {}, "scale": paths | selector}


def _root(kind: Kind) -> Schema:
    return {
        "type": "object",
        "description": kind.description,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            # Rules can only refer to declared fields. Kubernetes itself validates metadata.
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": structural(kind.spec),
            "status": structural(kind.status),
        },
        RULES: [dict(rule) for rule in kind.rules],
    }


def _convert(node: Mapping[str, Any], defs: Mapping[str, Schema]) -> Schema:
    flat = _flatten(node, defs)
    made: Schema = {key: value for key, value in flat.items() if key not in _DROPPED}
    if RULES in made:
        made[RULES] = [dict(rule) for rule in made[RULES]]
    if API_DEFAULT in made:
        made["default"] = made.pop(API_DEFAULT)
    if "properties" in made:
        made["properties"] = {name: _convert(sub, defs) for name, sub in made["properties"].items()}
        made.pop("additionalProperties", None)
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _convert(made[key], defs)
    return made


def _flatten(node: Mapping[str, Any], defs: Mapping[str, Schema]) -> Schema:
    """Replace a reference by its target, and a choice between a type and null by the type."""
    flat = dict(node)
    while True:
        inner = _target(flat, defs)
        if inner is None:
            return flat
        outer = {key: value for key, value in flat.items() if key not in ("$ref", "anyOf")}
        flat = {**inner, **outer}


def _target(node: Mapping[str, Any], defs: Mapping[str, Schema]) -> Schema | None:
    if "$ref" in node:
        return defs[str(node["$ref"]).rsplit("/", 1)[1]]
    if "anyOf" not in node or "x-kubernetes-int-or-string" in node:
        return None
    choices = [dict(choice) for choice in node["anyOf"] if choice.get("type") != "null"]
    if len(choices) != 1:
        raise ValueError(f"no structural form for a choice between {choices}")
    return choices[0]
