"""An outbox with a memory bus and a manual clock. Several outboxes represent several processes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import cast

import pytest

from paddlewheel.bus.streams import JOBS, MODELS
from paddlewheel.contracts.announcements import Announcement, Announcements, declare
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated import jobs_v1
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.models_v1 import ModelPublished
from paddlewheel.contracts.keys import Key
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.outbox import FactSource, Outbox
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus


class OutboxHarness:
    """The state that outlives a process: the bus, the time and the recorded facts."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bus = MemoryBus(self.clock)
        self.counts: Counter[tuple[str, str]] = Counter()

    def outbox(self) -> Outbox:
        def count(fact: str, outcome: str) -> None:
            self.counts[fact, outcome] += 1

        breaker, elsewhere = CircuitBreaker(self.clock), {"ModelPublished": MODELS}
        return Outbox(self.bus, breaker, self.clock, stream=JOBS, count=count, elsewhere=elsewhere)

    def declare(self, *names: str, after: Announcements = (), attempt: int = 0) -> Announcements:
        """Facts that are recorded now and not published yet."""
        for name in names:
            after = declare(after, name, self.clock.now().isoformat(), attempt=attempt)
        return after

    def stored(self, stream: str = JOBS.name) -> list[str]:
        """The ids of the stored facts, oldest first."""
        return [event.id for event in self.bus.events(stream)]

    async def life(self, outbox: Outbox, uid: str = "u") -> Announcements:
        """Facts of an object that were published and confirmed an hour ago."""
        facts = self.declare("JobAccepted", "JobStarting")
        await outbox.publish(make_source(uid), facts)
        await self.clock.advance(3600)
        return tuple(replace(fact, announced=True) for fact in facts)


def make_source(uid: str = "u") -> FactSource:
    def render(fact: Announcement) -> Event | None:
        ref = ObjectRef(namespace="ns", name=uid, uid=uid)
        data = _content(fact, ref)
        if data is None:
            return None
        at = datetime.fromisoformat(fact.at)
        id_ = fact.event_id(uid)
        return make_event(data, id=id_, source="test", namespace="ns", uid=uid, time=at)

    return FactSource(Key("ns", uid), uid, render)


def _content(fact: Announcement, ref: ObjectRef) -> WireModel | None:
    if fact.fact == ModelPublished.__name__:
        return ModelPublished(source=ref, name="digits", version="1", uri="s3://models/digits/1")
    model = getattr(jobs_v1, fact.fact, None)
    return None if model is None else cast(WireModel, model(job=ref))


@pytest.fixture
def harness() -> OutboxHarness:
    return OutboxHarness()
