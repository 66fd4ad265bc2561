"""The contracts of the last release (`protos/released`): its messages as it would write them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from paddlewheel.testkit.charts import REPOSITORY

RELEASED = REPOSITORY / "protos" / "released" / "contracts.json"
"""A file descriptor set, as buf writes it."""
TIME = "2026-01-01T00:00:00Z"

Descriptor = Mapping[str, Any]

_SCALARS = {
    "TYPE_STRING": "text",
    "TYPE_BOOL": True,
    "TYPE_INT32": 1,
    "TYPE_UINT32": 1,
    "TYPE_INT64": "1",
    "TYPE_UINT64": "1",
    "TYPE_DOUBLE": 1.5,
    "TYPE_BYTES": "eA==",
}


@cache
def messages() -> Mapping[str, Descriptor]:
    """All message types by full name, nested ones too."""
    files = json.loads(RELEASED.read_text())["file"]
    ours = (file for file in files if file["name"].startswith("paddlewheel/"))
    return dict(found for file in ours for found in _below(file["package"], file.get("messageType", ())))


@cache
def _enums() -> Mapping[str, str]:
    """A value of each enum other than its default."""
    files = json.loads(RELEASED.read_text())["file"]
    return {
        f"{f['package']}.{e['name']}": e["value"][-1]["name"] for f in files for e in f.get("enumType", ())
    }


def _below(place: str, types: list[Descriptor]) -> Iterator[tuple[str, Descriptor]]:
    for type_ in types:
        name = f"{place}.{type_['name']}"
        yield name, type_
        yield from _below(name, type_.get("nestedType", ()))


def full_body(name: str) -> dict[str, Any]:
    """proto3 JSON with every field that the release knows; of a oneof the first."""
    fields = messages()[name].get("field", ())
    firsts = {field.get("oneofIndex", field["name"]): field for field in reversed(fields)}
    return {field["jsonName"]: _value(field) for field in firsts.values()}


def _value(field: Descriptor) -> Any:
    type_ = field.get("typeName", "").removeprefix(".")
    if field["label"] != "LABEL_REPEATED":
        return _one(field, type_)
    if messages().get(type_, {}).get("options", {}).get("mapEntry"):
        entry = full_body(type_)
        return {str(entry["key"]): entry["value"]}
    return [_one(field, type_)]


def _one(field: Descriptor, type_: str) -> Any:
    if type_ == "google.protobuf.Timestamp":
        return TIME
    if field["type"] == "TYPE_ENUM":
        return _enums()[type_]
    return full_body(type_) if type_ else _SCALARS[field["type"]]
