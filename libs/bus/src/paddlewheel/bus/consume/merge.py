"""Several ordered sources read as one: by time while they catch up with what is stored, then as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from enum import Enum
from typing import Generic, Protocol, TypeVar

from paddlewheel.core.tasks import end


class Timed(Protocol):
    """Something that was stored at a moment."""

    @property
    def at(self) -> datetime: ...


T = TypeVar("T", bound=Timed)
T_co = TypeVar("T_co", bound=Timed, covariant=True)


class Nothing(Enum):
    """Why a wait ends without an item."""

    STORED = "nothing stored is left; the next comes when it comes"
    MORE = "the end"


class Source(Protocol[T_co]):
    """One ordered sequence."""

    @property
    def behind(self) -> bool:
        """Something stored is still to come: others wait for it, so that the whole is in order."""
        ...

    def take(self) -> T_co | None:
        """What has come already."""
        ...

    async def wait(self) -> T_co | Nothing:
        """The next one. Cancelled, it loses nothing.

        A source that was `behind` and turns out not to be must say so: others wait for it.
        """
        ...


class _Head(Generic[T]):
    """A source's next item, or the wait for it."""

    def __init__(self, source: Source[T]) -> None:
        self._source = source
        self.item: T | None = None
        self.waiting: asyncio.Task[T | Nothing] | None = None
        self.ended = False

    @property
    def behind(self) -> bool:
        return self.item is None and not self.ended and self._source.behind

    def look(self) -> None:
        """Take the item if there is one, else wait for it in the background. Raises what the source did."""
        if self.waiting is not None and self.waiting.done():
            got, self.waiting = self.waiting.result(), None
            self.ended = got is Nothing.MORE
            self.item = None if isinstance(got, Nothing) else got
        if self.item is None and self.waiting is None and not self.ended:
            self.item = self._source.take()
            if self.item is None:
                self.waiting = asyncio.create_task(self._source.wait(), name="read a stream")

    async def close(self) -> None:
        await end(self.waiting)
        if self.waiting is not None and not self.waiting.cancelled():
            # One source's failure is raised; asyncio would complain about those of the others.
            self.waiting.exception()


async def merged(sources: Sequence[Source[T]]) -> AsyncGenerator[T, None]:
    """Yield the items of all sources until every one has ended; the next is looked for when asked for."""
    heads = [_Head(source) for source in sources]
    try:
        while True:
            for head in heads:
                head.look()
            ready = [head for head in heads if head.item is not None]
            late = [head for head in heads if head.behind]
            if ready and not late:
                yield _oldest(ready)
                continue
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
