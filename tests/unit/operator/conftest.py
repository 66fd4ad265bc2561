"""An outbox over a memory bus and a clock that the test moves; several outboxes are several processes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime

import pytest

from paddlewheel.bus.memory import MemoryBus
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.announcements import Announcement, Announcements, declare
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated import jobs_v1
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import ManualClock
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.outbox import FactSource, Outbox


class OutboxHarness:
    """What outlives a process: the bus, the time and the recorded facts."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bus = MemoryBus(self.clock)
        self.counts: Counter[tuple[str, str]] = Counter()

    def outbox(self) -> Outbox:
        def count(fact: str, outcome: str) -> None:
            self.counts[fact, outcome] += 1

        return Outbox(self.bus, CircuitBreaker(self.clock), self.clock, stream=JOBS, count=count)

    def declare(self, *names: str, after: Announcements = (), attempt: int = 0) -> Announcements:
        """Recorded now, not published yet."""
        for name in names:
            after = declare(after, name, self.clock.now().isoformat(), attempt=attempt)
        return after

    def stored(self) -> list[str]:
        """Ids of the stored facts, oldest first."""
        return [event.id for event in self.bus.events(JOBS.name)]

    async def life(self, outbox: Outbox, uid: str = "u") -> Announcements:
        """Facts of an object that were published and confirmed an hour ago."""
        facts = self.declare("JobAccepted", "JobStarting")
        await outbox.publish(make_source(uid), facts)
        await self.clock.advance(3600)
        return tuple(replace(fact, announced=True) for fact in facts)


def make_source(uid: str = "u") -> FactSource:
    def render(fact: Announcement) -> Event | None:
        model = getattr(jobs_v1, fact.fact, None)
        if model is None:
            return None
        ref = ObjectRef(namespace="ns", name=uid, uid=uid)
        at = datetime.fromisoformat(fact.at)
        id_ = fact.event_id(uid)
        return make_event(model(job=ref), id=id_, source="test", namespace="ns", uid=uid, time=at)

    return FactSource(Key("ns", uid), uid, render)


@pytest.fixture
def harness() -> OutboxHarness:
    return OutboxHarness()
