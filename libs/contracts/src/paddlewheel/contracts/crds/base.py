"""What every CRD model shares: aliases, constraint keywords for the schema, rules.

A constraint is written once, as a schema keyword or a rule. The API server enforces it, and services find
what an object violates with `violations`, from the same text. The models themselves stay permissive, so that
an object stored before a rule existed can still be read and corrected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

API_DEFAULT = "x-paddlewheel-default"
RULES = "x-kubernetes-validations"


class CrdModel(BaseModel):
    """Immutable view of a part of a custom resource; JSON names are lowerCamelCase."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")


def says(description: str, **keywords: Any) -> Any:
    """Describe a field, with OpenAPI keywords for the CRD (`minimum`, `format`, `maxLength` ...)."""
    return Field(description=description, json_schema_extra=dict(keywords))


def int32(description: str, **keywords: Any) -> Any:
    """Describe a 32-bit integer field."""
    return says(description, format="int32", **keywords)


def api_default(value: object) -> dict[str, object]:
    """Keyword that makes the API server fill in `value`; model defaults alone never reach the schema."""
    return {API_DEFAULT: value}


class Rule(dict[str, Any]):
    """A CEL rule as the CRD carries it, and the same verdict in Python.

    Attributes:
        holds: true for the values for which the CEL expression is true: of the model, or of the field, that
            carries the rule. None = only the API server checks it.
    """

    def __init__(self, schema: Mapping[str, Any], holds: Callable[[Any], bool] | None) -> None:
        super().__init__(schema)
        self.holds = holds


def rule(
    expression: str,
    message: str,
    holds: Callable[[Any], bool] | None = None,
    *,
    field: str = "",
    reason: str = "FieldValueInvalid",
    **more: Any,
) -> Rule:
    """One rule, written once: in CEL for the API server and in Python for services.

    Args:
        expression: CEL; true when the object is valid.
        message: names the field and the remedy.
        holds: the same in Python.
        field: path of the field below the rule's own place, e.g. `.source.uri`.
    """
    schema = {"rule": expression, "message": message, "reason": reason, **more}
    return Rule({**schema, "fieldPath": field} if field else schema, holds)


def needs(field: str, message: str) -> Rule:
    """The rule that a field is present, with a remedy, where `required` would only give the name."""
    return rule(
        f"has(self{field})",
        message,
        lambda model: is_given(model, field.removeprefix(".")),
        field=field,
        reason="FieldValueRequired",
    )


def is_as_before(field: str) -> str:
    """CEL of a rule on the whole object: the field of the spec is as it was before the update."""
    was = f"oldSelf.spec.{field}"
    return f"has(self.spec.{field}) == has({was}) && (!has({was}) || self.spec.{field} == {was})"


def is_given(model: CrdModel, alias: str) -> bool:
    """`has()` of CEL: the object has the field, and not as null."""
    name = names_by_alias(type(model))[alias]
    return name in model.model_fields_set and getattr(model, name) is not None


@cache
def names_by_alias(model: type[CrdModel]) -> Mapping[str, str]:
    """The attribute of every JSON name."""
    return {info.alias or name: name for name, info in model.model_fields.items()}


def found(pattern: str, value: str) -> bool:
    """`matches()` of CEL: the pattern occurs in the value. `$` is the end of the text, as in RE2."""
    return re.search(pattern.replace("$", r"\Z"), value) is not None


def without_match(pattern: str, message: str) -> Rule:
    """The rule of a string field that a pattern does not occur in it."""
    return rule(f"!self.matches('{pattern}')", message, lambda value: not found(pattern, value))


PARENT = "(^|/)[.][.](/|$)"
"""Occurs in paths with a `..` component."""


def rules(*all_rules: Rule) -> dict[str, Any]:
    """Keyword that attaches rules to a model or a field."""
    return {RULES: list(all_rules)}
