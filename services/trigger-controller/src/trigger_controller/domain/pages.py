"""The form of deferred events in the bucket: one entry for each trigger, and pages for events that do not
fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from itertools import accumulate
from typing import Any

import orjson

from paddlewheel.contracts.crds.trigger import StatusEvent
from trigger_controller.domain.model import Deferred, Occurrence, Page

MOST = 512
"""Events in one entry, at most. A page has half of them."""
MOST_BYTES = 768 * 1024
"""Bytes of the events in one entry as JSON, at most. A message on the bus has at most 1 MiB."""
MOST_PAGES = 32
"""Pages of one trigger, at most. So the deferred events of one trigger take at most a fifth of the bucket."""

Events = tuple[Occurrence, ...]


def split(deferred: Deferred) -> tuple[Deferred, tuple[Events, ...]]:
    """Split events: the newest ones fill the entry, the oldest ones go into pages."""
    events, pages = deferred.events, []
    while not _is_within(events, MOST, MOST_BYTES):
        page = _first_half(events)
        pages.append(page)
        events = events[len(page) :]
    return replace(deferred, events=events), tuple(pages)


def has_room(deferred: Deferred) -> bool:
    """Whether the entry has room for the events of a page."""
    return _is_within(deferred.events, MOST // 2, MOST_BYTES // 2)


def make_page(name: str, events: Events) -> Page:
    """The reference to a page with these events."""
    times = [occurrence.event.time for occurrence in events]
    return Page(name, len(events), min(times), max(times))


def write(deferred: Deferred, now: datetime) -> bytes:
    """Render the entry."""
    entry = {"store": deferred.store, "events": _rendered(deferred.events), "pages": deferred.pages}
    return orjson.dumps({**entry, "touched": now})


def write_page(events: Events) -> bytes:
    """Render a page."""
    return orjson.dumps({"events": _rendered(events)})


def read(data: bytes | None) -> Deferred:
    """Parse an entry or a page."""
    stored = orjson.loads(data or b"{}")
    events = (Occurrence(StatusEvent.model_validate(e["event"]), e["kind"]) for e in stored.get("events", ()))
    found = tuple(_page(page) for page in stored.get("pages", ()))
    return Deferred(tuple(events), found, stored.get("store", ""))


def touched_at(data: bytes) -> datetime:
    """When the entry was last written."""
    return datetime.fromisoformat(orjson.loads(data)["touched"])


def _is_within(events: Events, most: int, most_bytes: int) -> bool:
    return len(events) <= most and sum(map(_size, events)) <= most_bytes


def _first_half(events: Events) -> Events:
    fits = sum(total <= MOST_BYTES // 2 for total in accumulate(map(_size, events)))
    return events[: max(1, min(fits, MOST // 2))]


def _size(occurrence: Occurrence) -> int:
    return len(orjson.dumps(_rendered((occurrence,))))


def _rendered(events: Iterable[Occurrence]) -> list[dict[str, Any]]:
    return [
        {"event": o.event.model_dump(mode="json", by_alias=True, exclude_defaults=True), "kind": o.kind}
        for o in events
    ]


def _page(stored: dict[str, Any]) -> Page:
    oldest, newest = (datetime.fromisoformat(stored[name]) for name in ("oldest", "newest"))
    return Page(stored["name"], stored["events"], oldest, newest)
