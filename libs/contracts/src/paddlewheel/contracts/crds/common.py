"""Types that several kinds use: references, and the common fields of a status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import InstanceOf, WithJsonSchema

from paddlewheel.contracts.announcements import Announcements
from paddlewheel.contracts.conditions import Conditions
from paddlewheel.contracts.crds.base import CrdModel, says


class SecretReference(CrdModel):
    """A reference to a Secret, by default in the namespace of the object that refers to it."""

    name: Annotated[str, says("Name of the Secret.")] = ""
    namespace: Annotated[
        str,
        says(
            "Namespace of the Secret; default: the namespace of this object. A Secret of another namespace"
            " must list this object's namespace in its annotation batch.paddlepaddle.org/shared-with."
        ),
    ] = ""


class ObjectReference(CrdModel):
    """A reference to a pod of the job."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


ObjectReferences = Annotated[
    list[Mapping[str, Any]],
    InstanceOf(),
    WithJsonSchema({"type": "array", "items": ObjectReference.model_json_schema()}),
]
"""References as raw JSON, shared with the object. A job has thousands of them, so most passes do not parse
them."""


class ObservedStatus(CrdModel):
    """The fields that the status of every kind has."""

    observed_generation: Annotated[
        int, says("The metadata.generation that this status was computed from.", format="int64")
    ] = 0
    reason: Annotated[str, says("Why the object is in this state, as one CamelCase word.")] = ""
    message: Annotated[str, says("Human-readable explanation of the reason.")] = ""
    conditions: Annotated[
        Conditions,
        says(
            "Standard Kubernetes conditions, at most one of each type.",
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


class CommonStatus(ObservedStatus):
    """The status of a kind whose facts are published on the bus."""

    announcements: Annotated[
        Announcements,
        says(
            "Facts about this object, and whether the bus has stored them. Controllers publish facts from"
            " this list.",
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
