"""The values decisions are made from: events, triggers and their children as observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from paddlewheel.contracts.crds import TriggerSpec, TriggerStatus
from paddlewheel.contracts.crds.trigger import StatusChild, StatusEvent
from paddlewheel.contracts.keys import Key
from paddlewheel.operator.domain.plan import Trouble

Raw = Mapping[str, Any]
"""JSON as the API server gives it; shared, never changed."""


@dataclass(frozen=True)
class Occurrence:
    """One event on the bus.

    Args:
        event: what templates may name. Its `time` is when a fact became true, or when the bus stored a
            notification (the store's clock is not ours); its `chain` is known once the origin is.
        kind: kind of the fact's object if triggers can create such objects.
        creator: trigger that created the object.
    """

    event: StatusEvent
    kind: str = ""
    creator: str = ""

    @property
    def id(self) -> str:
        """ce-id."""
        return self.event.id

    def of(self, origin: Origin) -> Occurrence:
        """With the origin of the fact's object."""
        event = self.event.model_copy(update={"chain": origin.chain})
        return Occurrence(event, self.kind, origin.creator)

    @property
    def is_notification(self) -> bool:
        """Published by an object store, and so of no namespace."""
        return bool(self.event.store_source)


@dataclass(frozen=True)
class Origin:
    """Who created an object: name of the trigger, and uids of all triggers that led to it, oldest first."""

    creator: str = ""
    chain: tuple[str, ...] = ()


class Outcome(StrEnum):
    """How far the work of a child is."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True)
class Child:
    """A child as observed.

    Args:
        created_at: RFC 3339.
        event_id: id of the event that it was created for.
        has_pending_facts: the bus does not have all facts in its status.
    """

    ref: StatusChild
    outcome: Outcome
    created_at: str
    event_id: str = ""
    has_pending_facts: bool = False


@dataclass(frozen=True)
class Template:
    """What to create, as written in the spec. `problems`: what is wrong with its `$(...)` names."""

    kind: str
    metadata: Raw
    spec: Raw
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trigger:
    """One Trigger as the API server holds it.

    Args:
        retry: the value of its annotation of that name.
        lost_known: number of lost events that somebody knows of, as its annotation says.
        ungranted: why it may not follow its source, "" if it may.
        unscheduled: why its schedule cannot be read, "" if it can.
    """

    obj: dict[str, Any]
    key: Key
    uid: str
    generation: int
    created_at: datetime
    deleted_at: datetime | None
    finalizers: tuple[str, ...]
    spec: TriggerSpec
    template: Template
    retry: str
    lost_known: str
    ungranted: str
    unscheduled: str
    status: TriggerStatus


@dataclass(frozen=True)
class Turn:
    """Where a schedule stands.

    Args:
        since: every time up to this one has been dealt with.
        looked_at: when it was looked at; later times are the next pass's.
        due: the newest time after it that has come.
        missed: the time of `since`, if its deadline had passed just now.
    """

    since: datetime
    looked_at: datetime
    due: Occurrence | None = None
    missed: datetime | None = None


@dataclass(frozen=True)
class Page:
    """Deferred events in an entry of their own: its name, how many they are, and when they happened."""

    name: str
    events: int
    oldest: datetime
    newest: datetime


@dataclass(frozen=True)
class Deferred:
    """Events of a trigger that wait in the bucket, oldest first.

    Args:
        store: identifies the entry of the bucket that holds them, "" if there is none. It is another one
            after some were lost.
        pages: what does not fit into the same entry of the bucket. Their turn comes once there is room.
    """

    events: tuple[Occurrence, ...] = ()
    pages: tuple[Page, ...] = ()
    store: str = ""

    @property
    def count(self) -> int:
        """How many events."""
        return len(self.events) + sum(page.events for page in self.pages)

    @property
    def times(self) -> list[datetime]:
        """When they happened, the oldest and the newest among them."""
        of_pages = (time for page in self.pages for time in (page.oldest, page.newest))
        return [*(o.event.time for o in self.events), *of_pages]

    def has(self, event_id: str) -> bool:
        """The event is one of `events`. One of a page may come again: its mark tells that it was handled."""
        return any(o.id == event_id for o in self.events)


@dataclass(frozen=True)
class Observed:
    """Everything a decision depends on.

    Args:
        fresh: events that concern the trigger and that the memory does not know.
        turn: where its schedule stands, None without one.
        held: ids of offered events that have to wait: it cannot be known now whether they are fresh, or the
            outbox has no room.
        unclear: those of them about which something other than the bus could not be read.
        spent: ids of offered events that may not wait on the bus any longer.
        postponed: new events that are not tried in this pass, for no creation succeeds.
        deferred: events that wait in the bucket, None while it cannot be read.
        again: ids of those of them that this pass deals with.
        kept: ids of events that this pass has deferred.
        children: of the trigger.
        unrecorded: uids of ended children beyond the limits whose event may come again.
        is_blind: the children could not be listed although a decision depends on them; `children` may be old.
        is_cached: nothing was due when the children were read from the cache, which may be behind: nothing is
            released in this pass.
        troubles: reads that failed.
    """

    trigger: Trigger
    fresh: tuple[Occurrence, ...] = ()
    turn: Turn | None = None
    held: frozenset[str] = frozenset()
    unclear: tuple[Occurrence, ...] = ()
    spent: frozenset[str] = frozenset()
    postponed: tuple[Occurrence, ...] = ()
    deferred: Deferred | None = Deferred()
    again: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    children: tuple[Child, ...] = ()
    unrecorded: frozenset[str] = frozenset()
    is_blind: bool = False
    is_cached: bool = False
    troubles: tuple[Trouble, ...] = ()

    @property
    def obj(self) -> dict[str, Any]:
        """The Trigger itself."""
        return self.trigger.obj

    @property
    def status(self) -> TriggerStatus:
        """Its status, parsed."""
        return self.trigger.status
