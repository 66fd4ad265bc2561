"""What this service needs of the outside. Adapters: `cluster.py`, `operator.outbox`; in tests those
over the memory cluster and the memory bus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from job_controller.domain.model import Child, ChildKind, ChildRef, Job, Note, PortClaim, SampleSet
from job_controller.domain.plan import Refusal
from paddlewheel.contracts.announcements import Announcements
from paddlewheel.contracts.keys import Key
from paddlewheel.operator.outbox import FactSource, Republished

Raw = dict[str, Any]


@dataclass(frozen=True)
class Children:
    """Raw objects that one job owns. Shared with the cache: never changed."""

    pods: tuple[Raw, ...] = ()
    services: tuple[Raw, ...] = ()
    config_maps: tuple[Raw, ...] = ()


class JobCache(Protocol):
    """What is known without asking anybody, with this process's own writes already in it."""

    def job(self, key: Key) -> Raw | None: ...

    def children(self, job_uid: str) -> Children: ...

    def port_claims(self, but: str) -> tuple[PortClaim, ...]:
        """Host ports of all jobs except the one of this uid."""
        ...


class SampleSets(Protocol):
    """Data sets, read fresh."""

    async def find(self, key: Key) -> SampleSet | None:
        """None when there is none. Raises Retry."""
        ...


class JobWriter(Protocol):
    """Writes to the job object itself; all raise Conflict when it has moved on, and Retry."""

    async def patch_metadata(self, job: Job, patch: Mapping[str, Any]) -> Raw:
        """Returns the object as it is now."""
        ...

    async def patch_status(self, job: Job, patch: Mapping[str, Any]) -> None: ...

    async def check_current(self, job: Job) -> None:
        """Raises Conflict when the API server holds another version than the one given, or none."""
        ...


class ChildWriter(Protocol):
    """Writes to the job's children."""

    async def create(self, job: Job, child: Child) -> Refusal | None:
        """Create, or find our own already there. A Refusal when it is another's or not allowed."""
        ...

    async def patch(self, job: Job, kind: ChildKind, name: str, patch: Mapping[str, Any]) -> None:
        """JSON merge patch; a child that is gone is left alone."""
        ...

    async def delete(self, job: Job, child: ChildRef) -> None:
        """Idempotent, and never another object of the same name."""
        ...


class EventRecorder(Protocol):
    """Kubernetes events on a job; best effort, never raises."""

    def note(self, job: Job, note: Note) -> None: ...


class Outbox(Protocol):
    """Facts to the bus."""

    async def tell(self, source: FactSource, facts: Announcements) -> Announcements:
        """Publish what is pending and confirm what needs no more telling; soon over when the bus is down."""
        ...

    async def republish(
        self, source: FactSource, facts: Announcements, *, everything: bool = False
    ) -> Republished:
        """Publish confirmed facts again that the stream does not hold. Raises Retry."""
        ...


@dataclass(frozen=True)
class Ports:
    """Everything the reconciler touches."""

    cache: JobCache
    sample_sets: SampleSets
    jobs: JobWriter
    children: ChildWriter
    events: EventRecorder
    outbox: Outbox
