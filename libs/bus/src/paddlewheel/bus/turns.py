"""Whose request is worked on when: everybody has turns of his own, so that none takes all."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from paddlewheel.core.errors import Retry
from paddlewheel.core.library_logging import LibraryLogger

log = LibraryLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """Requests at the same time. Further ones are not worked on, and their askers try again.

    Args:
        at_work: of one asker, those that rest included. His others wait.
        waiting: of one asker.
        all_at_work: of all askers, those that rest not included. Next is the asker with the fewest, and of
            these who has had none for longest; so nobody waits for all that others ask.
        all_waiting: of all askers, for their own turns; and as many in line.
        bytes: of one asker's requests, unless he has one alone.
        all_bytes: of all askers; who has requests here gets three quarters of them, so that others have room.
        patience: seconds that one waits at most; None where its asker sets the limit. It must be less than
            its asker waits: whatever is older is worked on for nobody, and keeps back what is not.
    """

    at_work: int = 16
    waiting: int = 512
    all_at_work: int = 1024
    all_waiting: int = 8192
    bytes: int = 1 << 20
    all_bytes: int = 1 << 26
    patience: float | None = None


@dataclass
class _Asker:
    turns: asyncio.Semaphore
    present: int = 0
    bytes: int = 0
    told: bool = False


class Place(Protocol):
    """Of one request among all that are at work."""

    def release(self) -> None:
        """Leave it to others."""


class Turn:
    """One request's."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._works = True

    def rest(self) -> None:
        """It is at work no more, which others may be instead; its asker's next one still waits for its end.

        Idempotent.
        """
        if self._works:
            self._works = False
            self._place.release()


_REMEMBERED = 4096
"""Askers of whom it is known when they had their last place."""
_Rank = tuple[int, int, int, str]
"""Of an asker in line: how many places he has, when he had his last, when he came, and his name."""


@dataclass
class _Line:
    """One asker's requests for a place, oldest first."""

    held: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    rank: _Rank | None = None


@dataclass(frozen=True)
class _Place:
    places: _Places
    name: str

    def release(self) -> None:
        self.places.release(self.name)


class _Places:
    """Those of all askers: a freed one goes to whoever has the fewest, or has had none for longest.

    So whoever asks seldom waits for one to be freed, however many others always have requests in line, and
    loses nothing when he gives up and asks again.
    """

    def __init__(self, free: int) -> None:
        self._free = free
        self._lines: dict[str, _Line] = {}
        self._ranks: list[_Rank] = []
        """Sorted."""
        self._last: OrderedDict[str, int] = OrderedDict()
        """When each had his last place, in that order."""
        self._numbers = count(1)

    async def acquire(self, name: str) -> _Place:
        line, granted = self._lines.setdefault(name, _Line()), asyncio.get_running_loop().create_future()
        line.waiting.append(granted)
        if line.rank is None:
            self._rank(name, line)
        self._hand_out()
        try:
            await granted
        except asyncio.CancelledError:
            self._give_up(name, line, granted)
            raise
        return _Place(self, name)

    def release(self, name: str) -> None:
        line = self._lines[name]
        line.held -= 1
        self._free += 1
        self._rank(name, line)
        self._hand_out()

    def _give_up(self, name: str, line: _Line, granted: asyncio.Future[None]) -> None:
        if not granted.cancelled():
            # In the same moment.
            self.release(name)
        elif granted in line.waiting:
            line.waiting.remove(granted)
            if not line.waiting:
                self._rank(name, line)

    def _hand_out(self) -> None:
        while self._free and self._ranks:
            name = self._ranks[0][-1]
            line = self._lines[name]
            granted = line.waiting.popleft()
            if not granted.cancelled():
                granted.set_result(None)
                line.held += 1
                self._free -= 1
                self._remember(name)
            self._rank(name, line)

    def _remember(self, name: str) -> None:
        self._last[name] = next(self._numbers)
        self._last.move_to_end(name)
        if len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)

    def _rank(self, name: str, line: _Line) -> None:
        """Put the asker where he belongs now; forget his line when nothing is left of it."""
        if line.rank is not None:
            del self._ranks[bisect_left(self._ranks, line.rank)]
            line.rank = None
        if line.waiting:
            line.rank = (line.held, self._last.get(name, 0), next(self._numbers), name)
            insort(self._ranks, line.rank)
        elif not line.held:
            del self._lines[name]


@dataclass
class Load:
    """Requests of all askers that wait: for a turn of their own asker, or in line for one of all.

    Args:
        bytes: of all, those at work included.
    """

    waiting: int = 0
    in_line: int = 0
    bytes: int = 0


class Turns:
    """One replica's. An asker is forgotten when nothing of his is left."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._askers: dict[str, _Asker] = {}
        self._places = _Places(limits.all_at_work)
        self._load = Load()

    @asynccontextmanager
    async def taken(self, name: str, size: int = 0) -> AsyncIterator[Turn]:
        """A turn of the asker while the block runs, for a request of `size` bytes.

        Raises:
            Retry: he has too many requests or bytes, or waits for longer than `patience`.
        """
        asker = self._askers.get(name) or _Asker(asyncio.Semaphore(self.limits.at_work))
        if self._is_full(asker) or self._is_large(asker, size):
            self._tell(name, asker)
            raise Retry("Busy", f"{name} asks for too much at once")
        self._askers[name] = asker
        asker.present += 1
        asker.bytes += size
        self._load.bytes += size
        try:
            turn = await self._next(name, asker)
            try:
                yield turn
            finally:
                turn.rest()
                asker.turns.release()
        finally:
            self._load.bytes -= size
            asker.bytes -= size
            asker.present -= 1
            if not asker.present:
                del self._askers[name]

    def _is_full(self, asker: _Asker) -> bool:
        if asker.present < self.limits.at_work:
            return self._load.in_line >= self.limits.all_waiting
        most = self.limits.at_work + self.limits.waiting
        return asker.present >= most or self._load.waiting >= self.limits.all_waiting

    def _is_large(self, asker: _Asker, size: int) -> bool:
        limits, together = self.limits, self._load.bytes + size
        if not asker.present:
            return together > limits.all_bytes
        return asker.bytes + size > limits.bytes or together > limits.all_bytes // 4 * 3

    async def _next(self, name: str, asker: _Asker) -> Turn:
        """Raises Retry."""
        try:
            async with asyncio.timeout(self.limits.patience):
                await self._wait(asker)
                try:
                    return await self._in_line(name)
                except BaseException:
                    asker.turns.release()
                    raise
        except TimeoutError:
            raise Retry("Busy", f"{name} has had no turn in time") from None

    async def _wait(self, asker: _Asker) -> None:
        self._load.waiting += 1
        try:
            await asker.turns.acquire()
        finally:
            self._load.waiting -= 1

    async def _in_line(self, name: str) -> Turn:
        self._load.in_line += 1
        try:
            return Turn(await self._places.acquire(name))
        finally:
            self._load.in_line -= 1

    def _tell(self, name: str, asker: _Asker) -> None:
        """Once for each flood."""
        if asker.present and not asker.told:
            asker.told = True
            log.warning("requests come faster than they are answered", asker=name)
