"""Reading from memory streams, as `nats.read` does from real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from paddlewheel.bus.ports import Delivery, OtherSelection, Reading
from paddlewheel.bus.streams import streams_under
from paddlewheel.contracts import wire
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.testkit.memory_bus.stream import Bell, MemoryStream, Stored

_RETRY_INTERVAL_SECONDS = 0.05
"""An event whose refinement failed is read again after this time."""

log = LibraryLogger(__name__)


@dataclass
class _Place:
    """The position of a reader's name; one process at a time holds an event."""

    subjects: tuple[str, ...]
    positions: dict[str, int]
    since: datetime | None
    selection: str
    selection_key: str
    attempts: dict[tuple[str, int], int] = field(default_factory=dict)
    holding: asyncio.Lock = field(default_factory=asyncio.Lock)


class MemoryReader:
    """Reader over a memory bus's streams."""

    def __init__(self, streams: Mapping[str, MemoryStream], bell: Bell, check_up: Callable[[], None]) -> None:
        self._streams = streams
        self._bell = bell
        self._check_up = check_up
        self._kept: dict[str, _Place] = {}

    async def read(self, reading: Reading) -> AsyncGenerator[Delivery, None]:
        if reading.open_within is not None:
            self._check_up()
        place = self._place(reading)
        caught_up = reading.caught_up
        while True:
            async with place.holding:
                stored = self._next(place)
                if stored and (delivery := _delivery(stored, place)):
                    if not await _refined(place, reading, delivery):
                        continue
                    yield delivery
                if stored:
                    place.positions[stored.stream] = stored.sequence
                    del place.attempts[stored.stream, stored.sequence]
                    continue
            if caught_up:
                caught_up()
                caught_up = None
            if not reading.follow:
                return
            await self._bell.wait()

    def _place(self, reading: Reading) -> _Place:
        names = streams_under(reading.subjects)
        fresh = {name: 0 if reading.since else self._streams[name].last for name in names}
        made = _Place(reading.subjects, fresh, reading.since, reading.selection, reading.selection_key)
        if not reading.durable:
            return made
        place = self._kept.setdefault(reading.durable, made)
        if place.selection_key != reading.selection_key:
            raise OtherSelection(reading.durable, place.selection)
        place.subjects = reading.subjects
        place.positions = fresh | place.positions
        return place

    def _next(self, place: _Place) -> Stored | None:
        """The oldest event not read yet."""
        heads = []
        for name, filters in streams_under(place.subjects).items():
            behind = self._streams[name].after(place.positions[name], filters)
            head = next((m for m in behind if place.since is None or m.at >= place.since), None)
            heads += [head] if head else []
        return min(heads, key=lambda stored: (stored.at, stored.stream, stored.sequence), default=None)


async def _refined(place: _Place, reading: Reading, delivery: Delivery) -> bool:
    """False when the event must be read again."""
    if reading.refine is None:
        return True
    try:
        place.subjects = await reading.refine(delivery) or place.subjects
    except Retry as error:
        log.warning("reading interrupted", subject=delivery.subject, why=str(error))
        await asyncio.sleep(_RETRY_INTERVAL_SECONDS)
        return False
    return True


def _delivery(stored: Stored, place: _Place) -> Delivery | None:
    """A message that cannot be decoded is skipped: readers have nowhere to park it."""
    here = (stored.stream, stored.sequence)
    place.attempts[here] = place.attempts.get(here, 0) + 1
    try:
        event = wire.decode(stored.subject, stored.data, stored.headers)
    except Permanent as error:
        log.warning("unreadable message skipped", subject=stored.subject, why=str(error))
        return None
    return Delivery(event, stored.subject, place.attempts[here], stored.sequence, stored.at)
