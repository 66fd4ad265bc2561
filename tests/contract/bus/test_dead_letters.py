"""Dead letters: listed, replayed to their durable, dropped; what stops a consumer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from tests.contract.bus.suite import (
    ALL_JOBS,
    Probe,
    Seen,
    consuming,
    letters,
    make_gated,
    number_of,
    park,
    refusing,
)

from paddlewheel.bus.admin.inspect import unread_replays
from paddlewheel.bus.consume import consumer
from paddlewheel.bus.consume.dead_letters import replays_durable
from paddlewheel.bus.dead_letters import DeadLetter
from paddlewheel.bus.nats.dead_letters import NatsDeadLetterBox
from paddlewheel.bus.ports import Delivery, RawMessage, Subscription
from paddlewheel.bus.streams import DEAD_LETTERS, JOBS, REPLAYS
from paddlewheel.contracts import wire
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.wait import eventually


async def test_a_dead_letter_holds_the_message_and_why_it_failed(probe: Probe) -> None:
    [letter] = await park(probe, 0)
    body, headers = wire.encode(make_gated(0))
    assert (letter.data, letter.headers, letter.is_cut) == (body, headers, False)
    assert (letter.durable, letter.reason, letter.message) == (
        "test-jobs",
        "NoSuchSet",
        "Menge fehlt: größer",
    )
    assert (letter.attempts, letter.stream, letter.source_sequence) == (1, JOBS.name, 1)
    assert letter.subject == make_gated(0).subject
    assert letter.published_at <= letter.parked_at
    assert await probe.bus.dead_letters.get(letter.sequence) == letter


async def test_dead_letters_are_listed_by_durable_oldest_first(probe: Probe) -> None:
    other = Subscription("other-jobs", JOBS.name, (event_filter("jobs"),))
    assert await letters(probe) == []
    await park(probe, 0, 1)
    async with consuming(probe, refusing(1), other):
        await eventually(lambda: letters(probe, "other-jobs"))
    assert [number_in(letter) for letter in await letters(probe, "test-jobs")] == [0, 1]
    assert [number_in(letter) for letter in await letters(probe, "other-jobs")] == [1]
    assert [letter.durable for letter in await letters(probe)] == ["test-jobs", "test-jobs", "other-jobs"]
    assert await letters(probe, "nobody") == []


def number_in(letter: DeadLetter) -> int:
    event = wire.decode(letter.subject, letter.data, letter.headers)
    assert isinstance(event.data, JobGated)
    return int(event.data.message)


async def test_a_replay_goes_to_the_durable_that_failed_and_to_no_other(probe: Probe) -> None:
    other = Subscription("other-jobs", JOBS.name, (event_filter("jobs"),))
    [letter] = await park(probe, 0)
    seen, bystander = Seen(), Seen()
    async with consuming(probe, bystander, other):
        await eventually(lambda: bystander.numbers == [0, 999])
        await probe.bus.dead_letters.replay(letter.sequence)
        async with consuming(probe, seen):
            await eventually(lambda: seen.deliveries)
            await eventually(lambda: nothing_waits(probe))
        await probe.bus.publish(make_gated(1))
        await eventually(lambda: 1 in bystander.numbers)
    [again] = seen.deliveries
    assert (again.event, again.subject, again.attempt) == (make_gated(0), make_gated(0).subject, 1)
    assert (again.sequence, again.published_at) == (letter.source_sequence, letter.published_at)
    assert bystander.numbers == [0, 999, 1]
    assert await letters(probe) == []


async def nothing_waits(probe: Probe) -> bool:
    """Every replay has ended."""
    return not await probe.stored(REPLAYS.name)


async def test_a_replay_waits_its_turn_behind_its_object(probe: Probe) -> None:
    [letter] = await park(probe, 0)
    started, gate, order = asyncio.Event(), asyncio.Event(), []

    async def handle(delivery: Delivery) -> None:
        if number_of(delivery) == 1:
            started.set()
            await gate.wait()
        order.append(number_of(delivery))

    await probe.bus.publish(make_gated(1))
    async with consuming(probe, handle):
        await started.wait()
        await probe.bus.dead_letters.replay(letter.sequence)
        await probe.bus.publish(make_gated(2, uid="neighbour"))
        await eventually(lambda: order == [2])
        gate.set()
        await eventually(lambda: len(order) == 3)
    assert order == [2, 1, 0]


async def test_a_replay_that_fails_again_is_parked_again_with_attempts_counted_anew(probe: Probe) -> None:
    thrice = Subscription("thrice", JOBS.name, (event_filter("jobs"),), max_attempts=3)
    busy = Seen(trouble=lambda d: Retry("Busy", "still", after=0.01))
    await probe.bus.publish(make_gated(0))
    async with consuming(probe, busy, thrice):
        [first] = await eventually(lambda: letters(probe))
        await probe.bus.dead_letters.replay(first.sequence)

        async def parked_again() -> DeadLetter | None:
            return next((a for a in await letters(probe) if a.sequence != first.sequence), None)

        second = await eventually(parked_again)
    assert [d.attempt for d in busy.deliveries] == [1, 2, 3, 1, 2, 3]
    assert second.attempts == first.attempts == 3
    assert (second.stream, second.source_sequence) == (first.stream, first.source_sequence)
    assert (second.data, second.headers, second.subject) == (first.data, first.headers, first.subject)
    assert second.published_at == first.published_at
    assert len(await letters(probe)) == 1


async def test_repeated_or_interrupted_replays_deliver_once(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    [letter] = await park(probe, 0)
    box = probe.bus.dead_letters
    with monkeypatch.context() as broken:
        cut_off_before_deleting(probe, broken)
        with pytest.raises(ZeroDivisionError):
            await probe.bus.dead_letters.replay(letter.sequence)
    assert [a.sequence for a in await letters(probe)] == [letter.sequence]
    await asyncio.gather(box.replay(letter.sequence), box.replay(letter.sequence), return_exceptions=True)
    with pytest.raises(NotFound):
        await box.replay(letter.sequence)
    assert len(await probe.stored(REPLAYS.name)) == 1
    seen = Seen()
    async with consuming(probe, seen):
        await eventually(lambda: seen.numbers == [0])
        await eventually(lambda: nothing_waits(probe))
    assert seen.numbers == [0]


def cut_off_before_deleting(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise ZeroDivisionError

    if isinstance(probe.bus, MemoryBus):
        monkeypatch.setattr(probe.bus._streams[DEAD_LETTERS.name], "drop", die)
    else:
        monkeypatch.setattr(NatsDeadLetterBox, "_delete", die)


async def test_a_replay_outlives_a_consumer_that_stops_midway(probe: Probe) -> None:
    [letter] = await park(probe, 0)
    started = asyncio.Event()

    async def never_ends(_: Delivery) -> None:
        started.set()
        await asyncio.Event().wait()

    await probe.bus.dead_letters.replay(letter.sequence)
    async with consuming(probe, never_ends):
        await started.wait()
    seen = Seen()
    async with consuming(probe, seen):
        await eventually(lambda: seen.numbers == [0])
    assert seen.deliveries[0].attempt == 2


async def test_a_replay_without_a_consumer_is_refused_and_kept(probe: Probe) -> None:
    await probe.bus.publish_raw(RawMessage("pw.dlq.gone", b"{}"))
    [letter] = await letters(probe)
    with pytest.raises(Permanent, match="NoSuchDurable"):
        await probe.bus.dead_letters.replay(letter.sequence)
    assert (await letters(probe), letter.durable, letter.attempts) == ([letter], "gone", 0)


async def test_a_dropped_letter_is_gone(probe: Probe) -> None:
    first, second = await park(probe, 0, 1)
    await probe.bus.dead_letters.drop(first.sequence)
    assert await letters(probe) == [second]
    for gone in (first.sequence, 4711, 0):
        for call in (probe.bus.dead_letters.get, probe.bus.dead_letters.drop, probe.bus.dead_letters.replay):
            with pytest.raises(NotFound, match=str(gone)):
                await call(gone)


async def test_a_consumer_that_parks_too_much_stops_until_its_letters_are_dropped(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "DEAD_LETTERS_CHECK_INTERVAL_SECONDS", 0.05)
    capped = Subscription("capped", JOBS.name, (event_filter("jobs"),), max_parked=2, max_in_flight=1)
    seen = refusing(0, 1, 2)
    for number in range(4):
        await probe.bus.publish(make_gated(number, f"uid-{number}"))
    with capture_logs() as logs:
        async with consuming(probe, seen, capped):
            await eventually(lambda: is_ill(probe))
            assert [number_in(letter) for letter in await letters(probe)] == [0, 1]
            handled = list(seen.numbers)
            for letter in await letters(probe):
                await probe.bus.dead_letters.drop(letter.sequence)
            await eventually(lambda: 3 in seen.numbers)
            await eventually(probe.bus.healthy)
            [last] = await letters(probe)
    assert handled == [0, 1, 2]
    assert number_in(last) == 2
    [told] = [entry for entry in logs if entry["log_level"] == "error"]
    assert told["durable"] == "capped"
    assert "paddlewheel dlq list" in told["fix"]


async def is_ill(probe: Probe) -> bool:
    return not await probe.bus.healthy()


async def test_the_status_counts_stored_and_waiting_messages(probe: Probe) -> None:
    gate, handled = asyncio.Event(), asyncio.Event()

    async def handle(_: Delivery) -> None:
        handled.set()
        await gate.wait()

    narrow = replace(ALL_JOBS, max_in_flight=1)
    for number in range(3):
        await probe.bus.publish(make_gated(number))
    async with consuming(probe, handle, narrow):
        await asyncio.wait_for(handled.wait(), 90)
        status = await probe.bus.inspect.status()
        gate.set()
    assert status.missing == ()
    [jobs] = [s for s in status.streams if s.name == JOBS.name]
    assert (jobs.messages, jobs.max_bytes, jobs.replicas, jobs.drift) == (3, JOBS.max_bytes, 1, {})
    assert jobs.bytes > 0
    [durable] = [d for d in status.durables if d.name == ALL_JOBS.durable]
    assert (durable.stream, durable.ack_pending, durable.pending) == (JOBS.name, 1, 2)
    assert durable.redelivered == 0


async def test_the_status_shows_replays_that_no_process_takes(probe: Probe) -> None:
    async def replays_are_asked_for() -> bool:
        durables = (await probe.bus.inspect.status()).durables
        return any(d.pulls for d in durables if d.name == replays_durable(ALL_JOBS.durable))

    async def nobody_asks() -> bool:
        return not await replays_are_asked_for()

    async def unread() -> list[tuple[str, int]]:
        return [(d.name, d.pending) for d in unread_replays(await probe.bus.inspect.status())]

    async def nothing_is_unread() -> bool:
        return await unread() == []

    [letter] = await park(probe, 0)
    async with consuming(probe, Seen()):
        await eventually(replays_are_asked_for)
        assert await unread() == []
    await eventually(nobody_asks)  # the server learns a moment later that a consumer has ended
    await probe.bus.dead_letters.replay(letter.sequence)
    assert await eventually(unread) == [(replays_durable(ALL_JOBS.durable), 1)]
    async with consuming(probe, Seen()):
        await eventually(lambda: nothing_waits(probe))
    await eventually(nothing_is_unread)
