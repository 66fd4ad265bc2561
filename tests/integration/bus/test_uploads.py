"""Notifications of object stores: none that the bus has acknowledged is lost, also through an upgrade."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime

import pytest
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from tests.integration.bus.suite import bus_of, running

from paddlewheel.bus.access import Access
from paddlewheel.bus.nats import NatsBus, mirrors, moving
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.ports import Delivery
from paddlewheel.bus.streams import BUS_FULL, DECLARED_AS, SOURCES, aside
from paddlewheel.contracts import wire
from paddlewheel.contracts.envelope import Event
from paddlewheel.core.errors import Retry
from paddlewheel.testkit.nats import NatsServer
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


OLD = replace(
    SOURCES,
    max_bytes=64 * 1024 * 1024,
    max_age=7 * 86400.0,
    retention="limits",
    discard="old",
    max_msg_size=960 * 1024,
    max_msgs_per_subject=-1,
    discard_new_per_subject=False,
    kept=False,
    declaration=1,
)
"""The declaration of the last release."""


@pytest.fixture
async def old(nats_server: NatsServer) -> list[Event]:
    """The bus of the last release: 300 notifications, of which those from 100 on are not acknowledged, but
    for every tenth."""
    bus = NatsBus(nats_server.url)
    js = await bus._connection.jetstream()
    fields = {n: v for n, v in asdict(OLD).items() if n not in ("live", "kept", "expendable", "declaration")}
    await js.add_stream(StreamConfig(**{**fields, "subjects": ["pw.src.>"]}, metadata={DECLARED_AS: "1"}))
    await js.add_consumer(
        SOURCES.name,
        ConsumerConfig(
            durable_name=DURABLE.durable, filter_subjects=["pw.src.>"], ack_policy=AckPolicy.EXPLICIT
        ),
    )
    events = make_events("images", list(map(KEY, range(300))))
    for event in events:
        data, headers = wire.encode(event)
        await js.publish(event.subject, data, headers=headers)
    subscription = await js.pull_subscribe_bind(DURABLE.durable, SOURCES.name)
    messages = await subscription.fetch(300, 90)
    assert len(messages) == 300
    for number, message in enumerate(messages):
        if number < 100 or number % 10 == 5:
            await message.ack_sync(90)
    await bus.close()
    return events


@pytest.fixture
async def upgraded(nats_server: NatsServer) -> AsyncIterator[NatsBus]:
    """The bus as this release's installer has it."""
    async with bus_of(Access(nats_server.url)) as bus:
        yield bus


async def check_upgraded(bus: NatsBus, old: Sequence[Event]) -> None:
    async def is_upgraded() -> bool:
        with suppress(Retry):
            await bus.install()
        return await is_moved(bus)

    await eventually(is_upgraded, what="upgraded")
    [new] = make_events("images", ["new"])
    await bus.publish(new)
    seen = await unread(bus)
    expected = {event.id for event in old[100:]} | {new.id}
    # What was acknowledged behind an unread one may come again; the triggers know it.
    assert set(seen) == expected
    assert [s.drift for s in (await bus.inspect.status()).streams if s.name == SOURCES.name] == [{}]


async def test_an_upgrade_loses_no_notification(old: list[Event], upgraded: NatsBus) -> None:
    await check_upgraded(upgraded, old)


@pytest.mark.parametrize("ends_after", range(1, 22, 2))
async def test_an_installer_that_ends_midway_is_continued_by_the_next(
    old: list[Event],
    upgraded: NatsBus,
    nats_server: NatsServer,
    ends_after: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, ask = 0, mirrors.ask

    async def ending(connection: Connection, subject: str, body: object = None) -> object:
        nonlocal asked
        asked += 1
        if asked > ends_after:
            raise Retry("Killed", "the installer has ended")
        return await ask(connection, subject, body)  # type: ignore[arg-type]

    first = NatsBus(nats_server.url)
    with monkeypatch.context() as patched:
        patched.setattr(moving, "ask", ending)
        while asked <= ends_after and not await is_moved(first):
            with suppress(Retry):
                await first.install()
    await first.close()
    await check_upgraded(upgraded, old)


async def is_moved(bus: NatsBus) -> bool:
    js = await bus._connection.jetstream()
    infos = {info.config.name: info.config for info in await js.streams_info()}
    found = infos.get(SOURCES.name)
    is_new = found is not None and (found.retention, found.sources) == (SOURCES.retention, None)
    return is_new and aside(SOURCES) not in infos
