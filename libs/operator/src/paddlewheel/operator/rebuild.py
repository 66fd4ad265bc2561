"""Publishes the facts of a lost stream again: automatically, and on the command `rebuild`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog
from opentelemetry import trace

from paddlewheel.bus.ports import Commands
from paddlewheel.contracts.generated.bus_v1 import Rebuild, RebuildReport
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.subjects import command_subject
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Retry
from paddlewheel.operator.outbox import Outbox, Republished

log = structlog.get_logger(__name__)
tracer = trace.get_tracer(__name__)

SPAN: Final = "rebuild"
STREAM_CHECK_INTERVAL_SECONDS: Final = 10.0
"""Interval between two checks of the creation time of the stream."""
REPUBLISH_INTERVAL_SECONDS: Final = 0.005
"""Pause after each object whose facts were looked up. Live facts have priority."""


@dataclass(frozen=True)
class Owned:
    """The objects of one kind that belong to this replica.

    Args:
        keys: returns the keys of these objects.
        republish: looks up the facts of one object, and publishes the missing ones. With True it looks up all
            facts, not only facts that are older than the stream. Raises Retry.
    """

    keys: Callable[[], Iterable[Key]]
    republish: Callable[[Key, bool], Awaitable[Republished]]


@dataclass(frozen=True)
class Rebuilt:
    """The result of a rebuild."""

    objects: int = 0
    facts: Republished = field(default_factory=Republished)


class Rebuilder:
    """Publishes missing facts again, one object after another, concurrently with reconciles."""

    def __init__(self, outbox: Outbox, kinds: Sequence[Owned], clock: Clock) -> None:
        self._outbox = outbox
        self._kinds = kinds
        self._clock = clock
        self._lock = asyncio.Lock()
        self._woken = asyncio.Event()
        self._since: Mapping[str, datetime] = {}

    def wake(self) -> None:
        """Start a rebuild, because this replica has new objects, whose facts may be missing."""
        self._woken.set()

    async def run(self) -> None:
        """Detect a stream that was created again, and publish the facts that it lost, forever."""
        is_due = False
        while True:
            is_due = is_due or self._woken.is_set()
            self._woken.clear()
            try:
                if await self._is_another_stream() or is_due:
                    is_due = True
                    await self.rebuild()
                is_due = False
            except Retry as error:
                log.info("cannot look up lost facts now, will be retried", error=str(error))
            await self._rest()

    async def _is_another_stream(self) -> bool:
        before, self._since = self._since, await self._outbox.refresh()
        return any(before.get(stream) != since for stream, since in self._since.items())

    async def rebuild(self, *, everything: bool = False) -> Rebuilt:
        """Publish the missing facts of all objects of this replica.

        Args:
            everything: look up every fact, not only facts that are older than the stream.

        Raises:
            Retry: the bus is unreachable. The next rebuild skips the facts that were published by then.
        """
        async with self._lock:
            with tracer.start_as_current_span(SPAN):
                done = Rebuilt()
                for kind in self._kinds:
                    for key in tuple(kind.keys()):
                        facts = await _republish(kind, key, everything)
                        done = Rebuilt(done.objects + 1, done.facts + facts)
                        await self._give_way(facts)
        if done.facts.published:
            log.warning("published facts again that the stream had lost", **_counts(done))
        return done

    async def _give_way(self, facts: Republished) -> None:
        await asyncio.sleep(0)
        if facts.checked:
            await self._clock.sleep(REPUBLISH_INTERVAL_SECONDS)

    async def _rest(self) -> None:
        waits = [
            asyncio.ensure_future(w)
            for w in (self._clock.sleep(STREAM_CHECK_INTERVAL_SECONDS), self._woken.wait())
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def _republish(kind: Owned, key: Key, everything: bool) -> Republished:
    """Republish the facts of one object. A failure of this object is logged. Raises Retry for the bus."""
    try:
        return await kind.republish(key, everything)
    except Retry:
        raise
    except Exception:
        log.exception("cannot look up the facts of an object", key=str(key))
        return Republished()


async def answer_rebuilds(bus: Commands, rebuilder: Rebuilder, service: str, replica: str) -> None:
    """Answer the command `rebuild` until cancelled."""

    async def rebuild(data: bytes) -> bytes:
        from_json(Rebuild, data)
        done = await rebuilder.rebuild(everything=True)
        return to_json(RebuildReport(service=service, replica=replica, **_counts(done)))

    await bus.answer(command_subject(service, "rebuild"), rebuild)


def _counts(done: Rebuilt) -> dict[str, int]:
    return {
        "objects": done.objects,
        "facts_checked": done.facts.checked,
        "facts_published": done.facts.published,
    }
