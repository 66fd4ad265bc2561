"""Publishers that never give up, and what they were told, which is compared with the stream later."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from paddlewheel.bus.ports import Publisher
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end

PUBLISHERS = 8
PAUSE = 0.01
"""Seconds of rest after each fact: the stream must hold all of them in the end."""


@dataclass
class Log:
    """What publishers were told, and when."""

    numbers: Iterator[int] = field(default_factory=itertools.count)
    acknowledged: list[str] = field(default_factory=list)
    last: float = 0.0
    worst: float = 0.0
    tries_failed: int = 0

    def confirm(self, event_id: str) -> None:
        """The stream has it, says the bus."""
        self.look()
        self.last = time.monotonic()
        self.acknowledged.append(event_id)

    def look(self) -> None:
        """Note for how long nothing was acknowledged now."""
        if self.last:
            self.worst = max(self.worst, time.monotonic() - self.last)

    def __str__(self) -> str:
        return (
            f"{len(self.acknowledged)} acknowledged, {self.tries_failed} tries failed, "
            f"longest time without an acknowledgement {self.worst:.2f} s"
        )


@asynccontextmanager
async def publishing(bus: Publisher) -> AsyncIterator[Log]:
    """Publish facts while the block runs."""
    log = Log()
    publishers = [asyncio.create_task(_publish(bus, log)) for _ in range(PUBLISHERS)]
    try:
        yield log
    finally:
        log.look()
        await end(*publishers)


async def _publish(bus: Publisher, log: Log) -> None:
    """Fact after fact; a refused one is published again under its id, as controllers do."""
    while True:
        event = _make_event(next(log.numbers))
        while not await _is_stored(bus, event):
            log.tries_failed += 1
            await asyncio.sleep(0.05)
        log.confirm(event.id)
        await asyncio.sleep(PAUSE)


async def _is_stored(bus: Publisher, event: Event) -> bool:
    try:
        await bus.publish(event)
    except Retry:
        return False
    return True


def _make_event(number: int) -> Event:
    uid = f"uid-{number}"
    at = datetime.now(UTC)
    return make_event(JobGated(message=str(number)), id=f"{uid}/JobGated/0", source="chaos",
                      namespace="chaos", uid=uid, time=at)  # fmt: skip
