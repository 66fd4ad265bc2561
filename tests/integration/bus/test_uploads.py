"""Notifications of object stores: none that the bus has acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.integration.bus.suite import running

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Delivery
from paddlewheel.bus.streams import BUS_FULL, SOURCES
from paddlewheel.contracts.envelope import Event
from paddlewheel.core.errors import Retry
from paddlewheel.testkit.wait import eventually
from trigger_controller.domain.notifications import read_notifications
from trigger_controller.watch import SUBSCRIPTIONS

[DURABLE] = [each for each in SUBSCRIPTIONS if each.stream == SOURCES.name]
KEY = "{:04}".format
MOST = SOURCES.max_msgs_per_subject


def make_events(source: str, keys: Sequence[str]) -> list[Event]:
    """The events that the webhook makes from a store's post."""
    records = ",".join(
        '{"eventName": "s3:ObjectCreated:Put", "eventTime": "2026-01-01T00:00:00Z",'
        f' "s3": {{"bucket": {{"name": "b"}}, "object": {{"key": "{key}"}}}}}}'
        for key in keys
    )
    body = f'{{"Records": [{records}]}}'.encode()
    return [n.event() for n in read_notifications(source, body, datetime.now(UTC))]


async def flood(bus: NatsBus, source: str, number: int) -> tuple[set[str], set[str]]:
    """Ids of the notifications that were acknowledged, and the reasons why others were not."""
    stored, refused = set(), set()

    async def publish(event: Event) -> None:
        try:
            await bus.publish(event)
            stored.add(event.id)
        except Retry as error:
            refused.add(error.reason)

    for begin in range(0, number, 500):
        keys = list(map(KEY, range(begin, min(begin + 500, number))))
        await asyncio.gather(*map(publish, make_events(source, keys)))
    return stored, refused


async def unread(bus: NatsBus) -> Counter[str]:
    """How often each notification is delivered, by its id."""
    seen: Counter[str] = Counter()

    async def handle(delivery: Delivery) -> None:
        seen[delivery.event.id] += 1

    js = await bus._connection.jetstream()

    async def is_read() -> bool:
        return (await js.stream_info(SOURCES.name)).state.messages == 0

    async with running(bus.consume(DURABLE, handle)):
        await eventually(is_read, what="everything is read")
    return seen


async def test_a_flood_of_one_source_is_refused_and_displaces_nothing(bus: NatsBus) -> None:
    js = await bus._connection.jetstream()
    config = (await js.stream_info(SOURCES.name)).config
    await js.update_stream(config.evolve(max_msgs_per_subject=8))
    first, _ = await flood(bus, "quiet", 20)
    stored, refused = await flood(bus, "loud", 1500)
    last, none = await flood(bus, "quiet-2", 20)
    assert (len(first), len(last), none) == (20, 20, set())
    assert refused == {BUS_FULL}
    assert await unread(bus) == Counter(first | stored | last)


async def test_the_installer_measures_what_is_unread(bus: NatsBus) -> None:
    await flood(bus, "images", 7)
    await bus.install()
    assert bus._provision.lags[DURABLE.durable] == 7


async def test_a_full_stream_refuses_and_keeps_what_it_has_acknowledged(bus: NatsBus) -> None:
    js = await bus._connection.jetstream()
    config = (await js.stream_info(SOURCES.name)).config
    await js.update_stream(config.evolve(max_bytes=64 * 1024))
    stored, refused = await flood(bus, "loud", 500)
    assert refused == {BUS_FULL}
    assert await unread(bus) == Counter(stored)


async def test_a_source_has_as_many_subjects_as_the_limit_is_meant_for() -> None:
    subjects = {e.subject for e in make_events("images", list(map(KEY, range(1000))))}
    assert len(subjects) == 32
    # Created and removed, of at most 8 KiB: half of the stream.
    assert 2 * len(subjects) * MOST * SOURCES.max_msg_size <= SOURCES.max_bytes / 2


async def test_every_key_that_is_allowed_fits(bus: NatsBus) -> None:
    [event] = make_events("s" * 63, ["%F0%9F%92%BE" * 256])
    await bus.publish(event)
