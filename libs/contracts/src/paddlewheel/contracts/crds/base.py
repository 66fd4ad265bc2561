"""The base of all CRD models: JSON names, schema keywords for constraints, and rules.

A constraint is written once, as a schema keyword or a rule. The API server enforces it, and services evaluate
the same constraint with `violations`. The models themselves accept any value, so that a service can still
read an object that was stored before a rule existed, and report what to correct.
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
    """An immutable view of a part of a custom resource.

    JSON names are lowerCamelCase, unknown fields are ignored.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")


def says(description: str, **keywords: Any) -> Any:
    """Describe a field, with OpenAPI keywords for the CRD (`minimum`, `format`, `maxLength` ...)."""
    return Field(description=description, json_schema_extra=dict(keywords))


def int32(description: str, **keywords: Any) -> Any:
    """Describe a 32-bit integer field."""
    return says(description, format="int32", **keywords)


def api_default(value: object) -> dict[str, object]:
    """The keyword that makes the API server fill in `value`. Defaults of the model are not in the schema."""
    return {API_DEFAULT: value}


class Rule(dict[str, Any]):
    """A CEL rule as written in the CRD, and the same check in Python.

    Attributes:
        holds: returns true for the values for which the CEL expression is true. Its argument is the model or
            the field that has the rule. None = only the API server can check the rule.
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
    """A validation rule: CEL for the API server, and Python for services.

    Args:
        expression: CEL; true when the object is valid.
        message: names the field and what to do.
        holds: the expression in Python; None = only the API server can check it.
        field: path of the invalid field, relative to the model that has the rule, e.g. `.source.uri`.
        reason: the `reason` of the API server's error.
    """
    schema = {"rule": expression, "message": message, "reason": reason, **more}
    return Rule({**schema, "fieldPath": field} if field else schema, holds)


def needs(field: str, message: str) -> Rule:
    """The rule that a field is present. The keyword `required` would not allow a message of our own."""
    return rule(
        f"has(self{field})",
        message,
        lambda model: is_given(model, field.removeprefix(".")),
        field=field,
        reason="FieldValueRequired",
    )


def is_as_before(field: str) -> str:
    """CEL for a rule of the whole object: the update does not change this field of the spec."""
    was = f"oldSelf.spec.{field}"
    return f"has(self.spec.{field}) == has({was}) && (!has({was}) || self.spec.{field} == {was})"


def is_given(model: CrdModel, alias: str) -> bool:
    """Whether the object has the field, and the field is not null; the same as `has()` in CEL."""
    name = names_by_alias(type(model))[alias]
    return name in model.model_fields_set and getattr(model, name) is not None


@cache
def names_by_alias(model: type[CrdModel]) -> Mapping[str, str]:
    """JSON name to attribute of the model."""
    return {info.alias or name: name for name, info in model.model_fields.items()}


def found(pattern: str, value: str) -> bool:
    """Whether the pattern occurs in the value; the same as `matches()` in CEL.

    `$` matches the end of the text only.
    """
    return re.search(pattern.replace("$", r"\Z"), value) is not None


def without_match(pattern: str, message: str) -> Rule:
    """The rule that a string field does not contain the pattern."""
    return rule(f"!self.matches('{pattern}')", message, lambda value: not found(pattern, value))


PARENT = "(^|/)[.][.](/|$)"
"""A pattern that matches paths with a `..` component."""


def rules(*all_rules: Rule) -> dict[str, Any]:
    """The keyword that attaches rules to a model or a field."""
    return {RULES: list(all_rules)}
