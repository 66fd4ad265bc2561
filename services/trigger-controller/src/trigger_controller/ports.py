"""What this service needs of the outside. Adapters: `cluster.py`, `memory.py` and the bus itself; in tests
the same over the memory cluster and the memory bus."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from trigger_controller.domain.model import (
    Child,
    ChildRef,
    Created,
    Creation,
    Note,
    Occurrence,
    Origin,
    Trigger,
)


class Triggers(Protocol):
    """The triggers and what they created."""

    def candidates(self, occurrence: Occurrence) -> list[Key]:
        """Triggers the event may concern, from the cache."""
        ...

    async def find(self, key: Key) -> Trigger | None:
        """Read fresh; None when it is gone or being deleted. Raises Retry, Permanent."""
        ...

    async def children(self, trigger: Trigger) -> tuple[Child, ...]:
        """Fresh where a decision hangs on them, else from the cache. Raises Retry."""
        ...

    async def patch_status(self, trigger: Trigger, patch: Mapping[str, Any]) -> None:
        """Raises Conflict when the trigger has moved on, Retry."""
        ...


class Works(Protocol):
    """Writes to SampleJobs and PaddleJobs."""

    async def create(self, trigger: Trigger, creation: Creation) -> Created:
        """One that exists already for the same event counts as created. Raises Retry, Conflict."""
        ...

    async def delete(self, trigger: Trigger, child: ChildRef) -> None:
        """Idempotent, and never another object of the same name."""
        ...


class Objects(Protocol):
    """Objects that facts are about."""

    async def origin(self, kind: str, key: Key, uid: str) -> Origin | None:
        """By whom it was created; None when the object is gone. Raises Retry."""
        ...


class Memory(Protocol):
    """What happened, remembered beyond the life of what was created."""

    async def unknown(self, trigger_uid: str, digests: Collection[str]) -> frozenset[str]:
        """Those of the events that were never remembered. Raises Retry."""
        ...

    async def remember(self, trigger_uid: str, digests: Collection[str]) -> None:
        """The events were dealt with. Idempotent. Raises Retry."""
        ...

    async def origin(self, uid: str) -> Origin:
        """By whom an object was created that is gone; empty when no trigger did. Raises Retry."""
        ...

    async def remember_origin(self, uid: str, origin: Origin) -> None:
        """Idempotent. Raises Retry."""
        ...


class Outbox(Protocol):
    """Facts to the bus."""

    async def publish(self, event: Event) -> None:
        """Return once stored. Raises Retry when the bus is away, Permanent when it can never be."""
        ...


class Notes(Protocol):
    """Kubernetes events on a trigger; best effort, never raises."""

    def note(self, trigger: Trigger, note: Note) -> None: ...


@dataclass(frozen=True)
class Ports:
    """Everything the reconciler touches."""

    triggers: Triggers
    works: Works
    objects: Objects
    memory: Memory
    outbox: Outbox
    notes: Notes
