"""What every CRD model shares: aliases, constraint keywords for the schema, CEL rules.

A constraint is written once, as a schema keyword or a CEL rule, and enforced by the API server. The models
themselves stay permissive, so that an object stored before a rule existed can still be read and mended.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

API_DEFAULT = "x-paddlewheel-default"
RULES = "x-kubernetes-validations"

# The API server wants bounds before it runs a rule. A Linux path; an object's key (S3: 1,024 bytes); as many
# paths as one command line of the original could carry (128 KiB).
PATH_LENGTH = 4096
KEY_LENGTH = 1024
PATHS = 4096


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


def rule(
    expression: str, message: str, *, field: str = "", reason: str = "FieldValueInvalid", **more: Any
) -> dict[str, Any]:
    """One CEL rule.

    Args:
        expression: true when the object is good.
        message: names the field and the remedy.
        field: path of the field below the rule's own place, e.g. `.source.uri`.
    """
    made: dict[str, Any] = {"rule": expression, "message": message, "reason": reason, **more}
    return {**made, "fieldPath": field} if field else made


def needs(field: str, message: str, when: str = "true") -> dict[str, Any]:
    """The CEL rule that a field is there, which says the remedy where `required` only says the name."""
    unless = "" if when == "true" else f"!({when}) || "
    return rule(f"{unless}has(self{field})", message, field=field, reason="FieldValueRequired")


def without_parents(value: str) -> str:
    """CEL: the path in `value` has no `..` component."""
    return f"!{value}.matches('(^|/)[.][.](/|$)')"


def rules(*all_rules: dict[str, Any]) -> dict[str, Any]:
    """Keyword that attaches rules to a model or a field."""
    return {RULES: list(all_rules)}
