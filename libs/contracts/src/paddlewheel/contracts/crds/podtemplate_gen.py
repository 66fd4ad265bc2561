"""Kubernetes' own PodSpec as a structural schema, made from an API server's OpenAPI document.

    kubectl get --raw /openapi/v3/api/v1 | python -m paddlewheel.contracts.crds.podtemplate_gen [--check]

Exit code 0: written, or up to date; 1: `--check` found a difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from paddlewheel.contracts.crds.podtemplate import METADATA_SCHEMA, POD_SPEC_FILE, read_pod_spec
from paddlewheel.contracts.crds.quantity import QUANTITY_SCHEMA

NEVER_IN_TEMPLATES = ("ephemeralContainers",)
"""Fields with which the API server refuses to create a pod."""
_SPEC = "io.k8s.api.core.v1.PodSpec"
_REPLACED: Mapping[str, Mapping[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": QUANTITY_SCHEMA,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": True},
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": METADATA_SCHEMA,
}
# Without defaults, so that objects stay as they were written; without enums and kinds of lists, so that
# values are judged by the API server's own version when the pod is created; without descriptions, with which
# the definition would not fit into the annotation of `kubectl apply`.
_KEPT = ("type", "format", "required")

Schema = dict[str, Any]


def pod_spec(document: Mapping[str, Any]) -> Schema:
    """The content of `pod_spec.json` from the OpenAPI document (v3) of the core group."""
    schemas: Mapping[str, Schema] = document["components"]["schemas"]
    spec = _structural(schemas[_SPEC], schemas)
    for field in NEVER_IN_TEMPLATES:
        del spec["properties"][field]
    return {"kubernetes": document["info"]["version"], "spec": spec}


def _structural(node: Mapping[str, Any], schemas: Mapping[str, Schema]) -> Schema:
    if target := _reference(node):
        return dict(_REPLACED.get(target) or _structural(schemas[target], schemas))
    made: Schema = {key: node[key] for key in _KEPT if key in node}
    if "properties" in node:
        made["properties"] = {name: _structural(sub, schemas) for name, sub in node["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in node:
            made[key] = _structural(node[key], schemas)
    return made


def _reference(node: Mapping[str, Any]) -> str:
    """The name of the schema that stands for the node, "" when it is its own."""
    [found] = node.get("allOf") or [node]
    return str(found.get("$ref", "")).rsplit("/", 1)[-1]


def main(argv: Sequence[str] | None = None, document: TextIO = sys.stdin) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description="Generate the schema of pod templates.")
    parser.add_argument("--check", action="store_true", help="change nothing, fail when out of date")
    is_check = parser.parse_args(argv).check
    found = pod_spec(json.load(document))
    if not is_check:
        POD_SPEC_FILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    elif found != (recorded := read_pod_spec()):
        sys.stderr.write(
            f"{POD_SPEC_FILE.name} is of Kubernetes {recorded['kubernetes']}, the API server of"
            f" {found['kubernetes']}: run this without --check, then `make gen`\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
