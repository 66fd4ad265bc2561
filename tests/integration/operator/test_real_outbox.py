"""Publishing to a real server: nothing twice after it has forgotten ids, and rebuilds let live facts pass."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.streams import JOBS, StreamSpec
from paddlewheel.contracts.announcements import Announcement, Announcements, declare
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated import jobs_v1
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.outbox import FactSource, Outbox, Republished
from paddlewheel.operator.rebuild import Owned, Rebuilder
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually

SHORT = replace(JOBS, duplicate_window=0.2)


def make_source(uid: str) -> FactSource:
    def render(fact: Announcement) -> Event:
        ref = ObjectRef(namespace="ns", name=uid, uid=uid)
        data = getattr(jobs_v1, fact.fact)(job=ref)
        time = datetime.fromisoformat(fact.at)
        return make_event(data, id=fact.event_id(uid), source="test", namespace="ns", uid=uid, time=time)

    return FactSource(Key("ns", uid), uid, render)


def make_outbox(bus: NatsBus, stream: StreamSpec = JOBS) -> Outbox:
    clock = SystemClock()
    return Outbox(bus, CircuitBreaker(clock), clock, stream=stream, count=lambda *_: None)


def declared(*names: str, announced: bool = False) -> Announcements:
    facts: Announcements = ()
    for name in names:
        facts = declare(facts, name, datetime.now(UTC).isoformat())
    return tuple(replace(fact, announced=announced) for fact in facts)


async def stored(bus: NatsBus) -> list[str]:
    js = await bus._connection.jetstream()
    state = (await js.stream_info(JOBS.name)).state
    found = [await js.get_msg(JOBS.name, seq=n) for n in range(max(1, state.first_seq), state.last_seq + 1)]
    return [(message.headers or {})["ce-id"] for message in found]


async def test_a_fact_is_not_stored_twice_when_the_server_has_forgotten_its_id(bus: NatsBus) -> None:
    js = await bus._connection.jetstream()
    config = (await js.stream_info(JOBS.name)).config
    await js.update_stream(config.evolve(duplicate_window=SHORT.duplicate_window))
    recorded = declared("JobAccepted")
    await make_outbox(bus, SHORT).publish(make_source("u"), recorded)

    # Killed before the confirmation was written, and dead until the server takes ids anew.
    control = make_source("control").render(declared("JobAccepted")[0])
    assert control is not None

    async def is_stored_twice() -> bool:
        await bus.publish(control)
        return (await stored(bus)).count("control/JobAccepted/0") >= 2

    await eventually(is_stored_twice, every=0.3)
    assert (await make_outbox(bus, SHORT).publish(make_source("u"), recorded)).is_settled
    assert (await stored(bus)).count("u/JobAccepted/0") == 1


@pytest.mark.long
async def test_a_rebuild_of_ten_thousand_objects_lets_live_facts_pass(
    bus: NatsBus, nats_server: NatsServer
) -> None:
    outbox, facts = make_outbox(bus), declared("JobAccepted", "JobStarting", announced=True)
    keys = [Key("ns", f"u{number}") for number in range(10_000)]
    done: list[Key] = []

    async def republish(key: Key, everything: bool) -> Republished:
        done.append(key)
        return await outbox.republish(make_source(key.name), facts, everything=everything)

    rebuilder = Rebuilder(outbox, [Owned(lambda: keys, republish)], SystemClock())
    rebuilding = asyncio.create_task(rebuilder.rebuild(everything=True))
    await eventually(lambda: len(done) > 10)
    began, first, slowest = time.monotonic(), len(done), 0.0
    for number in range(50):
        asked = time.monotonic()
        await outbox.publish(make_source(f"live{number}"), declared("JobAccepted"))
        slowest = max(slowest, time.monotonic() - asked)
    rate = (len(done) - first) / (time.monotonic() - began)
    print(f"rebuild {rate:.0f} objects/s; slowest live fact {slowest * 1000:.1f} ms")
    # All live facts came through long before the rebuild's end.
    assert not rebuilding.done()
    assert len(done) < len(keys)
    rebuilding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rebuilding
    ids = await stored(bus)
    assert {f"live{number}/JobAccepted/0" for number in range(50)} <= set(ids)
    assert len(set(ids)) == len(ids)
