"""What the stream says of its past, on a real server."""

from __future__ import annotations

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.streams import JOBS
from paddlewheel.testkit.facts import make_gated


async def test_a_stream_deleted_by_hand_is_recreated_empty(bus: NatsBus) -> None:
    fact = make_gated(1)
    await bus.publish(fact)
    await (await bus._connection.jetstream()).delete_stream(JOBS.name)

    assert await bus.history.last(fact.subject) is None
    assert await bus.history.whole_since(JOBS.name) is not None
