"""Bringing back the facts of a stream that was lost: by itself, and on the command `rebuild`."""

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
"""Seconds: interval at which the stream's creation time is checked."""
REPUBLISH_INTERVAL_SECONDS: Final = 0.005
"""Seconds of rest after each object whose facts were looked for: live facts go first."""


@dataclass(frozen=True)
class Owned:
    """This replica's objects of one kind.

    Args:
        keys: those of its share.
        republish: looks for the facts of one and publishes those missing; with True for all of them, not only
            for those that the stream is too young for. Raises Retry.
    """

    keys: Callable[[], Iterable[Key]]
    republish: Callable[[Key, bool], Awaitable[Republished]]


@dataclass(frozen=True)
class Rebuilt:
    """Result of a rebuild."""

    objects: int = 0
    facts: Republished = field(default_factory=Republished)


class Rebuilder:
    """Republishes missing facts object by object, concurrently with reconciles."""

    def __init__(self, outbox: Outbox, kinds: Sequence[Owned], clock: Clock) -> None:
        self._outbox = outbox
        self._kinds = kinds
        self._clock = clock
        self._lock = asyncio.Lock()
        self._woken = asyncio.Event()
        self._since: Mapping[str, datetime] = {}

    def wake(self) -> None:
        """This replica's share has changed: the newcomers' facts may be missing."""
        self._woken.set()

    async def run(self) -> None:
        """Watch for a stream that was created anew, and bring back what it lost, forever."""
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
                log.info("lost facts are looked for later", error=str(error))
            await self._rest()

    async def _is_another_stream(self) -> bool:
        before, self._since = self._since, await self._outbox.refresh()
        return any(before.get(stream) != since for stream, since in self._since.items())

    async def rebuild(self, *, everything: bool = False) -> Rebuilt:
        """Go over all objects of this replica.

        Args:
            everything: look for every fact, not only for those that the stream is too young for.

        Raises:
            Retry: the bus is away; what is back by then is left alone the next time.
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
            log.warning("facts that the stream had lost are back", **_counts(done))
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
    """One object that cannot be read keeps no other from being looked at. Raises Retry."""
    try:
        return await kind.republish(key, everything)
    except Retry:
        raise
    except Exception:
        log.exception("facts of an object cannot be looked up", key=str(key))
        return Republished()


async def answer_rebuilds(bus: Commands, rebuilder: Rebuilder, service: str, replica: str) -> None:
    """Carry out the command `rebuild` until cancelled."""

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
