"""No answer and a refusal are different errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.contract.bus.suite import Probe, make_gated

from paddlewheel.bus.nats import connection
from paddlewheel.bus.streams import BUS_FULL, JOBS, RUNS_BUCKET, WORK
from paddlewheel.contracts.subjects import command_subject, work_subject
from paddlewheel.core.errors import Retry, Unavailable

CHUNK, NEXT = (work_subject("set-1", "run-1", 0, number) for number in (0, 1))
SUBJECT = command_subject("test-service", "rebuild")


async def test_every_call_on_an_unreachable_bus_raises_unavailable(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CALL_TIMEOUT_SECONDS", 0.3)
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
        lambda: bus.work.put(CHUNK, b"1"),
        lambda: bus.work.get(CHUNK),
        lambda: bus.work.drop(CHUNK),
        lambda: bus.work.purge(CHUNK),
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
    await probe.bus.work.put(CHUNK, b"x" * 1500)
    for _ in range(2):
        with pytest.raises(Retry, match=BUS_FULL) as refusal:
            await probe.bus.work.put(NEXT, b"x" * 1500)
        assert not isinstance(refusal.value, Unavailable)
    await probe.bus.work.drop(CHUNK)
    await probe.bus.work.put(NEXT, b"x" * 1500)
