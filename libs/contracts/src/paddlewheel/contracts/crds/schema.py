"""From a pydantic model to the structural OpenAPI schema that apiextensions/v1 demands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddlewheel.contracts.crds.base import API_DEFAULT, RULES, CrdModel
from paddlewheel.contracts.crds.kinds import CATEGORY, Kind

Schema = dict[str, Any]

# `title` adds nothing; defaults of a model belong to the controller, not to the API server; unknown fields
# are pruned, which structural schemas do without `additionalProperties`.
_DROPPED = ("title", "default", "$defs")


def structural(model: type[CrdModel]) -> Schema:
    """Schema of the model with references inlined; optional fields are absent, never null."""
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
            # Declared so that rules can refer to it; Kubernetes itself validates metadata.
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
    """Replace a reference, or a choice between something and null, by its target."""
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
