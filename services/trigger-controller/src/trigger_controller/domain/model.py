"""The values on which decisions are based: events, triggers and their children."""

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
"""JSON from the API server. It is shared, so it must not be changed."""


@dataclass(frozen=True)
class Occurrence:
    """An event on the bus.

    Args:
        event: the values that templates may contain. Its `time` is when the fact became true; for a
            notification, when the bus stored it, because the store's clock may differ. Its `chain` is known
            once the origin is.
        kind: kind of the fact's object, if triggers can create such objects.
        creator: name of the trigger that created the object.
    """

    event: StatusEvent
    kind: str = ""
    creator: str = ""

    @property
    def id(self) -> str:
        """The ce-id of the event."""
        return self.event.id

    def of(self, origin: Origin) -> Occurrence:
        """The event with the origin of its object."""
        event = self.event.model_copy(update={"chain": origin.chain})
        return Occurrence(event, self.kind, origin.creator)

    @property
    def is_notification(self) -> bool:
        """Whether an object store sent the event. Such an event has no namespace."""
        return bool(self.event.store_source)


@dataclass(frozen=True)
class Origin:
    """The trigger that created an object, and the uids of all triggers that led to it, the oldest first."""

    creator: str = ""
    chain: tuple[str, ...] = ()


class Outcome(StrEnum):
    """The state of a child's work."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True)
class Child:
    """An observed child.

    Args:
        ref: kind, name and uid of the child.
        outcome: the state of its work.
        created_at: creation time, RFC 3339.
        event_id: id of the event for which the child was created.
        has_pending_facts: whether its status has facts that the bus has not stored.
    """

    ref: StatusChild
    outcome: Outcome
    created_at: str
    event_id: str = ""
    has_pending_facts: bool = False


@dataclass(frozen=True)
class Template:
    """The template in the spec. `problems` lists errors in its names `$(...)`."""

    kind: str
    metadata: Raw
    spec: Raw
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trigger:
    """A Trigger, parsed.

    Args:
        obj: the raw object.
        retry: value of the annotation that requests a retry.
        lost_known: value of the annotation with the number of lost events that the user has acknowledged.
        ungranted: why the trigger may not follow its source; "" if it may.
        unscheduled: why the schedule is invalid; "" if it is valid.
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
    """The state of a schedule in a pass.

    Args:
        since: all times up to this one have been handled.
        looked_at: when the schedule was evaluated. The next pass handles later times.
        due: event of the newest time after `since` that is due.
        missed: a time whose deadline had passed, and which creates nothing. It equals `since`.
    """

    since: datetime
    looked_at: datetime
    due: Occurrence | None = None
    missed: datetime | None = None


@dataclass(frozen=True)
class Page:
    """A reference to a page: an entry of the bucket with further deferred events.

    Args:
        name: the last part of the entry's key.
        events: number of events.
        oldest: when the first of the events happened.
        newest: when the last of the events happened.
    """

    name: str
    events: int
    oldest: datetime
    newest: datetime


@dataclass(frozen=True)
class Deferred:
    """The deferred events of a trigger, the oldest first.

    Args:
        events: the events in the trigger's entry of the bucket.
        pages: further events, which do not fit into the entry. They are moved there when it has room.
        store: identifies the entry; "" if there is none. It changes when events are lost.
    """

    events: tuple[Occurrence, ...] = ()
    pages: tuple[Page, ...] = ()
    store: str = ""

    @property
    def count(self) -> int:
        """The number of events, including those in pages."""
        return len(self.events) + sum(page.events for page in self.pages)

    @property
    def times(self) -> list[datetime]:
        """The times of the events; for a page, the times of its oldest and its newest event."""
        of_pages = (time for page in self.pages for time in (page.oldest, page.newest))
        return [*(o.event.time for o in self.events), *of_pages]

    def has(self, event_id: str) -> bool:
        """Whether the event is in `events`. Events in pages are not checked."""
        return any(o.id == event_id for o in self.events)


@dataclass(frozen=True)
class Observed:
    """The observed state of a trigger, on which all decisions of a pass are based.

    Args:
        trigger: the trigger.
        fresh: new events that concern the trigger and have no mark.
        turn: state of the schedule; None without a schedule.
        held: ids of offered events that must wait, because a read failed or the outbox has no room.
        unclear: events in `held` for which a read other than of the bus failed.
        spent: ids of offered events that may not wait on the bus any longer.
        postponed: new events that are not tried in this pass, because no creation succeeds at present.
        deferred: deferred events; None if the bucket cannot be read.
        again: ids of the deferred events that this pass tries.
        kept: ids of the events that this pass has deferred.
        children: children of the trigger.
        unrecorded: uids of outdated children whose event may be delivered again.
        is_blind: the children could not be listed although a decision depends on them, so `children` may be
            old.
        is_cached: the children are from the cache, which may lag behind, because nothing was due. Nothing is
            released in this pass.
        troubles: failed reads.
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
        """The raw Trigger."""
        return self.trigger.obj

    @property
    def status(self) -> TriggerStatus:
        """The status of the trigger, parsed."""
        return self.trigger.status
