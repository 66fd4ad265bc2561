"""The reference of a chart's values: the schema describes them, `values.yaml` has the defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from paddlewheel.docs.markdown import document, prose, table

Schema = Mapping[str, Any]

_HELMS_OWN = ("global",)


def page(schema: Schema, defaults: Mapping[str, Any]) -> str:
    """The page; raises KeyError for a value without a description."""
    definitions = schema.get("definitions", {})
    lines = [
        "Values of [the chart](../../deploy/charts/paddlewheel/README.md), for `--set image.tag=0.1.0` or a"
        " file with `--values`. The chart refuses unknown names and values that are not allowed.\n"
    ]
    for name, part in schema["properties"].items():
        if name not in _HELMS_OWN:
            lines += _section(name, part, defaults[name], definitions)
    return document("Chart values", lines)


def leaves(schema: Schema, defaults: Mapping[str, Any]) -> list[str]:
    """The names of all values that the page lists."""
    definitions = schema.get("definitions", {})
    named = ((name, part) for name, part in schema["properties"].items() if name not in _HELMS_OWN)
    return [row[0] for name, part in named for row in _leaves(name, part, defaults[name], definitions)]


def _section(name: str, part: Schema, default: Any, definitions: Mapping[str, Schema]) -> Iterator[str]:
    leaves = list(_leaves(name, part, default, definitions))
    yield f"## {name}\n"
    if part.get("description") and "properties" in part:
        yield f"{prose(part['description'])}\n"
    yield from table(("value", "type", "default", "description"), leaves)


def _leaves(
    path: str, node: Schema, default: Any, definitions: Mapping[str, Schema]
) -> Iterator[tuple[str, ...]]:
    if "properties" in node:
        for name, part in node["properties"].items():
            yield from _leaves(f"{path}.{name}", part, default[name], definitions)
        return
    described = {**definitions.get(str(node.get("$ref", "")).rpartition("/")[2], {}), **node}
    if "description" not in described:
        raise KeyError(path)
    written = orjson.dumps(default).decode()
    yield f"`{path}`", _type(described, definitions), f"`{written}`", prose(described["description"])


def _type(node: Schema, definitions: Mapping[str, Schema]) -> str:
    if "enum" in node:
        return " ".join(f"`{orjson.dumps(word).decode()}`" for word in node["enum"])
    kind = str(node["type"])
    if kind == "array":
        return f"list of {_type(node['items'], definitions)}"
    if kind == "object" and "properties" in node:
        return f"object of {', '.join(f'`{name}`' for name in node['properties'])}"
    if kind == "object" and "additionalProperties" in node:
        return f"map of string to {_type(node['additionalProperties'], definitions)}"
    least, most = node.get("minimum"), node.get("maximum")
    if least is not None:
        return f"{kind}: {least} to {most}" if most is not None else f"{kind}: at least {least}"
    return f"{kind}: not empty" if node.get("minLength") == 1 else kind
