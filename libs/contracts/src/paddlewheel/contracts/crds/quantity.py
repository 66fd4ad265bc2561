"""The schema of Kubernetes quantities: an integer, or text such as 500m or 4Gi."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

# The pattern that controller-gen publishes for resource.Quantity.
PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?"
    r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
QUANTITY_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": PATTERN,
    "x-kubernetes-int-or-string": True,
}
QUANTITIES_SCHEMA: dict[str, Any] = {"type": "object", "additionalProperties": QUANTITY_SCHEMA}

Quantities = Annotated[dict[str, int | str], WithJsonSchema(QUANTITIES_SCHEMA)]
