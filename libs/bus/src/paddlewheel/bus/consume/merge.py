"""Merges several ordered sources: by time while stored items are read, then in the order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import Generic, Protocol, TypeVar

from paddlewheel.core.tasks import end


class Timed(Protocol):
    """Something with the time at which it was stored."""

    @property
    def at(self) -> datetime: ...


T = TypeVar("T", bound=Timed)
T_co = TypeVar("T_co", bound=Timed, covariant=True)


class Idle(Enum):
    """Why a wait ends without an item."""

    CAUGHT_UP = "no stored item is left; the next arrives when it is published"
    ENDED = "no item will follow"


class Source(Protocol[T_co]):
    """One ordered sequence."""

    @property
    def behind(self) -> bool:
        """Whether a stored item is still to come. The other sources wait for it, to keep the order."""
        ...

    def take(self) -> T_co | None:
        """An item that has arrived already."""
        ...

    async def wait(self) -> T_co | Idle:
        """The next item. A cancelled call loses no item. A source that stops being `behind` must return
        `CAUGHT_UP`, because the others wait for it."""
        ...


class _Head(Generic[T]):
    """A source's next item, or the wait for it."""

    def __init__(self, source: Source[T]) -> None:
        self._source = source
        self.item: T | None = None
        self.waiting: asyncio.Task[T | Idle] | None = None
        self.ended = False

    @property
    def behind(self) -> bool:
        return self.item is None and not self.ended and self._source.behind

    def advance(self) -> None:
        """Take the item if there is one, else wait for it in the background. Raises the source's error."""
        if self.waiting is not None and self.waiting.done():
            got, self.waiting = self.waiting.result(), None
            self.ended = got is Idle.ENDED
            self.item = None if isinstance(got, Idle) else got
        if self.item is None and self.waiting is None and not self.ended:
            self.item = self._source.take()
            if self.item is None:
                self.waiting = asyncio.create_task(self._source.wait(), name="read a stream")

    async def close(self) -> None:
        await end(self.waiting)
        if self.waiting is not None and not self.waiting.cancelled():
            # One error is raised. Reading the others keeps asyncio from warning about them.
            self.waiting.exception()


async def merged(
    sources: Sequence[Source[T]], caught_up: Callable[[], None] | None = None
) -> AsyncGenerator[T, None]:
    """Yield the items of all sources until every source has ended. Items are fetched when they are requested.

    Args:
        caught_up: called once, when no stored item is left.
    """
    heads = [_Head(source) for source in sources]
    try:
        while True:
            for head in heads:
                head.advance()
            ready = [head for head in heads if head.item is not None]
            late = [head for head in heads if head.behind]
            if ready and not late:
                yield _oldest(ready)
                continue
            if caught_up and not late:
                caught_up()
                caught_up = None
            waits = [head.waiting for head in (late or heads) if head.waiting is not None]
            if not waits:
                return
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for head in heads:
            await head.close()


def _oldest(ready: Sequence[_Head[T]]) -> T:
    head = min(ready, key=_moment)
    item, head.item = head.item, None
    assert item is not None
    return item


def _moment(head: _Head[T]) -> datetime:
    assert head.item is not None
    return head.item.at
