"""JSON Schemas of the messages in their proto3 JSON form."""

from __future__ import annotations

from typing import Any

from paddlewheel.contracts.gen.catalog import Field, Shape, Value

_SCALARS: dict[str, dict[str, Any]] = {
    "bool": {"type": "boolean"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "double": {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]},
    "int32": {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    "int64": {"type": "string", "format": "int64", "pattern": "^-?[0-9]+$"},
    "string": {"type": "string"},
    "timestamp": {"type": "string", "format": "date-time"},
}
HEADERS = "CloudEventHeaders"


def prose(text: str) -> str:
    """A comment with the lines of each paragraph joined."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def ref(full_name: str) -> dict[str, str]:
    """A reference to a shape's schema."""
    return {"$ref": f"#/components/schemas/{full_name}"}


def schema(shape: Shape) -> dict[str, Any]:
    """The schema of a shape.

    No member is required, because defaults are left out. Unknown members are allowed, because releases add
    fields.
    """
    head = {"title": shape.name, **({"description": prose(shape.about)} if shape.about else {})}
    if shape.words:
        return {**head, "type": "string", "enum": [word for word, _ in shape.words]}
    return {**head, "type": "object", "properties": {f.json: _property(f) for f in shape.fields}}


def _property(field: Field) -> dict[str, Any]:
    inner = _value(field.value)
    if field.many == "list":
        inner = {"type": "array", "items": inner}
    if field.many == "map":
        inner = {"type": "object", "additionalProperties": inner}
    if not field.about:
        return inner
    # Keywords beside a $ref have no effect.
    about = {"description": prose(field.about)}
    return {**about, "allOf": [inner]} if "$ref" in inner else {**about, **inner}


def _value(value: Value) -> dict[str, Any]:
    return dict(_SCALARS[value.scalar]) if value.scalar else dict(ref(value.shape))


def cloud_event_headers() -> dict[str, Any]:
    """The schema of the headers that every fact has."""
    text = {"type": "string", "minLength": 1}
    named = {
        "ce-specversion": {"const": "1.0"},
        "ce-id": {**text, "description": "Unique id of the fact; the same if the fact is published again."},
        "ce-type": {**text, "description": "Full name of the message in protos/."},
        "ce-source": {**text, "description": "Name of the service that publishes the fact."},
        "ce-subject": {**text, "description": "NATS subject of the message."},
        "ce-time": {**text, "format": "date-time", "description": "When the fact became true."},
        "content-type": {"const": "application/json"},
        "Nats-Msg-Id": {**text, "description": "Same as ce-id. The stream stores one message for each id."},
        "traceparent": {**text, "description": "W3C trace context; absent if there was no trace."},
    }
    required = [name for name in named if name != "traceparent"]
    return {"title": HEADERS, "type": "object", "required": required, "properties": named}
