"""No answer and a refusal are different errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.contract.bus.suite import CHUNKS, Probe, make_gated

from paddlewheel.bus.nats import connection
from paddlewheel.bus.streams import BUS_FULL, JOBS, RUNS_BUCKET, WORK
from paddlewheel.contracts.subjects import command_subject
from paddlewheel.core.errors import Retry, Unavailable

SUBJECT = command_subject("test-service", "rebuild")


async def test_every_call_on_an_unreachable_bus_raises_unavailable(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TIMEOUT", 0.3)
    probe.go_away()
    bus, records = probe.bus, probe.bus.key_value(RUNS_BUCKET)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: bus.publish(make_gated(0)),
        lambda: bus.history.last(make_gated(0).subject),
        lambda: bus.history.whole_since(JOBS.name),
        lambda: records.get("a"),
        lambda: records.create("a", b"1"),
        lambda: records.put("a", b"1"),
        lambda: records.update("a", b"1", 1),
        lambda: records.delete("a"),
        lambda: records.entries(">"),
        lambda: bus.work.enqueue(CHUNKS, b"1", message_id="1"),
        lambda: bus.work.purge(CHUNKS),
        lambda: bus.dead_letters.get(1),
        lambda: bus.dead_letters.replay(1),
        lambda: bus.dead_letters.drop(1),
        lambda: bus.inspect.status(),
        lambda: bus.ask_all(SUBJECT, b""),
    ]
    for call in calls:
        with pytest.raises(Unavailable):
            await call()


async def test_a_temporary_refusal_is_not_unavailable(probe: Probe) -> None:
    await probe.limit(WORK.name, 2000)
    await probe.bus.work.enqueue(CHUNKS, b"x" * 1000, message_id="1")
    for _ in range(2):
        with pytest.raises(Retry, match=BUS_FULL) as refusal:
            await probe.bus.work.enqueue(CHUNKS, b"x" * 1000, message_id="2")
        assert not isinstance(refusal.value, Unavailable)
    await probe.bus.work.purge(CHUNKS)
    await probe.bus.work.enqueue(CHUNKS, b"x" * 1000, message_id="2")
