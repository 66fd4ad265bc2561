"""Fields that refer to models, shared by PaddleJobs, which make models, and PaddleServices, which serve
them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

from paddlewheel.contracts.crds.base import Rule, without_match

MODEL_NAME = "^[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?$"
DIGEST = "^sha256:[0-9a-f]{64}$"


def int_or_string(pattern: str) -> Any:
    """The schema of a field that accepts a number or a string. The original operator accepts only strings."""
    return WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": pattern,
            "x-kubernetes-int-or-string": True,
        }
    )


Word = Annotated[int | str, int_or_string(r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]
"""A version of a model, or a tag of an image: 1 to 128 letters, digits, '.', '_' and '-'."""


def without_keys(field: str, what_to_do: str) -> Rule:
    """The rule that an address contains no keys, since all users with access to the object could read
    them."""
    return without_match("^[^/]*//[^/@]*@", f"{field} must not contain keys: {what_to_do}")
