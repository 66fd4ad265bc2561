"""The buckets of trigger-controller when they are full: no trigger pushes out what another one needs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.streams import DEFERRED, FIRED, ORIGINS, StreamSpec
from paddlewheel.contracts.crds.trigger import StatusEvent
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import Retry
from trigger_controller.domain import marks, names
from trigger_controller.domain.model import Occurrence, Origin
from trigger_controller.domain.policies.deferral import Change
from trigger_controller.memory import Memory

SMALL = 32 * 1024
QUIET = Key("quiet", "trigger")


@pytest.fixture
async def memory(bus: NatsBus) -> Memory:
    """A memory whose buckets are soon full."""
    js = await bus._connection.jetstream()
    for spec in (FIRED, DEFERRED, ORIGINS):
        config = (await js.stream_info(spec.name)).config
        await js.update_stream(config.evolve(max_bytes=SMALL))
    return Memory(bus, SystemClock())


def make_occurrence(number: int) -> Occurrence:
    return Occurrence(StatusEvent(id=f"e-{number}", type="t" * 200, time=datetime(2026, 1, 1, tzinfo=UTC)))


async def remember_many(memory: Memory) -> None:
    for number in range(1000):
        await memory.remember_origin(f"child-{number}", Origin("loud", ("loud",)))


async def messages(bus: NatsBus, spec: StreamSpec) -> int:
    return int((await (await bus._connection.jetstream()).stream_info(spec.name)).state.messages)


async def test_marks_push_out_neither_deferred_events_nor_origins(memory: Memory, bus: NatsBus) -> None:
    await memory.change_deferred("quiet", Change((make_occurrence(0),)))
    await memory.remember_origin("child", Origin("quiet", ("quiet",)))
    for number in range(1000):
        await memory.remember(Key(f"team-{number}", "loud"), [names.digest("loud", f"{number}")])
    assert await messages(bus, FIRED) < 1000, "the oldest marks made room"
    assert (await memory.deferred("quiet", is_sure=True)).count == 1
    assert await memory.origin("child") == Origin("quiet", ("quiet",))


async def test_full_buckets_refuse_and_keep_what_they_have(memory: Memory) -> None:
    await memory.change_deferred("quiet", Change((make_occurrence(0),)))
    await memory.remember_origin("child", Origin("quiet", ("quiet",)))
    with pytest.raises(Retry, match="is full: raise its maxBytes"):
        await memory.change_deferred("loud", Change(tuple(map(make_occurrence, range(500)))))
    with pytest.raises(Retry, match="is full: raise its maxBytes"):
        await remember_many(memory)
    assert (await memory.deferred("quiet", is_sure=True)).count == 1
    assert await memory.origin("child") == Origin("quiet", ("quiet",))
    # A refusal is an answer, and the other buckets go on.
    await memory.remember(QUIET, ["0" * 16])
    assert await memory.knows(QUIET, "uid", "0" * 16)


async def test_marks_of_one_namespace_push_out_no_others(
    memory: Memory, bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events of the other would fill the bucket several times."""
    monkeypatch.setattr(marks, "PREFIX_LENGTH", 1)
    monkeypatch.setattr(marks, "MOST", 16)
    mine = names.digest("quiet", "event")
    await memory.remember(QUIET, [mine])
    digests = [names.digest("loud", f"{number}") for number in range(3000)]
    for start in range(0, len(digests), 50):
        await memory.remember(Key("loud", "trigger"), digests[start : start + 50])
    assert await memory.knows(QUIET, "quiet", mine)
    assert await memory.knows(Key("loud", "trigger"), "loud", digests[-1])
    assert not await memory.knows(Key("loud", "trigger"), "loud", digests[0]), "it forgets its own first"
