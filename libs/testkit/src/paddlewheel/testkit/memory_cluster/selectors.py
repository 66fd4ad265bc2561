"""Label and field selectors with the syntax of the API server, for the memory adapter."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from paddlewheel.core.errors import Permanent
from paddlewheel.kube.ports import Object

_SET = re.compile(r"^\s*([\w./-]+)\s+(in|notin)\s+\(([^)]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([\w./-]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*$")
_EXISTS = re.compile(r"^\s*(!?)\s*([\w./-]+)\s*$")

Labels = Mapping[str, str]
Requirement = Callable[[Labels], bool]


def matches(obj: Object, label_selector: str, field_selector: str) -> bool:
    """Whether the object matches both selectors. "" matches every object.

    Raises:
        Permanent: a selector cannot be parsed.
    """
    labels = obj["metadata"].get("labels") or {}
    if not all(_requirement(part)(labels) for part in _split(label_selector)):
        return False
    return all(_field_matches(obj, part) for part in _split(field_selector))


def _split(selector: str) -> list[str]:
    """Split at commas outside parentheses."""
    return [part for part in re.split(r",(?![^(]*\))", selector) if part.strip()]


def _requirement(text: str) -> Requirement:
    if found := _SET.match(text):
        name, verb, values = found.groups()
        wanted = {value.strip() for value in values.split(",")}
        if verb == "in":
            return lambda labels: labels.get(name) in wanted
        return lambda labels: labels.get(name) not in wanted
    if found := _EQUAL.match(text):
        name, verb, value = found.groups()
        if verb == "!=":
            return lambda labels: labels.get(name) != value
        return lambda labels: labels.get(name) == value
    if found := _EXISTS.match(text):
        absent, name = found.groups()
        return lambda labels: (name in labels) != bool(absent)
    raise Permanent("BadRequest", f"unable to parse requirement in label selector: {text!r}")


def _field_matches(obj: Object, text: str) -> bool:
    found = _EQUAL.match(text)
    if not found:
        raise Permanent("BadRequest", f"invalid field selector: {text!r}")
    path, verb, wanted = found.groups()
    value: Any = obj
    for name in path.split("."):
        value = value.get(name, "") if isinstance(value, Mapping) else ""
    return (str(value) == wanted) != (verb == "!=")
