"""The reference of a custom resource: every field of its model, with an example from a manifest.

The manifests in `docs/reference/manifests` set every field between them, and are valid. So each example is
one that the API server accepts, and a new field without an example is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from mdit_py_plugins.anchors.index import slugify

from paddlewheel.contracts.crds.admission import REFUSALS, WARNINGS
from paddlewheel.contracts.crds.admission_rules import CLEAN_POD_POLICY, INTRANET
from paddlewheel.contracts.crds.base import API_DEFAULT, RULES, CrdModel
from paddlewheel.contracts.crds.common import ObjectReference
from paddlewheel.contracts.crds.kinds import Kind
from paddlewheel.contracts.crds.placement import NODE_AFFINITY_SCHEMA, TOLERATIONS_SCHEMA
from paddlewheel.contracts.crds.podtemplate import (
    VOLUME_MOUNTS,
    VOLUMES,
    pod_field_schema,
    pod_template_schema,
)
from paddlewheel.contracts.crds.quantity import QUANTITIES_SCHEMA
from paddlewheel.docs.markdown import bullets, document, prose, table

Schema = Mapping[str, Any]

_PAGES = {"PaddleJobSpec": "paddlejob.md", "SampleJobSpec": "samplejob.md"}
"""Models that are described on a page of their own."""
_WORDS = {f"spec.{word.field}": word.words for word in (CLEAN_POD_POLICY, INTRANET)}
_TEXT = r"^[^\x00]*$"
"""The pattern of texts without NUL, which every file system accepts."""
_LONG = 100
"""Characters of an example, beyond which the fields of its value have theirs in their own section."""
ANY = "*"
"""A name in a map, in paths."""
_SCALARS = {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean"}
_FORMATS = {"int32": "int32", "int64": "int64", "date-time": "time, RFC 3339"}


@dataclass(frozen=True)
class Field:
    """One field of a section. `model` names the model of its value, or of the items of its list or map."""

    name: str
    schema: Schema
    model: str
    is_required: bool

    @property
    def is_described_elsewhere(self) -> bool:
        """Its value is of a type of Kubernetes, a map, or of a model with a page of its own."""
        return self.model in _PAGES or not self.model or self.is_map

    @property
    def is_map(self) -> bool:
        return "additionalProperties" in self.schema


@dataclass
class Section:
    """One model, and the paths at which it occurs."""

    model: str
    schema: Schema
    paths: list[str]
    fields: tuple[Field, ...]

    @property
    def title(self) -> str:
        return ", ".join(self.paths)


def page(kind: Kind, examples: Sequence[Mapping[str, Any]]) -> str:
    """The page of a kind; raises KeyError where no manifest has an example of a field."""
    return document(kind.kind, (*_head(kind), *_sections(kind, examples), *_checks(kind)))


def sections(kind: Kind) -> list[Section]:
    """The models of spec and status, in the order of their fields."""
    return [*_of_model(kind.spec, "spec"), *_of_model(kind.status, "status")]


def documented(kind: Kind) -> dict[str, Field]:
    """Every field by its path, e.g. `spec.worker.replicas`; items of lists are at the list's path."""
    return {
        f"{path}.{field.name}": field
        for section in sections(kind)
        for path in section.paths
        for field in section.fields
    }


def values_at(examples: Sequence[Mapping[str, Any]], path: str) -> list[Any]:
    """The values of the manifests at a path; lists are entered at each item, maps by `*` at each name."""
    found: list[Any] = list(examples)
    for step in path.split("."):
        items = [item for value in found for item in (value if isinstance(value, list) else [value])]
        maps = [item for item in items if isinstance(item, Mapping)]
        found = [value for item in maps for name, value in item.items() if step in (name, ANY)]
    return found


def _of_model(model: type[CrdModel], root: str) -> list[Section]:
    schema = model.model_json_schema(by_alias=True, mode="validation")
    defs: Mapping[str, Schema] = schema.get("$defs", {})
    made: dict[str, Section] = {}

    def enter(name: str, described: Schema, path: str) -> None:
        section = made.setdefault(name, Section(name, described, [], tuple(_fields(described, defs))))
        section.paths.append(path)
        for field in section.fields:
            if field.model and field.model not in _PAGES:
                below = f"{path}.{field.name}"
                enter(field.model, defs[field.model], f"{below}.{ANY}" if field.is_map else below)

    enter(model.__name__, schema, root)
    return list(made.values())


def _fields(schema: Schema, defs: Mapping[str, Schema]) -> Iterator[Field]:
    needed = {name for rule in schema.get(RULES, ()) if (name := _needed(rule))} | {
        *schema.get("required", ())
    }
    for name, raw in schema["properties"].items():
        flat, model = _resolve(raw, defs)
        if flat.get("type") in ("array", "object") and not model:
            inside = flat.get("items", flat.get("additionalProperties", {}))
            model = _resolve(inside, defs)[1] if isinstance(inside, Mapping) else ""
        yield Field(name, flat, model, name in needed)


def _needed(rule: Mapping[str, Any]) -> str:
    """The field that a rule of the form `has(self.field) ...` requires."""
    field = str(rule.get("fieldPath", "")).removeprefix(".").partition(".")[0]
    is_needed = rule.get("reason") == "FieldValueRequired" and rule["rule"].startswith(f"has(self.{field})")
    return field if is_needed else ""


def _resolve(node: Schema, defs: Mapping[str, Schema]) -> tuple[Schema, str]:
    """The node with what it refers to, and the name of the model in it."""
    flat, model = dict(node), ""
    while "$ref" in flat or _choice(flat):
        if reference := flat.pop("$ref", ""):
            model = str(reference).rsplit("/", 1)[1]
            flat = {**{key: value for key, value in defs[model].items() if key != RULES}, **flat}
        elif inner := _choice(flat):
            del flat["anyOf"]
            flat = {**inner, **flat}
    return flat, model


def _choice(node: Schema) -> Schema | None:
    """The schema of an optional value when the value is present."""
    choices = [choice for choice in node.get("anyOf", ()) if choice.get("type") != "null"]
    return choices[0] if len(choices) == 1 else None


def _head(kind: Kind) -> Iterator[str]:
    short = f", short name `{kind.short_names[0]}`" if kind.short_names else ""
    yield f"{kind.description} API version `{kind.api_version}`, resource `{kind.plural}`{short}.\n"
    yield f"[{kind.kind.lower()}.yaml](manifests/{kind.kind.lower()}.yaml) sets every field below.\n"
    yield "`kubectl get` shows these columns:\n"
    rows = [(f"{c.name}{' (with `-o wide`)' if c.is_wide else ''}", f"`{c.path}`") for c in kind.columns]
    yield from table(("column", "field"), rows)


def _sections(kind: Kind, examples: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    found = sections(kind)
    links = {model: f"[{model}]({target}#spec)" for model, target in _PAGES.items()}
    links |= {section.model: f"[{section.model}](#{slugify(section.title)})" for section in found}
    for section in found:
        yield f"## {section.title}\n"
        yield f"{prose(str(section.schema.get('description', '')))}\n"
        head, rows = _rows(section, links, examples)
        yield from table(head, rows)
        required = {field.name for field in section.fields if field.is_required}
        rules = [rule for rule in section.schema.get(RULES, ()) if _needed(rule) not in required]
        yield from bullets("A violation is refused with:", [rule["message"] for rule in rules])


def _rows(
    section: Section, links: Mapping[str, str], examples: Sequence[Mapping[str, Any]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A status is written by controllers, so it has no defaults."""
    head = ("field", "type", "default", "description", "example")
    rows = [_row(field, section, links, examples) for field in section.fields]
    if section.paths[0].partition(".")[0] == "spec":
        return head, rows
    return (*head[:2], *head[3:]), [(*row[:2], *row[3:]) for row in rows]


def _row(
    field: Field, section: Section, links: Mapping[str, str], examples: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    kind = _type(field.schema, links.get(field.model, ""))
    allowed = _allowed(f"{section.paths[0]}.{field.name}", field.schema)
    return (
        f"`{field.name}`",
        f"{kind}: {allowed}" if allowed else kind,
        _default(field),
        " ".join((prose(str(field.schema.get("description", ""))), *_rules(field))),
        f"`{_example(field, section, examples)}`",
    )


def _rules(field: Field) -> Iterator[str]:
    """Rules of the field, or of the items of its list, as sentences."""
    for rule in (*field.schema.get(RULES, ()), *field.schema.get("items", {}).get(RULES, ())):
        yield f"It {prose(rule['message'].removeprefix(f'{field.name} '))}."


@cache
def _of_kubernetes() -> tuple[tuple[str, Schema], ...]:
    """Types of Kubernetes, which are documented there."""
    return (
        ("PodTemplateSpec", pod_template_schema()),
        ("NodeAffinity", NODE_AFFINITY_SCHEMA),
        ("list of Toleration", TOLERATIONS_SCHEMA),
        ("map of resource to quantity", QUANTITIES_SCHEMA),
        ("list of ObjectReference", {"items": ObjectReference.model_json_schema()}),
        ("list of Volume", {"items": pod_field_schema(VOLUMES)["items"]}),
        ("list of VolumeMount", {"items": pod_field_schema(VOLUME_MOUNTS)["items"]}),
        ("integer or string", {"x-kubernetes-int-or-string": True}),
    )


def _type(schema: Schema, model: str) -> str:
    for name, whole in _of_kubernetes():
        if all(schema.get(key) == value for key, value in whole.items()):
            return name
    kind = schema.get("type", "")
    if kind == "array":
        return f"list of {model or _type(schema['items'], '')}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"map of string to {model or _type(schema['additionalProperties'], '')}"
    if model:
        return model
    return _FORMATS.get(schema.get("format", ""), _SCALARS.get(kind, ""))


def _allowed(path: str, schema: Schema) -> str:
    words = schema.get("enum") or _WORDS.get(path) or schema.get("items", {}).get("enum")
    if words:
        return " ".join(f"`{word}`" for word in words)
    bounds = [
        _bounds(schema.get("minimum"), schema.get("maximum"), ""),
        _bounds(schema.get("minLength"), schema.get("maxLength"), " characters"),
        _bounds(schema.get("minItems"), schema.get("maxItems"), " items"),
        _bounds(schema.get("minProperties"), schema.get("maxProperties"), " names"),
        f"pattern `{pattern}`" if (pattern := schema.get("pattern", _TEXT)) != _TEXT else "",
    ]
    return ", ".join(bound for bound in bounds if bound)


def _bounds(least: int | None, most: int | None, unit: str) -> str:
    if least == 1 and unit and most is None:
        return "not empty"
    if most is None:
        return "" if least is None else f"at least {least:,}{unit}"
    return f"at most {most:,}{unit}" if least is None else f"{least:,} to {most:,}{unit}"


def _default(field: Field) -> str:
    if field.is_required:
        return "required"
    default = field.schema.get(API_DEFAULT, field.schema.get("default"))
    is_empty = default is None or default in ("", [], {}) or field.model
    return "" if is_empty else f"`{_flow(default)}`"


def _example(field: Field, section: Section, examples: Sequence[Mapping[str, Any]]) -> str:
    values = [value for path in section.paths for value in values_at(examples, f"{path}.{field.name}")]
    if not values:
        raise KeyError(f"{section.paths[0]}.{field.name}")
    text = _flow({field.name: values[0]})[1:-1]
    return text if len(text) <= _LONG or not field.model else f"{field.name}: ..."


def _flow(value: Any) -> str:
    """YAML in one line."""
    text: str = yaml.dump(
        value, Dumper=yaml.CSafeDumper, default_flow_style=True, width=10_000, sort_keys=False,
        allow_unicode=True,
    )  # fmt: skip
    return text.removesuffix("\n").removesuffix("\n...")


def _checks(kind: Kind) -> Iterator[str]:
    refusals = [rule.message for of, rules in REFUSALS if of is kind for rule in rules]
    warnings = [rule.message for of, rules in WARNINGS if of is kind for rule in rules]
    messages = [*(rule["message"] for rule in kind.rules), *refusals]
    yield "## Refused objects\n"
    yield from bullets(
        "Besides the rules above, the API server refuses an object with these messages:", messages
    )
    if warnings:
        yield "## Warnings\n"
        text = "The API server accepts an object to which one of these applies, and `kubectl` prints it:"
        yield from bullets(text, warnings)
