"""Evaluates the rules and keywords of a CRD, as the API server does, and lists what an object violates.

The API server refuses such objects. A service finds one only if it was stored before a rule existed, or while
the CRD was replaced by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from paddlewheel.contracts.crds.base import RULES, CrdModel, Rule, found
from paddlewheel.contracts.crds.kinds import Kind


@dataclass(frozen=True)
class Violation:
    """One violated rule. `field` is the path in the object, e.g. `spec.worker.replicas`."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


@dataclass(frozen=True)
class Subject:
    """The parts of an object that the rules of its kind read.

    `has_spec` is false if the object has no spec.
    """

    name: str
    namespace: str
    spec: Any
    has_spec: bool = True


def find_violations(kind: Kind, subject: Subject) -> tuple[Violation, ...]:
    """Every rule and keyword that the object violates, in the order of the fields."""
    return (
        *_broken(kind.rules, subject, ""),
        *(_of_model(subject.spec, "spec") if subject.has_spec else ()),
    )


def _of_model(model: CrdModel, path: str) -> Iterator[Violation]:
    checks = _checks(type(model))
    yield from _broken(checks.rules, model, path)
    for field in checks.fields:
        value = getattr(model, field.name)
        if value is not None and field.name in model.model_fields_set:
            yield from _of_value(value, field, f"{path}.{field.alias}")


def _of_value(value: Any, field: _Field, path: str) -> Iterator[Violation]:
    for keyword, wanted in field.keywords.items():
        is_valid, message = _KEYWORDS[keyword]
        if not is_valid(value, wanted):
            yield Violation(path, message.format(wanted, value))
    yield from _broken(field.rules, value, path)
    if isinstance(value, CrdModel):
        yield from _of_model(value, path)
    elif isinstance(value, (tuple, list)) and field.items:
        for index, item in enumerate(value):
            yield from _of_value(item, field.items, f"{path}[{index}]")
    elif isinstance(value, dict) and field.items:
        for name, item in value.items():
            yield from _of_value(item, field.items, f"{path}[{name}]")


def _broken(rules: tuple[Rule, ...], value: Any, path: str) -> Iterator[Violation]:
    for rule in rules:
        if rule.holds and not rule.holds(value):
            yield Violation(f"{path}{rule.get('fieldPath', '')}".lstrip("."), rule["message"])


@dataclass(frozen=True)
class _Field:
    """The checks of one field, or of the items of a list or map."""

    name: str
    alias: str
    keywords: Mapping[str, Any]
    rules: tuple[Rule, ...]
    items: _Field | None = None
    is_model: bool = False

    @property
    def is_checked(self) -> bool:
        return bool(self.keywords or self.rules or self.items or self.is_model)


@dataclass(frozen=True)
class _Checks:
    rules: tuple[Rule, ...]
    fields: tuple[_Field, ...]


@cache
def _checks(model: type[CrdModel]) -> _Checks:
    extra = model.model_config.get("json_schema_extra")
    rules = extra.get(RULES, ()) if isinstance(extra, dict) else ()
    fields = (_field(name, info) for name, info in model.model_fields.items())
    return _Checks(tuple(rules), tuple(field for field in fields if field.is_checked))  # type: ignore[arg-type]


def _field(name: str, info: FieldInfo) -> _Field:
    extra: Mapping[str, Any] = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    keywords = {keyword: value for keyword, value in extra.items() if keyword in _KEYWORDS}
    rules, items = tuple(extra.get(RULES, ())), _items(info.annotation)
    return _Field(name, info.alias or name, keywords, rules, items, _has_model(info.annotation))


def _has_model(annotation: Any) -> bool:
    choices = (annotation, *get_args(annotation))
    return any(isinstance(choice, type) and issubclass(choice, CrdModel) for choice in choices)


def _items(annotation: Any) -> _Field | None:
    if get_origin(annotation) not in (tuple, list, dict):
        return None
    # The names of a map are not checked.
    item = get_args(annotation)[1 if get_origin(annotation) is dict else 0]
    info = next((m for m in getattr(item, "__metadata__", ()) if isinstance(m, FieldInfo)), FieldInfo())
    field = replace(_field("", info), is_model=_has_model(item))
    return field if field.is_checked else None


_KEYWORDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (lambda value, least: value >= least, "must be at least {0}, is {1}"),
    "maximum": (lambda value, most: value <= most, "must be at most {0}, is {1}"),
    "minLength": (lambda value, least: len(value) >= least, "must have at least {0} characters"),
    "maxLength": (lambda value, most: len(value) <= most, "must have at most {0} characters"),
    "minItems": (lambda value, least: len(value) >= least, "must have at least {0} items"),
    "maxItems": (lambda value, most: len(value) <= most, "must have at most {0} items"),
    "maxProperties": (lambda value, most: len(value) <= most, "must have at most {0} properties"),
    "enum": (lambda value, words: value in words, "must be one of {0}, is {1!r}"),
    "pattern": (lambda value, pattern: found(pattern, value), "must match {0}"),
}
"""Schema keyword to its check, and to the message about an invalid value."""
