"""Publishing: what is stored once, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.contract.bus.suite import Probe, Seen, consuming, make_gated

from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts import wire
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.progress_v1 import JobProgressed
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.wait import eventually


async def test_an_event_arrives_as_it_was_published(probe: Probe) -> None:
    seen = Seen()
    await probe.bus.publish(make_gated(1))
    async with consuming(probe, seen):
        await eventually(lambda: seen.deliveries)
    delivery = seen.deliveries[0]
    assert delivery.event == make_gated(1)
    assert (delivery.subject, delivery.attempt, delivery.sequence) == (make_gated(1).subject, 1, 1)
    assert delivery.published_at.tzinfo is not None


async def test_the_same_id_is_stored_once(probe: Probe) -> None:
    for _ in range(3):
        await probe.bus.publish(make_gated(1))
    await probe.bus.publish(make_gated(2))
    assert len(await probe.stored(JOBS.name)) == 2


async def test_a_fact_is_not_taken_for_stored_because_another_one_has_its_id(probe: Probe) -> None:
    """A stream compares ids alone."""
    fact = make_gated(1)
    other = make_gated(1, "uid-2", id_=fact.id)
    await probe.bus.publish(other)

    with pytest.raises(Retry, match="IdTaken"):
        await probe.bus.publish(fact)
    assert [message.subject for message in await probe.stored(JOBS.name)] == [other.subject]
    await probe.bus.publish(make_gated(2))


async def test_a_repeated_fact_counts_as_stored_although_the_stream_has_dropped_it(probe: Probe) -> None:
    await probe.bus.publish(make_gated(1))
    await probe.drop_first()
    await probe.bus.publish(make_gated(1))
    assert await probe.stored(JOBS.name) == []


async def test_a_repeated_fact_counts_as_stored_although_a_newer_one_has_superseded_it(probe: Probe) -> None:
    """A gap in the middle of the stream, which begins before it."""
    first = make_progressed(1)
    for fact in (make_progressed(0, "uid-0"), first, make_progressed(2)):
        await probe.bus.publish(fact)

    await probe.bus.publish(first)


def make_progressed(step: int, uid: str = "uid-1") -> Event:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    data = JobProgressed(job=ObjectRef(namespace="default", name="digits", uid=uid), step=step)
    return make_event(data, id=f"{uid}/{step}", source="test", namespace="default", uid=uid, time=at)


async def test_an_oversized_event_is_refused_permanently(probe: Probe) -> None:
    event = make_gated(1)
    huge = RawMessage(event.subject, b"x" * 2_000_000, wire.encode(event)[1])
    with pytest.raises(Permanent, match="TooLarge"):
        await probe.bus.publish_raw(huge)
    nearly = RawMessage(event.subject, b"x" * 1_000_000, wire.encode(event)[1])
    with pytest.raises(Permanent, match="TooLarge"):
        await probe.bus.publish_raw(nearly)
    await probe.bus.publish(event)


async def test_a_subject_without_a_stream_is_refused_permanently(probe: Probe) -> None:
    with pytest.raises(Permanent, match="NoStream"):
        await probe.bus.publish_raw(RawMessage("pw.elsewhere", b"{}"))
