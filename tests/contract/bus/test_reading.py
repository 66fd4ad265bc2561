"""Reading: stored events, then those that follow, with a durable position or without."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from tests.contract.bus.suite import Probe, Seen, consuming, make_gated, number_of

from paddlewheel.bus.ports import Delivery, OtherSelection, RawMessage, Reading
from paddlewheel.bus.streams import DATASETS, DEAD_LETTERS
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.datasets_v1 import SampleSetReady
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.errors import Unavailable
from paddlewheel.testkit.wait import eventually


async def test_reading_since_a_time_yields_stored_then_live_events(probe: Probe) -> None:
    await probe.bus.publish(make_gated(1))
    await probe.bus.publish(make_gated(2))
    since = datetime(2020, 1, 1, tzinfo=UTC)
    async with aclosing(probe.bus.read(Reading((event_filter("jobs"),), since))) as tail:
        assert [number_of(await anext(tail)) for _ in range(2)] == [1, 2]
        await probe.bus.publish(make_gated(3))
        assert number_of(await anext(tail)) == 3


async def test_a_tail_begins_at_the_moment_asked_for(probe: Probe) -> None:
    seen = Seen()
    await probe.bus.publish(make_gated(1))
    await probe.bus.publish(make_gated(2))
    async with consuming(probe, seen):
        await eventually(lambda: len(seen.deliveries) == 2)
    async with aclosing(probe.bus.read(Reading(("pw.evt.>",), seen.deliveries[1].published_at))) as tail:
        assert number_of(await anext(tail)) == 2


async def test_a_tail_without_a_time_shows_only_what_comes(probe: Probe) -> None:
    await probe.bus.publish(make_gated(1))
    found: list[int] = []

    async def follow() -> None:
        async with aclosing(probe.bus.read(Reading((event_filter("jobs"),)))) as tail:
            async for delivery in tail:
                found.append(number_of(delivery))

    async def publish_until_found() -> bool:
        await probe.bus.publish(make_gated(2, uid=uuid4().hex))
        return bool(found)

    task = asyncio.create_task(follow())
    await eventually(publish_until_found)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert set(found) == {2}


async def test_a_tail_goes_over_several_streams_and_skips_what_it_cannot_read(probe: Probe) -> None:
    ready = make_event(
        SampleSetReady(partitions=2), id="s", source="t", namespace="default", uid="u", time=datetime.now(UTC)
    )
    await probe.bus.publish(make_gated(1))
    await probe.bus.publish_raw(RawMessage(make_gated(2).subject, b"poison"))
    await probe.bus.publish(ready)
    async with aclosing(probe.bus.read(Reading(("pw.evt.>",), datetime(2020, 1, 1, tzinfo=UTC)))) as tail:
        types = {(await anext(tail)).event.type for _ in range(2)}
    assert types == {ready.type, make_gated(1).type}
    assert len(await probe.stored(DATASETS.name)) == 1


LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
STORED = Reading((event_filter("jobs"),), LONG_AGO, follow=False)
KEPT = Reading((event_filter("jobs"),), LONG_AGO, durable="sub-me")


async def numbers_read(probe: Probe, reading: Reading, most: int | None = None) -> list[int]:
    """The next `most` events, or those until the reading ends; the last one is not acknowledged then."""
    found: list[int] = []
    async with aclosing(probe.bus.read(reading)) as events:
        async for delivery in events:
            found.append(number_of(delivery))
            if len(found) == most:
                break
    return found


async def test_reading_without_following_ends_after_what_is_stored(probe: Probe) -> None:
    assert await numbers_read(probe, STORED) == []
    for number in range(600):
        await probe.bus.publish(make_gated(number))
    assert await numbers_read(probe, STORED) == list(range(600))


async def test_stored_events_of_several_streams_are_read_by_time(probe: Probe) -> None:
    def make_ready(number: int) -> Event:
        data = SampleSetReady(partitions=number)
        now = datetime.now(UTC)
        return make_event(data, id=f"s{number}", source="t", namespace="default", uid="u", time=now)

    for number in range(20):
        await probe.bus.publish(make_gated(number))
        await probe.bus.publish(make_ready(number))
    reading = Reading(("pw.evt.>",), LONG_AGO, follow=False)
    async with aclosing(probe.bus.read(reading)) as events:
        read = [delivery.event.id async for delivery in events]
    assert read == [id_ for n in range(20) for id_ in (make_gated(n).id, f"s{n}")]


async def test_a_reading_follows_from_a_moment_on(probe: Probe) -> None:
    await probe.bus.publish(make_gated(1))
    await probe.bus.publish(make_gated(2))
    async with aclosing(probe.bus.read(STORED)) as events:
        at = [delivery.published_at async for delivery in events]
    async with aclosing(probe.bus.read(replace(STORED, since=at[1], follow=True))) as events:
        assert number_of(await anext(events)) == 2
        waiting = asyncio.ensure_future(anext(events))
        await probe.bus.publish(make_gated(3))
        assert number_of(await asyncio.wait_for(waiting, 90)) == 3


@pytest.mark.parametrize("durable", ["", "sub-me"])
async def test_a_reading_without_a_moment_shows_only_what_comes(probe: Probe, durable: str) -> None:
    await probe.bus.publish(make_gated(1))
    async with aclosing(probe.bus.read(replace(KEPT, since=None, durable=durable))) as events:
        waiting = asyncio.ensure_future(anext(events))

        async def publish_until_found() -> bool:
            await probe.bus.publish(make_gated(2, uid=uuid4().hex))
            return waiting.done()

        await eventually(publish_until_found)
        assert number_of(await waiting) == 2


async def test_what_a_durable_reader_did_not_go_on_from_comes_again_first(probe: Probe) -> None:
    for number in range(5):
        await probe.bus.publish(make_gated(number))
    assert await numbers_read(probe, KEPT, most=3) == [0, 1, 2]
    assert await numbers_read(probe, KEPT, most=1) == [2]
    async with aclosing(probe.bus.read(replace(KEPT, follow=False))) as events:
        found = [(number_of(delivery), delivery.attempt) async for delivery in events]
    assert found == [(2, 3), (3, 1), (4, 1)]
    assert await numbers_read(probe, replace(KEPT, follow=False)) == []


async def test_the_moment_counts_for_a_durable_readers_first_time_only(probe: Probe) -> None:
    await probe.bus.publish(make_gated(1))
    assert await numbers_read(probe, replace(KEPT, follow=False)) == [1]
    await probe.bus.publish(make_gated(2))
    assert await numbers_read(probe, replace(KEPT, since=datetime.now(UTC), follow=False)) == [2]
    assert await numbers_read(probe, replace(KEPT, durable="sub-other", follow=False)) == [1, 2]


async def test_durable_readers_of_one_name_share_in_order(probe: Probe) -> None:
    for number in range(40):
        await probe.bus.publish(make_gated(number))
    found: list[int] = []

    async def share() -> None:
        async with aclosing(probe.bus.read(replace(KEPT, follow=False))) as events:
            async for delivery in events:
                found.append(number_of(delivery))
                await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.gather(share(), share(), share()), 90)
    assert found == list(range(40))


@pytest.mark.parametrize("durable", ["", "sub-me"])
async def test_an_event_whose_refinement_failed_is_read_again(probe: Probe, durable: str) -> None:
    failures = [Unavailable("BusUnreachable", "for a moment")]

    async def refine(delivery: Delivery) -> None:
        if number_of(delivery) == 1 and failures:
            raise failures.pop()

    for number in range(3):
        await probe.bus.publish(make_gated(number))
    reading = replace(KEPT, durable=durable, refine=refine)
    assert await asyncio.wait_for(numbers_read(probe, reading, most=3), 90) == [0, 1, 2]
    assert not failures


@pytest.mark.parametrize("durable", ["", "sub-me"])
async def test_a_reading_skips_what_it_cannot_read_and_parks_nothing(probe: Probe, durable: str) -> None:
    await probe.bus.publish(make_gated(1))
    await probe.bus.publish_raw(RawMessage(make_gated(2).subject, b"poison"))
    await probe.bus.publish(make_gated(3))
    assert await numbers_read(probe, replace(STORED, durable=durable)) == [1, 3]
    assert await probe.stored(DEAD_LETTERS.name) == []


async def test_a_reader_is_told_when_it_has_had_everything_that_was_stored(probe: Probe) -> None:
    story: list[int | str] = []
    for number in range(300):
        await probe.bus.publish(make_gated(number))
    reading = replace(STORED, follow=True, caught_up=lambda: story.append("caught up"))
    async with aclosing(probe.bus.read(reading)) as events:
        while len(story) < 300:
            story.append(number_of(await anext(events)))
        waiting = asyncio.ensure_future(anext(events))
        await eventually(lambda: story[-1] == "caught up")
        await probe.bus.publish(make_gated(300))
        story.append(number_of(await waiting))
    assert story == [*range(300), "caught up", 300]


@pytest.mark.parametrize("since", [LONG_AGO, None])
@pytest.mark.parametrize("follow", [True, False])
async def test_a_reader_of_an_empty_stream_has_caught_up_at_once(
    probe: Probe, follow: bool, since: datetime | None
) -> None:
    story: list[str] = []
    reading = replace(STORED, since=since, follow=follow, caught_up=lambda: story.append("caught up"))

    async def read() -> None:
        async with aclosing(probe.bus.read(reading)) as events:
            async for _ in events:
                story.append("event")

    reader = asyncio.create_task(read())
    await eventually(lambda: story)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert story == ["caught up"]


async def test_a_durable_name_is_refused_to_another_selection(probe: Probe) -> None:
    await probe.bus.publish(make_gated(1))
    failed = replace(
        KEPT,
        follow=False,
        subjects=("pw.evt.jobs.job.failed.v1.*.*",),
        selection="types=JobFailed",
        selection_key="failed",
    )
    assert await numbers_read(probe, failed) == []
    with pytest.raises(OtherSelection) as refused:
        await numbers_read(
            probe, replace(failed, subjects=STORED.subjects, selection="all facts", selection_key="all")
        )
    assert refused.value.kept == "types=JobFailed"
    assert await numbers_read(probe, failed) == []


async def test_a_durable_name_is_refused_to_a_selection_of_other_streams(probe: Probe) -> None:
    jobs = replace(KEPT, follow=False, selection="context=jobs", selection_key="jobs")
    assert await numbers_read(probe, jobs) == []
    datasets = (event_filter("datasets"),)
    for subjects in (datasets, (*datasets, *jobs.subjects)):
        with pytest.raises(OtherSelection) as refused:
            await numbers_read(probe, replace(jobs, subjects=subjects, selection_key="other"))
        assert refused.value.kept == "context=jobs"
    # The refused ones have left no consumer behind.
    assert await numbers_read(probe, jobs) == []


async def test_a_durable_name_is_the_same_selection_whatever_its_words(probe: Probe) -> None:
    reading = replace(KEPT, follow=False, selection="context=jobs", selection_key="jobs")
    for words in ("context=jobs", "facts about jobs"):
        assert await numbers_read(probe, replace(reading, selection=words)) == []


async def test_a_durable_name_keeps_its_selection_while_its_subjects_are_narrowed(probe: Probe) -> None:
    async def narrow(delivery: Delivery) -> tuple[str, ...]:
        return (delivery.subject,)

    reading = replace(KEPT, follow=False, selection="all facts", selection_key="all", refine=narrow)
    for number in range(3):
        await probe.bus.publish(make_gated(number))
    assert await numbers_read(probe, reading, most=2) == [0, 1]
    assert await numbers_read(probe, reading) == [1, 2]
