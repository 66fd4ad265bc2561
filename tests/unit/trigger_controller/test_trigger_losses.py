"""Deferred events that the bus loses are told, counted and shown until somebody knows of them."""

from __future__ import annotations

import pytest
from tests.unit.trigger_controller.conftest import WARM, TriggerHarness
from tests.unit.trigger_controller.test_trigger_deferral import broken_webhook, publish_many, wait_out

from paddlewheel.core.errors import Retry
from paddlewheel.kube.ports import SAMPLE_JOBS
from paddlewheel.operator.settings import OperatorSettings
from paddlewheel.testkit.memory_bus.kv import MemoryKeyValue
from paddlewheel.testkit.triggers import make_trigger
from trigger_controller.domain import names, pages

RESYNC = OperatorSettings.model_fields["resync"].default


async def lose(harness: TriggerHarness, pattern: str) -> None:
    """As buckets that were made anew."""
    for name in ("pw_triggers", "pw_trigger_deferred", "pw_trigger_origins"):
        bucket = harness.bus.key_value(name)
        for entry in await bucket.entries(pattern):
            await bucket.delete(entry.key)


async def deferred(harness: TriggerHarness) -> int:
    return int((await harness.status_of()).get("deferred", {}).get("events", 0))


async def test_deferred_events_that_the_bus_lost_are_told_once(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        await publish_many(harness, 12)
        await wait_out(harness)
        assert await deferred(harness) == 12
        await lose(harness, ">")
        await wait_out(harness, RESYNC)
    status = await harness.status_of()
    assert (status["lost"], "deferred" in status, status["reason"]) == (12, False, "DeferredEventsLost")
    lost = await harness.condition_of("EventsLost")
    assert (lost["status"], lost["reason"]) == ("True", "DeferredEventsLost")
    assert lost["message"].startswith("12 deferred event(s) of ")
    assert ", for example e-" in lost["message"]
    assert f"{names.ANNOTATION_LOST}=12" in lost["message"]
    events = await harness.event_reasons()
    assert events.count(("Warning", "DeferredEventsLost")) == 1
    await wait_out(harness, 2 * RESYNC)
    assert (await harness.status_of())["lost"] == 12
    await harness.patch(WARM, {"metadata": {"annotations": {names.ANNOTATION_LOST: "12"}}})
    await harness.drain_queue()
    lost = await harness.condition_of("EventsLost")
    assert (lost["status"], lost["reason"]) == ("False", "Acknowledged")


@pytest.mark.parametrize(
    ("known", "total"), [("", 20), ("12", 8), ("5", 15), ("99", 8), ("all", 20), ("9" * 5000, 20)]
)
async def test_a_second_loss_tells_of_all_that_nobody_knows_of(
    harness: TriggerHarness, known: str, total: int
) -> None:
    await harness.apply(make_trigger())
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        for count, prefix in ((12, "e"), (8, "later")):
            await publish_many(harness, count, prefix)
            await wait_out(harness)
            await harness.patch(WARM, {"metadata": {"annotations": {names.ANNOTATION_LOST: known}}})
            await lose(harness, ">")
            await wait_out(harness, RESYNC)
    lost = await harness.condition_of("EventsLost")
    assert lost["status"] == "True"
    assert lost["message"].startswith(f"{total} deferred event(s) ")
    assert ", the last 8 of " in lost["message"] or total == 8
    assert ", for example later-" in lost["message"]
    assert "e-0" not in lost["message"]
    assert f"{names.ANNOTATION_LOST}=20" in lost["message"]


async def test_a_loss_is_told_though_others_were_deferred_before_it_was_seen(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry goes between the pass's read and its write."""
    await harness.apply(make_trigger())
    update = MemoryKeyValue.update

    async def lose_first(self: MemoryKeyValue, key: str, value: bytes, revision: int) -> int:
        if key.startswith("deferred."):
            monkeypatch.setattr(MemoryKeyValue, "update", update)
            await self.delete(key)
        return await update(self, key, value, revision)

    with broken_webhook(harness, "create", SAMPLE_JOBS):
        await publish_many(harness, 12)
        await wait_out(harness)
        monkeypatch.setattr(MemoryKeyValue, "update", lose_first)
        await publish_many(harness, 3, "later")
        await wait_out(harness, 10)
        status = await harness.status_of()
        assert (status["lost"], status["deferred"]["events"]) == (12, 3)


async def test_a_page_that_is_lost_is_told(harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST", 6)
    await harness.apply(make_trigger())
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        await publish_many(harness, 20)
        await wait_out(harness)
        assert await deferred(harness) == 20
        bucket = harness.bus.key_value("pw_trigger_deferred")
        [entry] = await bucket.entries("deferred.*")
        in_pages = 20 - len(pages.read(entry.value).events)
        await lose(harness, "deferred.*.*")
    await wait_out(harness, 10)
    assert (await harness.status_of())["lost"] == in_pages
    assert harness.jobs_created() == 20 - in_pages
    # The ids that the status told are those of the entry, which is still there; all happened at one time.
    message = (await harness.condition_of("EventsLost"))["message"]
    assert message.startswith(
        f"{in_pages} deferred event(s) are gone from the bus's bucket pw_trigger_deferred: "
    )


async def test_only_the_time_of_events_that_are_gone_is_told(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry itself has the newest ones, and stays."""
    monkeypatch.setattr(pages, "MOST", 6)
    await harness.apply(make_trigger())
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        for count, prefix in ((12, "e"), (8, "later")):
            await publish_many(harness, count, prefix)
            await wait_out(harness)
        told = (await harness.status_of())["deferred"]
        await lose(harness, "deferred.*.*")
    await wait_out(harness, 10)
    message = (await harness.condition_of("EventsLost"))["message"]
    assert f" deferred event(s) since {told['oldest']} are gone" in message
    assert told["newest"] not in message


async def test_what_was_handled_is_not_lost(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        await publish_many(harness, 12)
        await wait_out(harness)
    await wait_out(harness, 100)
    await lose(harness, ">")
    await wait_out(harness, RESYNC)
    assert (await harness.status_of()).get("lost", 0) == 0


async def test_the_status_tells_only_of_events_that_are_stored(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or another replica, which finds none of them, would take them for handled or for lost."""
    await harness.apply(make_trigger())
    create = MemoryKeyValue.create
    told: list[bool] = []

    async def look(self: MemoryKeyValue, key: str, value: bytes) -> int:
        if key.startswith("deferred."):
            told.append("deferred" in await harness.status_of())
            if len(told) < 5:
                raise Retry("BusUnreachable")
        return await create(self, key, value)

    monkeypatch.setattr(MemoryKeyValue, "create", look)
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        await publish_many(harness, 12)
        await wait_out(harness)
        assert told[:5] == [False] * 5
        await wait_out(harness, 60)
        assert await deferred(harness) == 12
    await wait_out(harness, 100)
    assert harness.jobs_created() == 12
    assert (await harness.status_of()).get("lost", 0) == 0
