"""Events that cannot be handled for now end their messages, wait in the bucket, and are tried again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import orjson
import pytest
from tests.unit.trigger_controller.conftest import WARM, OpenHarness, TriggerHarness, event_of, events_of

from paddlewheel.bus.ports import Entry
from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.crds.trigger import StatusDeferred, StatusEvent
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import AlreadyExists, Conflict, Permanent, Retry, Unavailable
from paddlewheel.kube.ports import SAMPLE_JOBS, TRIGGERS, Resource
from paddlewheel.operator.domain.plan import MESSAGE_LIMIT
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.memory_bus.kv import MemoryKeyValue
from paddlewheel.testkit.memory_cluster import Verb
from paddlewheel.testkit.triggers import (
    SAMPLE_JOB_SUCCEEDED,
    make_job_succeeded,
    make_store_trigger,
    make_trigger,
)
from trigger_controller.domain import marks, names, pages
from trigger_controller.domain.model import Deferred, Occurrence
from trigger_controller.domain.policies.deferral import AT_ONCE, PROBES, Change, changed, to_try
from trigger_controller.inbox import OF_ALL, OF_NAMESPACE, OF_TRIGGER, Inbox
from trigger_controller.memory import Memory
from trigger_controller.timing import (
    DEFERRED_CHECK_INTERVAL_SECONDS,
    MARK_REFRESH_INTERVAL_SECONDS,
    MESSAGE_RETRY_TIMEOUT_SECONDS,
    WRITE_RETRY_MAX_INTERVAL_SECONDS,
)
from trigger_controller.watch import SUBSCRIPTIONS

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
BROKEN = Retry("InternalError", 'failed calling webhook "jobs.policy": 500 Internal Server Error')
HEALTHY = "team-b"
LIMIT = SUBSCRIPTIONS[0].max_in_flight


@contextmanager
def broken_webhook(harness: TriggerHarness, verb: Verb, resource: Resource) -> Iterator[list[Key]]:
    """The webhook of namespace `default` answers 500."""
    asked: list[Key] = []

    def fail(called: Verb, of: Resource, key: Key) -> None:
        if (called, of, key.namespace) == (verb, resource, "default"):
            asked.append(key)
            raise BROKEN

    with harness.intercepted(fail):
        yield asked


async def with_two_teams(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    await harness.apply(make_trigger("warm", HEALTHY))


async def publish_many(harness: TriggerHarness, count: int, prefix: str = "e") -> None:
    await harness.publish(
        *(harness.make_ready(f"{prefix}-{n}", name=f"set-{prefix}-{n}") for n in range(count))
    )


async def events_with_jobs(harness: TriggerHarness, namespace: str = "default") -> Counter[str]:
    return Counter(event_of(job) for job in await harness.objects(SAMPLE_JOBS, namespace))


async def wait_out(harness: TriggerHarness, seconds: float = 3 * MESSAGE_RETRY_TIMEOUT_SECONDS) -> None:
    for _ in range(int(seconds)):
        await harness.advance(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "resource"), [("create", SAMPLE_JOBS), ("patch-status", TRIGGERS)], ids=["jobs", "status"]
)
async def test_a_namespace_whose_webhook_answers_500_holds_up_no_other(
    harness: TriggerHarness, verb: Verb, resource: Resource
) -> None:
    await with_two_teams(harness)
    many = 5 * LIMIT
    with broken_webhook(harness, verb, resource):
        await publish_many(harness, many)
        await harness.publish(harness.make_ready("theirs", namespace=HEALTHY))
        assert await events_with_jobs(harness, HEALTHY) == {"theirs": 1}
        await wait_out(harness)
    assert harness.bus.stored("PW_DLQ") == []
    await wait_out(harness, 200)
    assert await events_with_jobs(harness) == {f"e-{n}": 1 for n in range(many)}
    assert harness.jobs_created() == many + 1
    status = await harness.status_of()
    assert (status["fired"], status["events"], "deferred" in status) == (many, many, False)
    ids = [e.id for e in harness.published if e.subject.split(".")[-2] == "default"]
    assert len(ids) == len(set(ids)) == many


async def test_the_status_tells_how_many_from_when_why_and_what_to_do(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    first = harness.clock.now()
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        await harness.publish_ready("e-0")
        await harness.clock.advance(1)
        await publish_many(harness, 40, "m")
        await wait_out(harness)
        deferred = (await harness.status_of())["deferred"]
        assert (deferred["events"], deferred["reason"], deferred["stuck"]) == (41, "FailedCreate", True)
        assert "default/warm-" in deferred["message"]
        assert 'webhook "jobs.policy"' in deferred["message"]
        assert len(deferred["ids"]) == 16
        times = [datetime.fromisoformat(deferred[name]) for name in ("oldest", "newest")]
        assert times == [first, first + timedelta(seconds=1)]
        blocked = await harness.condition_of("Blocked")
        assert (blocked["status"], blocked["reason"]) == ("True", "EventsDeferred")
        assert deferred["message"] in blocked["message"]
        assert "events.paddlepaddle.org/retry" in blocked["message"]
        assert (await harness.status_of())["reason"] == "EventsDeferred"
        # From the next minute on the newest event is tried too, and may be the one that is named.
        await wait_out(harness, 70)
        writes = harness.status_writes()
        await wait_out(harness, 200)
        assert harness.status_writes() == writes, "a status that says the same is not written again"
    await wait_out(harness, 70)
    assert (await harness.condition_of("Blocked"))["reason"] == "Recovered"
    assert ("Warning", "EventsDeferred") in await harness.event_reasons()


async def test_a_short_fault_defers_nothing(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        await harness.publish_ready("e-1")
        await wait_out(harness, MESSAGE_RETRY_TIMEOUT_SECONDS / 2)
    await wait_out(harness, MESSAGE_RETRY_TIMEOUT_SECONDS)
    assert await events_with_jobs(harness) == {"e-1": 1}
    assert "EventsDeferred" not in {reason for _, reason in await harness.event_reasons()}


async def test_while_nothing_can_be_created_few_are_tried_and_back_off(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    with broken_webhook(harness, "create", SAMPLE_JOBS) as asked:
        await publish_many(harness, 100)
        await wait_out(harness)
        asked.clear()
        await publish_many(harness, 100, "more")
        await wait_out(harness, 240)
        assert (await harness.status_of())["deferred"]["events"] == 200
        assert len(asked) <= 2 * 8 * PROBES, "eight tries within five minutes, then others"
    await wait_out(harness, 70)
    assert harness.jobs_created() == 200


async def test_whoever_mended_the_cause_has_all_tried_at_once(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        await publish_many(harness, 10)
        await wait_out(harness, 100)
    await harness.patch(WARM, {"metadata": {"annotations": {names.ANNOTATION_RETRY: "1"}}})
    await harness.drain_queue()
    await harness.advance(0)
    assert harness.jobs_created() == 10


async def test_one_event_that_fails_defers_itself_alone(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    uid = (await harness.get(WARM))["metadata"]["uid"]
    bad = names.child_name("warm", uid, "e-0")
    with harness.failing(BROKEN, "create", SAMPLE_JOBS, name=bad):
        await publish_many(harness, 3)
        await wait_out(harness)
        assert (await harness.status_of())["deferred"]["ids"] == ["e-0"]
        await publish_many(harness, 20, "later")
        await wait_out(harness, 70)
        assert harness.jobs_created() == 22
    await wait_out(harness, 70)
    assert harness.jobs_created() == 23
    assert "deferred" not in await harness.status_of()


@pytest.mark.parametrize("lost", ["status", "bucket", "acknowledgement"])
async def test_killed_between_two_steps_of_deferring_nothing_is_lost_or_doubled(
    open_harness: OpenHarness, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    async with open_harness() as harness:
        await harness.apply(make_trigger())
        with broken_webhook(harness, "create", SAMPLE_JOBS):
            with killed_at(harness, monkeypatch, lost):
                await publish_many(harness, 20)
                await wait_out(harness, 5)
                await harness.restart()
            await wait_out(harness)
        await wait_out(harness, 100)
        assert await events_with_jobs(harness) == {f"e-{n}": 1 for n in range(20)}
        assert harness.jobs_created() == 20
        status = await harness.status_of()
        assert (status["fired"], status["events"]) == (20, 20)
        assert len(harness.facts()) == 20


@contextmanager
def killed_at(harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch, step: str) -> Iterator[None]:
    """What follows this step does not happen."""
    update, create = MemoryKeyValue.update, MemoryKeyValue.create

    async def no_update(self: MemoryKeyValue, key: str, value: bytes, revision: int) -> int:
        if not key.startswith("deferred."):
            return await update(self, key, value, revision)
        if step == "acknowledgement":
            await update(self, key, value, revision)
        raise Retry("Killed")

    async def no_create(self: MemoryKeyValue, key: str, value: bytes) -> int:
        if not key.startswith("deferred."):
            return await create(self, key, value)
        if step == "acknowledgement":
            await create(self, key, value)
        raise Retry("Killed")

    if step == "status":
        with harness.failing(Unavailable("Killed"), "patch-status", TRIGGERS):
            yield
        return
    with monkeypatch.context() as patch:
        patch.setattr(MemoryKeyValue, "update", no_update)
        patch.setattr(MemoryKeyValue, "create", no_create)
        yield


async def test_killed_while_deferred_events_are_handled_none_is_doubled(
    open_harness: OpenHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_harness() as harness:
        await harness.apply(make_trigger(successfulJobsHistoryLimit=0))
        with broken_webhook(harness, "create", SAMPLE_JOBS):
            await publish_many(harness, 20)
            await wait_out(harness)
        with killed_at(harness, monkeypatch, "bucket"):
            await wait_out(harness, 70)
            assert harness.jobs_created() == 20
            await harness.restart()
        for job in await harness.sample_jobs():
            await harness.end(job)
        await wait_out(harness, 70)
        assert harness.jobs_created() == 20
        assert (await harness.status_of())["fired"] == 20


async def test_events_beyond_one_entry_have_jobs_of_their_own(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST", 6)
    await harness.apply(make_trigger())
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        for batch in range(4):
            await publish_many(harness, 10, f"b{batch}")
            await wait_out(harness, 15)
        status = await harness.status_of()
        assert status["deferred"]["events"] == 40
        assert datetime.fromisoformat(status["deferred"]["oldest"]) == datetime.fromisoformat(
            status["deferred"]["newest"]
        ) - timedelta(seconds=45)
    await wait_out(harness, 200)
    assert await events_with_jobs(harness) == {f"b{b}-{n}": 1 for b in range(4) for n in range(10)}
    status = await harness.status_of()
    assert (status["events"], status["fired"], "deferred" in status) == (40, 40, False)
    [entry] = await harness.bus.key_value("pw_trigger_deferred").entries("deferred.>")
    assert orjson.loads(entry.value or b"{}")["events"] == []


async def test_events_that_are_not_the_triggers_are_never_deferred(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST", 6)
    when = {"objectStore": {"source": "images", "bucket": "images", "prefix": "train/"}}
    await harness.apply(make_store_trigger("warm", when=when))
    with broken_webhook(harness, "patch-status", TRIGGERS):
        await harness.notify(*(f"train/{n}" for n in range(20)), *(f"private/{n}" for n in range(20)))
        await wait_out(harness)
        stored = await harness.bus.key_value("pw_trigger_deferred").entries("deferred.>")
        assert b"train/" in b"".join(entry.value or b"" for entry in stored)
        assert all(b"private/" not in (entry.value or b"") for entry in stored)
    await wait_out(harness, 200)
    assert harness.jobs_created() == 20
    status = await harness.status_of()
    assert (status["events"], status["fired"], "waiting" in status) == (20, 20, False)


async def test_events_of_its_own_work_start_nothing_though_they_were_deferred(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST", 4)
    await harness.apply(make_trigger(when={"fact": {"type": SAMPLE_JOB_SUCCEEDED}}))
    job = await harness.cluster.create(
        SAMPLE_JOBS, {"metadata": {"namespace": "default", "name": "somebodys"}, "spec": {}}
    )
    await harness.publish(make_job_succeeded("first", job, time=harness.clock.now()))
    child = next(job for job in await harness.sample_jobs() if job["metadata"]["name"] != "somebodys")
    with broken_webhook(harness, "patch-status", TRIGGERS):
        own = (make_job_succeeded(f"own-{n}", child, time=harness.clock.now()) for n in range(12))
        await harness.publish(*own)
        await wait_out(harness)
    await wait_out(harness, 100)
    assert len(await harness.sample_jobs()) == 2
    assert (await harness.status_of())["skipped"] == 12


@pytest.mark.parametrize("char", ["\x01", '"', "k"])
async def test_keys_of_any_characters_can_be_deferred(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch, char: str
) -> None:
    monkeypatch.setattr(pages, "MOST_BYTES", 24 * 1024)
    largest = 0
    update = MemoryKeyValue.update

    async def limited(self: MemoryKeyValue, key: str, value: bytes, revision: int) -> int:
        nonlocal largest
        largest = max(largest, len(value))
        return await update(self, key, value, revision)

    monkeypatch.setattr(MemoryKeyValue, "update", limited)
    await harness.apply(make_store_trigger("warm"))
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        for batch in range(3):
            await harness.notify(*(f"{batch}-{n:04}" + char * 1000 for n in range(10)))
            await wait_out(harness, 12)
        assert (await harness.status_of())["deferred"]["events"] == 30
    await wait_out(harness, 200)
    assert harness.jobs_created() == 30
    assert largest <= 26 * 1024


async def test_what_cannot_be_deferred_waits_on_the_bus(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST", 4)
    monkeypatch.setattr(pages, "MOST_PAGES", 1)
    await harness.apply(make_trigger())
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        await publish_many(harness, 20)
        await wait_out(harness)
    await wait_out(harness, 200)
    assert await events_with_jobs(harness) == {f"e-{n}": 1 for n in range(20)}


async def test_an_entry_that_the_bus_refuses_loses_nothing(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: MemoryKeyValue, key: str, value: bytes) -> int:
        if key.startswith("deferred."):
            raise Permanent("TooLarge", "at most 1 MiB")
        return await create(self, key, value)

    create = MemoryKeyValue.create
    await harness.apply(make_trigger())
    with monkeypatch.context() as patch:
        patch.setattr(MemoryKeyValue, "create", refuse)
        with broken_webhook(harness, "create", SAMPLE_JOBS):
            await publish_many(harness, 10)
            await wait_out(harness)
            await publish_many(harness, 10, "later")
        await wait_out(harness, 100)
        assert harness.jobs_created() == 20


async def test_while_suspended_deferred_events_wait_and_new_ones_are_skipped(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        await publish_many(harness, 6)
        await wait_out(harness)
        await harness.change({"suspend": True})
    await publish_many(harness, 3, "skipped")
    await wait_out(harness, 100)
    assert harness.jobs_created() == 0
    status = await harness.status_of()
    assert (status["skipped"], status["deferred"]["events"]) == (3, 6)
    await harness.change({"suspend": False})
    await wait_out(harness, 10)
    assert harness.jobs_created() == 6


async def test_a_spec_that_gathers_now_takes_the_deferred_events_as_one(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    with broken_webhook(harness, "create", SAMPLE_JOBS):
        await publish_many(harness, 6)
        await wait_out(harness)
    await harness.change({"batch": {"quietSeconds": 1}})
    await wait_out(harness, 10)
    assert [events_of(job) for job in await harness.sample_jobs()] == ["6"]


async def test_an_absent_api_server_or_bus_defers_nothing(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    away = Unavailable("ApiServerUnreachable", "connection refused")
    with (
        harness.failing(away, "create", SAMPLE_JOBS),
        harness.failing(away, "patch-status", TRIGGERS),
        harness.failing(away, "get", TRIGGERS),
    ):
        await publish_many(harness, 10)
        await wait_out(harness)
    bucket = harness.bus.key_value("pw_trigger_deferred")
    assert await bucket.entries("deferred.>") == []
    await wait_out(harness, 70)
    assert harness.jobs_created() == 10


async def test_a_conflict_defers_nothing_unless_it_stays(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    bucket = harness.bus.key_value("pw_trigger_deferred")
    with harness.failing(Conflict("modified"), "patch-status", TRIGGERS):
        await publish_many(harness, 10)
        await wait_out(harness, 2)
        assert await bucket.entries("deferred.>") == []
        await wait_out(harness, 4 * MESSAGE_RETRY_TIMEOUT_SECONDS)
        [entry] = await bucket.entries("deferred.>")
    assert len(orjson.loads(entry.value or b"{}")["events"]) == 10
    await wait_out(harness, 100)
    assert harness.jobs_created() == 10
    assert (await harness.status_of())["fired"] == 10


def occurrence(number: int, **event: object) -> Occurrence:
    return Occurrence(StatusEvent(id=f"e-{number}", time=NOW + timedelta(seconds=number), **event))


def test_a_change_applied_twice_changes_once() -> None:
    events = tuple(occurrence(n) for n in range(6))
    change = Change(events[2:], frozenset({"e-1"}))
    once = changed(Deferred((occurrence(1),)), change)
    assert changed(once, change) == once
    assert once.events == events[2:]


def test_an_entry_and_its_pages_are_bounded_by_events_and_by_bytes() -> None:
    longest = {
        "type": "x" * 60,
        "store_source": "s" * 63,
        "store_bucket": "b" * 255,
        "store_key": "\x01" * 1024,
    }
    for events in (
        tuple(occurrence(n) for n in range(2000)),
        tuple(occurrence(n, **longest) for n in range(600)),
    ):
        kept, beyond = pages.split(Deferred(events))
        assert (*(o for page in beyond for o in page), *kept.events) == events
        references = tuple(pages.make_page("0" * 32, events) for _ in range(pages.MOST_PAGES))
        assert len(pages.write(replace(kept, pages=references), NOW)) < 960 * 1024
        assert all(len(page) <= pages.MOST // 2 for page in beyond)
        assert all(len(pages.write_page(page)) < 480 * 1024 for page in beyond)
        assert pages.read(pages.write(kept, NOW)) == kept
    status = TriggerStatus(deferred=StatusDeferred(message="m" * MESSAGE_LIMIT, ids=("i" * 200,) * 16))
    assert len(orjson.dumps(status.render())) < 16 * 1024


async def test_replicas_write_pages_at_once_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST", 8)
    clock, bus = ManualClock(), MemoryBus()
    replicas = [Memory(bus, clock) for _ in range(4)]
    done: set[str] = set()

    async def work(number: int) -> None:
        for n in range(10):
            await replicas[number].change_deferred("t", Change((occurrence(100 * number + n),)))
            found = await replicas[number].deferred("t", is_sure=True)
            ended = frozenset(o.id for o in found.events[:1])
            await replicas[number].change_deferred("t", Change(ended=ended))
            done.update(ended)

    await asyncio.gather(*(work(number) for number in range(4)))
    while (found := await replicas[0].deferred("t", is_sure=True)).count:
        done.update(o.id for o in found.events)
        await replicas[0].change_deferred("t", Change(ended=frozenset(o.id for o in found.events)))
    assert done == {f"e-{100 * number + n}" for number in range(4) for n in range(10)}
    assert len(await bus.key_value("pw_trigger_deferred").entries("deferred.>")) == 1


def test_the_same_events_are_tried_for_a_while_and_then_others() -> None:
    deferred = Deferred(tuple(occurrence(n) for n in range(100)))
    stuck = TriggerStatus(deferred=StatusDeferred(events=100, stuck=True))
    first = to_try(deferred, stuck, NOW)
    assert len(first) == PROBES
    assert to_try(deferred, stuck, NOW + timedelta(seconds=50)) == first
    tried = {o.id for n in range(25) for o in to_try(deferred, stuck, NOW + n * timedelta(seconds=300))}
    assert len(tried) == 100
    assert len(to_try(deferred, TriggerStatus(), NOW)) == AT_ONCE
    assert len(to_try(Deferred(deferred.events[:3]), stuck, NOW)) == 3


def test_the_newest_is_tried_as_well_one_each_minute() -> None:
    """It may be the first that does not fail; but a webhook that hangs must not cost a try for each event."""
    stuck = TriggerStatus(deferred=StatusDeferred(events=100, stuck=True))
    deferred = Deferred(tuple(occurrence(n) for n in range(100)))
    tried = [
        to_try(deferred, stuck, NOW + timedelta(seconds=seconds))[-1].id for seconds in (60, 70, 119, 120)
    ]
    assert tried == ["e-59", "e-59", "e-59", "e-99"]


async def test_events_that_always_fail_do_not_hold_up_a_good_one_for_long(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    uid = (await harness.get(WARM))["metadata"]["uid"]
    bad = {names.child_name("warm", uid, f"e-{n}") for n in range(30)}

    def fail(called: Verb, of: Resource, key: Key) -> None:
        if called == "create" and key.name in bad:
            raise BROKEN

    with harness.intercepted(fail):
        await publish_many(harness, 30)
        await wait_out(harness, 300)
        await harness.publish_ready("good")
        await wait_out(harness, 125)
        assert await events_with_jobs(harness) == {"good": 1}


async def test_a_read_that_fails_says_nothing_about_creations(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger(when={"fact": {"type": SAMPLE_JOB_SUCCEEDED}}))
    jobs = [{"metadata": {"namespace": "default", "name": f"job-{n}"}, "spec": {}} for n in range(6)]
    for job in jobs:
        created = await harness.cluster.create(SAMPLE_JOBS, job)
        job["metadata"] = created["metadata"]
    with harness.failing(BROKEN, "get", SAMPLE_JOBS):
        for n, job in enumerate(jobs):
            await harness.publish(make_job_succeeded(f"e-{n}", job, time=harness.clock.now()))
        await wait_out(harness)
        deferred = (await harness.status_of())["deferred"]
        assert (deferred["events"], deferred["reason"], deferred["stuck"]) == (6, "FailedGet", False)
    await wait_out(harness, 70)
    assert "deferred" not in await harness.status_of()


async def test_a_namespace_holds_up_few_messages_however_many_triggers_it_has() -> None:
    clock = ManualClock()
    inbox = Inbox(lambda _: None, clock)
    waiting = 0
    keys = [Key("team-a", f"t-{n}") for n in range(20)]
    offers = [
        asyncio.ensure_future(inbox.offer(key, occurrence(100 * k + n)))
        for k, key in enumerate(keys)
        for n in range(6)
    ]
    await asyncio.sleep(0)
    for key in keys:
        items = inbox.pending(key)
        spent = inbox.spent(key)
        assert len(items) - len(spent) <= OF_TRIGGER
        patient = {o.id for o in items.values()} - spent
        inbox.hold(key, items, patient)
        waiting += len(patient)
    assert waiting == OF_NAMESPACE
    assert len(inbox.spent(Key("team-b", "t"))) == 0
    await clock.advance(MESSAGE_RETRY_TIMEOUT_SECONDS)
    assert all(len(inbox.spent(key)) == len(inbox.pending(key)) for key in keys)
    for offer in offers:
        offer.cancel()
    await asyncio.gather(*offers, return_exceptions=True)


async def test_many_failing_namespaces_leave_places_to_others(harness: TriggerHarness) -> None:
    broken = [f"bad-{n}" for n in range(8)]
    for namespace in broken:
        await harness.apply(make_trigger("t", namespace))
    await harness.apply(make_trigger("warm", HEALTHY))

    def fail(called: Verb, of: Resource, key: Key) -> None:
        if (called, of) == ("patch-status", TRIGGERS) and key.namespace in broken:
            raise BROKEN

    async def fill(batch: str) -> None:
        for namespace in broken:
            for n in range(4):
                name = f"{namespace}-{batch}-{n}"
                await harness.bus.publish(harness.make_ready(name, name=name, namespace=namespace))
        await harness.publish(harness.make_ready(batch, name=batch, namespace=HEALTHY))

    with harness.intercepted(fail):
        await fill("first")
        assert await events_with_jobs(harness, HEALTHY) == {"first": 1}
        await wait_out(harness)
        bucket = harness.bus.key_value("pw_trigger_deferred")
        before = {
            e.key: len(orjson.loads(e.value or b"{}")["events"]) for e in await bucket.entries("deferred.>")
        }
        assert sorted(before.values()) == [4] * 8
        await fill("second")
        assert await events_with_jobs(harness, HEALTHY) == {"first": 1, "second": 1}
        after = {
            e.key: len(orjson.loads(e.value or b"{}")["events"]) for e in await bucket.entries("deferred.>")
        }
        assert sorted(after.values()) == [8] * 8, "a trigger whose passes fail waits no second time"
    await wait_out(harness, 100)
    for namespace in broken:
        assert sum((await events_with_jobs(harness, namespace)).values()) == 8


async def test_all_namespaces_together_hold_up_half_of_the_messages() -> None:
    inbox = Inbox(lambda _: None, ManualClock())
    keys = [Key(f"team-{n}", "t") for n in range(10)]
    events = [(key, occurrence(100 * k + n)) for k, key in enumerate(keys) for n in range(6)]
    offers = [asyncio.ensure_future(inbox.offer(key, event)) for key, event in events]
    await asyncio.sleep(0)
    waiting = 0
    for key in keys:
        items = inbox.pending(key)
        patient = {o.id for o in items.values()} - inbox.spent(key)
        inbox.hold(key, items, patient)
        waiting += len(patient)
    assert waiting == OF_ALL
    for offer in offers:
        offer.cancel()
    await asyncio.gather(*offers, return_exceptions=True)


async def test_deferred_events_are_written_again_now_and_then() -> None:
    """Or others' marks would push them out of a full bucket."""
    clock, bus = ManualClock(), MemoryBus()
    memory, bucket = Memory(bus, clock), bus.key_value("pw_trigger_deferred")
    await memory.change_deferred("t", Change((occurrence(1),)))
    revisions = []
    for _ in range(4):
        assert (await memory.deferred("t", is_sure=True)).events == (occurrence(1),)
        revisions.append((await bucket.get("deferred.t")).revision)
        await clock.advance(MARK_REFRESH_INTERVAL_SECONDS * 0.6)
    assert revisions == [1, 1, 2, 2]


async def test_what_another_replica_deferred_is_found_although_no_status_tells() -> None:
    clock, bus = ManualClock(), MemoryBus()
    one, other = Memory(bus, clock), Memory(bus, clock)
    assert (await one.deferred("t")).count == 0
    await other.change_deferred("t", Change((occurrence(1),)))
    await clock.advance(DEFERRED_CHECK_INTERVAL_SECONDS)
    assert (await one.deferred("t")).count == 1


async def test_a_change_made_while_there_is_nothing_to_read_yet_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = Memory(MemoryBus(), ManualClock())
    get = MemoryKeyValue.get

    async def slow(self: MemoryKeyValue, key: str) -> Entry:
        if self._bucket != "pw_trigger_deferred":
            return await get(self, key)
        monkeypatch.setattr(MemoryKeyValue, "get", get)
        try:
            return await get(self, key)
        finally:
            await memory.change_deferred("t", Change((occurrence(1),)))

    monkeypatch.setattr(MemoryKeyValue, "get", slow)
    assert (await memory.deferred("t")).count == 0
    assert (await memory.deferred("t")).count == 1


async def test_replicas_defer_events_of_one_trigger_at_once_and_none_is_lost() -> None:
    clock, bus = ManualClock(), MemoryBus()
    replicas = [Memory(bus, clock) for _ in range(4)]
    assert await replicas[0].deferred("t") == Deferred()
    changes = (Change((occurrence(n),)) for n in range(40))
    await asyncio.gather(*(replicas[n % 4].change_deferred("t", change) for n, change in enumerate(changes)))
    assert (await replicas[0].deferred("t")).count == 40


async def test_events_that_the_last_release_has_handled_are_known() -> None:
    """It has an entry for each event."""
    bus, trigger = MemoryBus(), Key("team-a", "t")
    await bus.key_value("pw_triggers").put("event.uid.digest", b"{}")
    memory = Memory(bus, ManualClock())
    assert await memory.knows(trigger, "uid", "digest")
    assert not await memory.knows(trigger, "uid", "other")


async def test_replicas_that_mark_events_of_one_entry_at_once_lose_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(marks, "PREFIX_LENGTH", 1)
    bus, trigger = MemoryBus(), Key("team-a", "t")
    replicas = [Memory(bus, SystemClock()) for _ in range(4)]
    digests = [f"{number:016}" for number in range(40)]
    await asyncio.gather(
        *(replicas[n % 4].remember(trigger, digests[n : n + 2]) for n in range(len(digests)))
    )
    assert all([await replicas[0].knows(trigger, "uid", digest) for digest in digests])


async def test_an_entry_that_others_write_is_not_written_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pause grows to a second, and the mark is written when the others rest."""
    clock, bus = ManualClock(), MemoryBus()
    memory, trigger = Memory(bus, clock), Key("team-a", "t")
    tries = 0
    create = MemoryKeyValue.create

    async def contended(self: MemoryKeyValue, key: str, value: bytes) -> int:
        nonlocal tries
        tries += 1
        if tries < 20:
            raise AlreadyExists(key)
        return await create(self, key, value)

    monkeypatch.setattr(MemoryKeyValue, "create", contended)
    writing = asyncio.create_task(memory.remember(trigger, ["a" * 16]))
    for _ in range(50):
        await asyncio.sleep(0)
    assert tries == 1
    while not writing.done():
        await clock.advance(WRITE_RETRY_MAX_INTERVAL_SECONDS / 2)
    assert tries == 20
    assert 5 < clock.monotonic() < 20 * 2 * WRITE_RETRY_MAX_INTERVAL_SECONDS


async def test_marks_that_make_room_too_early_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "MOST", 4)
    monkeypatch.setattr(marks, "PREFIX_LENGTH", 1)
    clock, counts = ManualClock(), list[int]()
    memory, trigger = Memory(MemoryBus(), clock, counts.append), Key("team-a", "t")
    await memory.remember(trigger, [f"a{number}" for number in range(4)])
    await clock.advance(14 * 86400)
    await memory.remember(trigger, ["a5", "a6"])
    assert counts == []
    await memory.remember(trigger, ["a7", "a8", "a9"])
    assert counts == [1]
