"""Parts that stand in more than one kind: references, conditions, announcements."""

from __future__ import annotations

from typing import Annotated

from paddlewheel.contracts.crds.base import CrdModel, says


class SecretReference(CrdModel):
    """A Secret; without a namespace, one beside the object that names it."""

    name: Annotated[str, says("Name of the Secret.")] = ""
    namespace: Annotated[str, says("Namespace of the Secret; empty = the object's own.")] = ""


class ObjectReference(CrdModel):
    """A pod of the job."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class StatusCondition(CrdModel):
    """A standard Kubernetes condition."""

    type: Annotated[str, says("CamelCase, stable.")]
    status: Annotated[str, says("True, False or Unknown.", enum=["True", "False", "Unknown"])]
    reason: Annotated[str, says("CamelCase word for the last transition.")] = ""
    message: Annotated[str, says("What is the matter and what would mend it.")] = ""
    last_transition_time: Annotated[str, says("When `status` last changed.", format="date-time")] = ""
    observed_generation: Annotated[int, says("Generation of the spec judged.", format="int64")] = 0


class StatusAnnouncement(CrdModel):
    """A fact that is true of the object, and whether the bus has confirmed it."""

    fact: Annotated[str, says("Message name, e.g. JobRunning.")]
    attempt: Annotated[int, says("Counts repetitions of the fact, from 0.", format="int64")] = 0
    at: Annotated[str, says("When the fact became true.", format="date-time")]
    announced: Annotated[bool, says("The bus has stored it.")] = False


class ObservedStatus(CrdModel):
    """What every kind's status carries."""

    observed_generation: Annotated[
        int, says("Generation of the spec this status was computed from.", format="int64")
    ] = 0
    conditions: Annotated[
        tuple[StatusCondition, ...],
        says(
            "Standard conditions, one for each type.",
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


class CommonStatus(ObservedStatus):
    """Status of a kind that tells facts through it."""

    announcements: Annotated[
        tuple[StatusAnnouncement, ...],
        says(
            "Facts declared about this object and published on the bus.",
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
