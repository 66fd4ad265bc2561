"""How specs name models: the same for what makes them and what serves them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

from paddlewheel.contracts.crds.base import Rule, without_match

MODEL_NAME = "^[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?$"
DIGEST = "^sha256:[0-9a-f]{64}$"


def int_or_string(pattern: str) -> Any:
    """A number where the original asked for text: both are read."""
    return WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": pattern,
            "x-kubernetes-int-or-string": True,
        }
    )


Word = Annotated[int | str, int_or_string(r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]
"""A version, or a tag."""


def without_keys(field: str, remedy: str) -> Rule:
    """The rule of an address that no keys stand in it: everybody who reads the object could use them."""
    return without_match("^[^/]*//[^/@]*@", f"{field} must not contain keys: {remedy}")
