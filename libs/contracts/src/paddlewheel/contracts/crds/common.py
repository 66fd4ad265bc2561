"""Parts that several kinds share: references and the common fields of a status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import InstanceOf, WithJsonSchema

from paddlewheel.contracts.announcements import Announcements
from paddlewheel.contracts.conditions import Conditions
from paddlewheel.contracts.crds.base import CrdModel, says


class SecretReference(CrdModel):
    """A Secret; without a namespace, in the namespace of the object that names it."""

    name: Annotated[str, says("Name of the Secret.")] = ""
    namespace: Annotated[
        str,
        says(
            "Namespace of the Secret; empty = the object's own. Another one's must name the object's in its"
            " annotation batch.paddlepaddle.org/shared-with."
        ),
    ] = ""


class ObjectReference(CrdModel):
    """A pod of the job."""

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
"""Raw and shared with the object: a job has thousands, and most passes read none of them."""


class ObservedStatus(CrdModel):
    """What every kind's status carries."""

    observed_generation: Annotated[
        int, says("Generation of the spec this status was computed from.", format="int64")
    ] = 0
    reason: Annotated[str, says("Why the object is in this state, in one CamelCase word.")] = ""
    message: Annotated[str, says("The same in words.")] = ""
    conditions: Annotated[
        Conditions,
        says(
            "Standard conditions, one for each type.",
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


class CommonStatus(ObservedStatus):
    """Status of a kind whose facts are published from it."""

    announcements: Annotated[
        Announcements,
        says(
            "Facts declared about this object and published on the bus.",
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
