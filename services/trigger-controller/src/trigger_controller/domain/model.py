"""The words of this service: occurrences, triggers as they stand, what is to be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.conditions import Conditions
from paddlewheel.contracts.crds import TriggerSpec
from paddlewheel.contracts.keys import Key

Raw = Mapping[str, Any]
"""JSON as the API server gives it; shared, never changed."""


@dataclass(frozen=True)
class Occurrence:
    """One event on the bus, as far as triggers look at it.

    `at` is when a fact became true, or when the bus took a store's notification (its clock is not ours).
    `kind` is the object's where triggers create such; `chain` and `creator` tell by which triggers
    it came to be.
    """

    id: str
    type: str
    at: datetime
    namespace: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    source: str = ""
    bucket: str = ""
    key: str = ""
    chain: tuple[str, ...] = ()
    creator: str = ""

    @property
    def is_notification(self) -> bool:
        """Told by an object store, and so of no namespace."""
        return bool(self.source)


@dataclass(frozen=True)
class Origin:
    """Who created an object: name of the trigger, and uids of all triggers that led to it, oldest first."""

    creator: str = ""
    chain: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gathered:
    """Events for which one object is created, from the newest of them. `since` and `until`: taken in."""

    events: int
    since: datetime
    until: datetime
    newest: Occurrence


@dataclass(frozen=True)
class Refused:
    """The API server did not take what the template of this generation makes."""

    generation: int
    retry_at: datetime


@dataclass(frozen=True)
class ChildRef:
    """An object a trigger created."""

    kind: str
    name: str
    uid: str


class Outcome(StrEnum):
    """Where the work of a child stands."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True)
class Child:
    """A child as it is seen. `created_at` is RFC 3339."""

    ref: ChildRef
    outcome: Outcome
    created_at: str


@dataclass(frozen=True)
class Status:
    """`status` of a Trigger."""

    observed_generation: int = 0
    conditions: Conditions = ()
    events: int = 0
    skipped: int = 0
    fired: int = 0
    active: int = 0
    last_fired: datetime | None = None
    last_event: str = ""
    last_child: ChildRef | None = None
    waiting: Gathered | None = None
    firing: Gathered | None = None
    refused: Refused | None = None
    recent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Template:
    """What to create, as it stands in the spec."""

    kind: str
    metadata: Raw
    spec: Raw


@dataclass(frozen=True)
class Trigger:
    """One Trigger as the API server holds it."""

    key: Key
    uid: str
    generation: int
    resource_version: str
    created_at: datetime
    is_deleting: bool
    spec: TriggerSpec
    template: Template
    status: Status
    raw_status: Raw = field(default_factory=dict)


@dataclass(frozen=True)
class Observed:
    """Everything a decision depends on. `fresh`: events nobody remembers."""

    trigger: Trigger
    fresh: tuple[Occurrence, ...] = ()
    children: tuple[Child, ...] = ()


@dataclass(frozen=True)
class Creation:
    """One object to create, and the events it is for."""

    kind: str
    manifest: Raw
    gathered: Gathered


@dataclass(frozen=True)
class Plan:
    """What to do now. `status` is what holds once it is done and nothing was refused."""

    status: Status
    create: tuple[Creation, ...] = ()
    delete: tuple[ChildRef, ...] = ()
    loop: str = ""
    """Why events were held off as the trigger's own doing, "" = none were."""


@dataclass(frozen=True)
class Refusal:
    """The API server's answer to a creation, in its own words."""

    reason: str
    message: str


@dataclass(frozen=True)
class Created:
    """How one creation ended."""

    creation: Creation
    child: ChildRef | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True)
class Note:
    """A Kubernetes event about the trigger."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True)
class Fact:
    """A fact about the trigger, and the id it always has."""

    id: str
    data: WireModel


@dataclass(frozen=True)
class Conclusion:
    """What is said and recorded after acting."""

    status: Status
    facts: tuple[Fact, ...] = ()
    notes: tuple[Note, ...] = ()
    requeue_after: float | None = None
