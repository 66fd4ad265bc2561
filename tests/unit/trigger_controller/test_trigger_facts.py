"""Record, then publish: nothing on the bus that the status does not hold, nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.unit.trigger_controller.conftest import WARM, OpenHarness, TriggerHarness

from paddlewheel.bus.streams import TRIGGERS as STREAM
from paddlewheel.contracts.announcements import Announcement
from paddlewheel.contracts.crds.trigger import TriggerAnnouncement, TriggerStatus
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.generated.bus_v1 import RebuildReport
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.triggers_v1 import TriggerFailed, TriggerFired
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.subjects import command_subject
from paddlewheel.contracts.wire import from_json
from paddlewheel.core.errors import Conflict, Permanent, Retry
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import SAMPLE_JOBS, TRIGGERS, Object
from paddlewheel.operator.domain.facts import PENDING_MAX
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS, PUBLISH_RETRY_INTERVAL_SECONDS
from paddlewheel.testkit.triggers import make_store_trigger, make_trigger
from trigger_controller.domain import names
from trigger_controller.domain.facts import FACTS, Case, outbox_room
from trigger_controller.timing import BUS_DELETION_TIMEOUT_SECONDS

QUOTA = Permanent("Forbidden", "exceeded quota: jobs")


@contextmanager
def refusing_facts(harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The stream of triggers takes nothing within the block, everything else on the bus works.

    Gives the ids of the facts it did not take.
    """
    publish, refused = harness.bus.publish, list[str]()

    async def refuse(event: Event) -> None:
        if event.subject.startswith("pw.evt.triggers."):
            refused.append(event.id)
            raise Retry("StreamUnavailable")
        await publish(event)

    with monkeypatch.context() as patch:
        patch.setattr(harness.bus, "publish", refuse)
        yield refused


async def outbox(harness: TriggerHarness) -> list[Object]:
    return list((await harness.status_of())["announcements"])


async def test_nothing_is_published_when_the_status_write_conflicts(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    with harness.failing(Conflict("the object has been modified"), "patch-status", TRIGGERS, times=2):
        await harness.publish_ready("e-1")
        assert harness.facts() == []
        assert len(await harness.sample_jobs()) == 1
        await harness.advance(1)
        assert harness.facts() == []
    await harness.advance(1)
    assert harness.facts() == ["TriggerFired"]
    assert harness.jobs_created() == 1


async def test_a_refusal_is_not_published_either_before_it_is_recorded(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    with (
        harness.failing(QUOTA, "create", SAMPLE_JOBS),
        harness.failing(Conflict("the object has been modified"), "patch-status", TRIGGERS, times=1),
    ):
        await harness.publish_ready("e-1")
        assert harness.facts() == []
        await harness.advance(1)
        assert harness.facts() == ["TriggerFailed"]


async def test_killed_between_record_and_publish_nothing_is_lost_and_nothing_repeated(
    open_harness: OpenHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_harness() as harness:
        trigger = await harness.apply(make_trigger())
        with refusing_facts(harness, monkeypatch):
            await harness.publish_ready("e-1", "e-2", "e-3")
            assert (await harness.status_of())["fired"] == 3
            assert harness.facts() == []
            jobs = {j["metadata"]["uid"] for j in await harness.sample_jobs()}
            for job in await harness.sample_jobs():
                await harness.delete_job(job)
            await harness.restart()
        await harness.advance(PUBLISH_RETRY_INTERVAL_SECONDS)
        await harness.reconcile(WARM)
        published = [e.data for e in harness.published if isinstance(e.data, TriggerFired)]
        assert {fact.event_id for fact in published} == {"e-1", "e-2", "e-3"}
        assert {fact.created.uid for fact in published if fact.created} == jobs
        uid = trigger["metadata"]["uid"]
        assert [e.id for e in harness.published] == [f"{uid}/TriggerFired/{n}" for n in range(3)]


@pytest.mark.parametrize("dead_for", [0.0, 2 * STREAM.duplicate_window])
async def test_killed_between_publish_and_confirmation_the_fact_is_stored_once(
    open_harness: OpenHarness, dead_for: float
) -> None:
    async with open_harness() as harness:
        await harness.apply(make_trigger())
        await harness.publish_ready("e-1")
        assert [a["announced"] for a in await outbox(harness)] == [False]
        await harness.restart()
        await harness.clock.advance(dead_for)
        await harness.reconcile(WARM)
        assert harness.facts() == ["TriggerFired"]
        await harness.advance(CONFIRM_GRACE_SECONDS)
        await harness.settle(WARM)
        assert [a["announced"] for a in await outbox(harness)] == [True]


async def test_what_is_confirmed_leaves_the_status_but_for_the_last_of_each_fact(
    harness: TriggerHarness,
) -> None:
    await harness.apply(make_trigger())
    with harness.failing(QUOTA, "create", SAMPLE_JOBS):
        await harness.publish_ready("e-0")
    await harness.advance(61)
    await harness.publish_ready(*(f"e-{n}" for n in range(1, 6)))
    assert len(harness.facts()) == 7
    await harness.advance(CONFIRM_GRACE_SECONDS)
    assert [(a["fact"], a["attempt"], a["announced"]) for a in await outbox(harness)] == [
        ("TriggerFailed", 0, True),
        ("TriggerFired", 5, True),
    ]


async def test_one_confirmation_costs_one_write_and_rides_along_with_the_next_status(
    harness: TriggerHarness,
) -> None:
    await harness.apply(make_trigger())
    before = harness.status_writes()
    await harness.publish_ready("e-1")
    assert harness.status_writes() - before == 1
    await harness.publish_ready("e-2")
    assert harness.status_writes() - before == 2
    await harness.advance(CONFIRM_GRACE_SECONDS)
    await harness.advance(600)
    assert harness.status_writes() - before == 3


async def test_several_refusals_in_one_pass_are_one_failure_for_all_that_waits(
    harness: TriggerHarness,
) -> None:
    await harness.apply(make_trigger())
    with harness.failing(QUOTA, "create", SAMPLE_JOBS):
        for number in range(1, 4):
            await harness.clock.advance(1)
            await harness.bus.publish(harness.make_ready(f"e-{number}", name=f"set-{number}"))
        await harness.drain_queue()
    [fact] = harness.published
    assert isinstance(fact.data, TriggerFailed)
    assert (fact.data.events, fact.data.event_id) == (3, "e-3")


async def test_events_wait_on_the_bus_while_the_outbox_is_full(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.apply(make_trigger())
    total = PENDING_MAX + 50
    with refusing_facts(harness, monkeypatch):
        await harness.publish_ready(*(f"e-{n}" for n in range(total)))
        assert len(await outbox(harness)) == PENDING_MAX
        assert harness.jobs_created() == PENDING_MAX
    for _ in range(4):
        await harness.advance(PUBLISH_RETRY_INTERVAL_SECONDS)
    assert harness.jobs_created() == total
    published = [e.data.event_id for e in harness.published if isinstance(e.data, TriggerFired)]
    assert sorted(published) == sorted(f"e-{n}" for n in range(total))


async def test_gathered_events_wait_in_the_status_while_the_outbox_is_full(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = make_store_trigger(batch={"quietSeconds": 1})
    await harness.apply(trigger)
    monkeypatch.setattr("trigger_controller.domain.facts.PENDING_MAX", 1)
    with refusing_facts(harness, monkeypatch):
        await harness.notify("a.png")
        await harness.advance(2)
        assert harness.jobs_created() == 1
        await harness.notify("b.png")
        await harness.advance(60)
        assert harness.jobs_created() == 1
    for _ in range(4):
        await harness.advance(PUBLISH_RETRY_INTERVAL_SECONDS)
    assert harness.jobs_created() == 2
    assert harness.facts() == ["TriggerFired"] * 2


def test_the_room_of_an_outbox() -> None:
    entry = TriggerAnnouncement("TriggerFired", 0, "2026-01-31T12:00:00.000Z")
    assert outbox_room(TriggerStatus()) == PENDING_MAX
    assert outbox_room(TriggerStatus(announcements=(entry,))) == PENDING_MAX - 1
    assert outbox_room(TriggerStatus(announcements=(entry,) * (PENDING_MAX + 1))) == 0


async def test_after_the_bus_lost_its_data_the_last_facts_are_back(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    await harness.publish_ready("e-1", "e-2")
    await harness.advance(CONFIRM_GRACE_SECONDS)
    [_, last] = harness.published
    assert isinstance(last.data, TriggerFired)
    harness.bus.lose_facts(STREAM.name)
    assert harness.facts() == []
    await harness.advance(30)
    [back] = harness.published
    assert isinstance(back.data, TriggerFired)
    assert (back.id, back.data.event_id, back.data.created) == (last.id, "e-2", last.data.created)


async def test_a_fact_that_an_older_release_recorded_is_back_with_its_values(harness: TriggerHarness) -> None:
    """Its status has the values in place of the message."""
    await harness.apply(make_trigger())
    await harness.publish_ready("e-1")
    await harness.advance(CONFIRM_GRACE_SECONDS)
    [fired] = harness.published
    assert isinstance(fired.data, TriggerFired)
    [key] = [key_of(obj) for obj in await harness.cluster.list(TRIGGERS)]
    status = await harness.status(key)
    [entry] = status["announcements"]
    values = {"event": "e-1", "eventType": fired.data.event_type, "events": 1}
    old = {**{name: value for name, value in entry.items() if name != "payload"}, **values}
    await harness.set_status(key, {"announcements": [old]})
    harness.bus.lose_facts(STREAM.name)
    await harness.restart()
    await harness.advance(30)
    [back] = harness.published
    assert isinstance(back.data, TriggerFired)
    assert (back.id, back.data.event_id, back.data.events) == (fired.id, "e-1", 1)


async def test_the_command_rebuild_is_answered(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    await harness.publish_ready("e-1")
    await harness.advance(CONFIRM_GRACE_SECONDS)
    harness.bus.lose_facts(STREAM.name)
    subject = command_subject("trigger-controller", "rebuild")
    asking = asyncio.create_task(harness.bus.ask_all(subject, b"{}"))
    while not asking.done():
        await harness.advance(0.1)
    [report] = [from_json(RebuildReport, answer) for answer in await asking]
    assert (report.objects, report.facts_published) == (1, 1)
    assert harness.facts() == ["TriggerFired"]


def test_an_entry_of_another_version_of_the_service_is_not_published() -> None:
    entry = Announcement("TriggerPaused", 0, "2026-01-31T12:00:00.000Z")
    assert FACTS.render(entry, Case(), ObjectRef()) is None


async def test_a_deleted_trigger_goes_after_its_facts(
    open_harness: OpenHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_harness() as harness:
        await harness.apply(make_trigger())
        with refusing_facts(harness, monkeypatch):
            await harness.publish_ready("e-1", "e-2")
            await harness.delete(WARM)
            await harness.drain_queue()
            await harness.restart()
            await harness.advance(300)
            assert await harness.exists(WARM)
        await harness.advance(PUBLISH_RETRY_INTERVAL_SECONDS)
        assert not await harness.exists(WARM)
        published = [e.data.event_id for e in harness.published if isinstance(e.data, TriggerFired)]
        assert sorted(published) == ["e-1", "e-2"]


async def test_a_deleted_trigger_does_not_wait_for_the_bus_for_ever(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.apply(make_trigger())
    with refusing_facts(harness, monkeypatch):
        await harness.publish_ready("e-1")
        await harness.delete(WARM)
        await harness.advance(BUS_DELETION_TIMEOUT_SECONDS - 1)
        assert await harness.exists(WARM)
        await harness.advance(PUBLISH_RETRY_INTERVAL_SECONDS + 1)
        assert not await harness.exists(WARM)


async def test_a_trigger_without_pending_facts_goes_at_once(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    await harness.publish_ready("e-1")
    await harness.delete(WARM)
    await harness.drain_queue()
    assert not await harness.exists(WARM)


async def test_a_finalizer_of_another_controller_is_left_alone(harness: TriggerHarness) -> None:
    trigger = make_trigger()
    trigger["metadata"]["finalizers"] = ["example.com/theirs"]
    await harness.apply(trigger)
    assert (await harness.get(WARM))["metadata"]["finalizers"] == ["example.com/theirs", names.FINALIZER]
    await harness.delete(WARM)
    await harness.drain_queue()
    assert (await harness.get(WARM))["metadata"]["finalizers"] == ["example.com/theirs"]


async def test_a_job_beyond_the_history_is_kept_while_its_facts_wait(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger(successfulJobsHistoryLimit=0))
    await harness.publish_ready("e-1")
    [job] = await harness.sample_jobs()
    fact = {"fact": "SampleJobSucceeded", "attempt": 0, "at": "2026-01-01T00:00:00.000Z", "announced": False}
    key = Key("default", job["metadata"]["name"])
    await harness.set_status(key, {"announcements": [fact]}, SAMPLE_JOBS)
    await harness.end(job)
    await harness.advance(3600)
    assert len(await harness.sample_jobs()) == 1
    await harness.set_status(key, {"announcements": [fact | {"announced": True}]}, SAMPLE_JOBS)
    await harness.drain_queue()
    assert await harness.sample_jobs() == []


async def test_a_firing_that_an_older_release_recorded_is_published_with_its_parts(
    open_harness: OpenHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_harness() as harness:
        await harness.apply(make_trigger())
        child = {"kind": "SampleJob", "name": "warm-1", "uid": "u-1"}
        parts = {"event": "e-1", "eventType": "paddlewheel.datasets.v1.SampleSetReady", "events": 3}
        fact = {"fact": "TriggerFired", "attempt": 7, "at": "2026-01-01T00:00:00.000Z", "announced": False}
        await harness.set_status(WARM, {"announcements": [fact | parts | {"created": child}]})
        await harness.drain_queue()
        [event] = harness.published
        assert isinstance(event.data, TriggerFired)
        assert (event.id.rpartition("/")[2], event.data.event_id, event.data.events) == ("7", "e-1", 3)
        assert event.data.created is not None
        assert event.data.created.uid == "u-1"


async def test_a_recorded_fact_has_its_message_and_not_its_parts_as_well(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    await harness.publish_ready("e-1")
    [entry] = await outbox(harness)
    assert not {"event", "eventType", "created"} & set(entry)
    assert from_json(TriggerFired, entry["payload"].encode()) == harness.published[0].data
