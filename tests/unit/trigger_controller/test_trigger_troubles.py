"""What fails hides nothing else: other events, the status, other triggers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.unit.trigger_controller.conftest import WARM, TriggerHarness, event_of, events_of

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Conflict, Permanent, Retry
from paddlewheel.kube.ports import SAMPLE_JOBS, TRIGGERS, Resource
from paddlewheel.testkit.memory_bus.kv import MemoryKeyValue
from paddlewheel.testkit.memory_cluster import Verb
from paddlewheel.testkit.triggers import SAMPLE_JOB_SUCCEEDED, make_job_succeeded, make_trigger
from trigger_controller import reconciler
from trigger_controller.domain import names
from trigger_controller.timing import RELEASE_RETRY_INTERVAL_SECONDS


def server_error() -> Retry:
    return Retry("ServerError", "500: etcd is busy")


@contextmanager
def forgetful(monkeypatch: pytest.MonkeyPatch, *calls: str, keys: str = "") -> Iterator[None]:
    """These calls for keys that begin so fail within the block; facts go on."""

    def failing(call: str) -> Callable[..., Awaitable[object]]:
        real = getattr(MemoryKeyValue, call)

        async def fail(bucket: MemoryKeyValue, key: str, *rest: object) -> object:
            if key.startswith(keys):
                raise Retry("KeyValueUnavailable", "no leader")
            return await real(bucket, key, *rest)

        return fail

    with monkeypatch.context() as patch:
        for call in calls:
            patch.setattr(MemoryKeyValue, call, failing(call))
        yield


async def child_name(harness: TriggerHarness, event_id: str) -> str:
    uid = (await harness.get(WARM))["metadata"]["uid"]
    return names.child_name("warm", uid, event_id)


async def test_a_server_error_on_one_creation_keeps_neither_the_others_nor_the_status(
    harness: TriggerHarness,
) -> None:
    await harness.apply(make_trigger())
    failing = await child_name(harness, "e-2")
    with harness.failing(server_error(), "create", SAMPLE_JOBS, name=failing):
        await harness.publish_ready("e-1", "e-2", "e-3")
        assert sorted(event_of(j) for j in await harness.sample_jobs()) == ["e-1", "e-3"]
        status = await harness.status_of()
        assert (status["fired"], status["events"]) == (2, 2)
        blocked = await harness.condition_of("Blocked")
        assert (blocked["status"], blocked["reason"]) == ("True", "FailedCreate")
        assert failing in blocked["message"]
        assert harness.facts() == ["TriggerFired"] * 2
    await harness.advance(60)
    assert sorted(event_of(j) for j in await harness.sample_jobs()) == ["e-1", "e-2", "e-3"]
    status = await harness.status_of()
    assert (status["fired"], status["events"]) == (3, 3)
    assert (await harness.condition_of("Blocked"))["status"] == "False"
    assert harness.facts() == ["TriggerFired"] * 3
    assert harness.bus.stored("PW_DLQ") == []
    assert ("Warning", "FailedCreate") in await harness.event_reasons()


async def test_a_failing_creation_backs_off_however_many_events_come(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    failing = await child_name(harness, "e-0")
    with harness.failing(server_error(), "create", SAMPLE_JOBS, name=failing) as tries:
        for number in range(20):
            await harness.publish(harness.make_ready(f"e-{number}", name=f"set-{number}"))
        assert len(tries) == 1
        for _ in range(60):
            await harness.advance(1)
    assert len(tries) <= 7
    assert len(await harness.sample_jobs()) == 19


async def test_an_answer_that_got_lost_doubles_nothing(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    created = harness.cluster.create

    async def lose_answer(resource: Resource, obj: dict[str, object]) -> dict[str, object]:
        await created(resource, obj)
        raise Retry("Timeout")

    harness.cluster.create = lose_answer  # type: ignore[method-assign]
    await harness.publish_ready("e-1")
    harness.cluster.create = created  # type: ignore[method-assign]
    await harness.advance(5)
    assert harness.jobs_created() == 1
    assert (await harness.status_of())["fired"] == 1


async def test_a_batch_whose_creation_fails_stays_whole(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger(batch={"quietSeconds": 5}))
    await harness.publish_ready("e-1", "e-2")
    with harness.failing(server_error(), "create", SAMPLE_JOBS) as tries:
        await harness.advance(6)
        assert len(tries) == 1
        assert (await harness.status_of())["firing"]["events"] == 2
        await harness.publish_ready("e-3")
        assert len(tries) == 1
    await harness.advance(60)
    assert sorted(events_of(j) for j in await harness.sample_jobs()) == ["1", "2"]


async def test_a_failing_deletion_keeps_nothing_from_firing(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger(successfulJobsHistoryLimit=0))
    await harness.publish_ready("e-1")
    [done] = await harness.sample_jobs()
    refusal = Permanent("Forbidden", "may not delete")
    with harness.failing(refusal, "delete", SAMPLE_JOBS):
        await harness.end(done)
        await harness.publish_ready("e-2")
        assert (await harness.status_of())["fired"] == 2
        assert (await harness.condition_of("Blocked"))["reason"] == "FailedDelete"
        assert (await harness.condition_of("Ready"))["status"] == "True"
    await harness.advance(60)
    assert [event_of(j) for j in await harness.sample_jobs()] == ["e-2"]


async def test_an_object_that_cannot_be_read_keeps_only_its_own_event(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger(when={"fact": {"type": SAMPLE_JOB_SUCCEEDED}}))
    jobs = {}
    for name in ("one", "two"):
        job = {"metadata": {"namespace": "default", "name": name}, "spec": {}}
        jobs[name] = await harness.cluster.create(SAMPLE_JOBS, job)
    now = harness.clock.now()
    with harness.failing(Permanent("Forbidden", "may not get"), "get", SAMPLE_JOBS, name="one"):
        await harness.publish(
            make_job_succeeded("s-1", jobs["one"], time=now), make_job_succeeded("s-2", jobs["two"], time=now)
        )
        assert (await harness.status_of())["events"] == 1
        assert (await harness.condition_of("Blocked"))["reason"] == "FailedGet"
        assert harness.bus.stored("PW_DLQ") == []
    await harness.advance(RELEASE_RETRY_INTERVAL_SECONDS)
    assert (await harness.status_of())["fired"] == 2
    assert (await harness.condition_of("Blocked"))["status"] == "False"


@pytest.mark.parametrize("policy", ["Forbid", "Replace"])
async def test_while_the_children_cannot_be_listed_events_are_gathered_and_nothing_fires(
    harness: TriggerHarness, policy: str
) -> None:
    await harness.apply(make_trigger(concurrencyPolicy=policy))
    with harness.failing(server_error(), "list", SAMPLE_JOBS):
        await harness.publish_ready("e-1")
        assert (await harness.status_of())["waiting"]["events"] == 1
        assert (await harness.condition_of("Blocked"))["reason"] == "FailedGet"
        assert harness.jobs_created() == 0
    await harness.advance(RELEASE_RETRY_INTERVAL_SECONDS)
    assert [event_of(j) for j in await harness.sample_jobs()] == ["e-1"]


async def test_events_wait_while_the_memory_cannot_be_read_and_the_rest_goes_on(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.apply(make_trigger(successfulJobsHistoryLimit=0))
    await harness.publish_ready("e-1")
    [done] = await harness.sample_jobs()
    with forgetful(monkeypatch, "get"):
        await harness.publish_ready("e-2")
        await harness.end(done)
        assert await harness.sample_jobs() == []
        status = await harness.status_of()
        assert (status["events"], status["active"]) == (1, 0)
        assert (await harness.condition_of("Blocked"))["reason"] == "BusUnavailable"
    await harness.advance(RELEASE_RETRY_INTERVAL_SECONDS)
    assert [event_of(j) for j in await harness.sample_jobs()] == ["e-2"]
    assert (await harness.condition_of("Blocked"))["status"] == "False"


async def test_a_message_is_kept_until_its_event_is_remembered(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.apply(make_trigger())
    event = harness.make_ready("e-1")
    with forgetful(monkeypatch, "put"):
        await harness.publish(event)
        assert len(await harness.sample_jobs()) == 1
        assert (await harness.status_of())["events"] == 0
        blocked = await harness.condition_of("Blocked")
        assert (blocked["status"], blocked["reason"]) == ("True", "BusUnavailable")
        await harness.restart()
    await harness.advance(RELEASE_RETRY_INTERVAL_SECONDS)
    assert (await harness.status_of())["fired"] == 1
    assert harness.jobs_created() == 1
    assert len(await harness.bus.key_value("pw_triggers").entries("marks.>")) == 1


async def test_a_skipped_event_is_remembered_before_its_message_goes(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.apply(make_trigger(suspend=True))
    with forgetful(monkeypatch, "create", "update", keys="marks."):
        await harness.publish_ready("e-1")
        assert (await harness.status_of())["skipped"] == 1
        assert list(harness.delays.values()) == [RELEASE_RETRY_INTERVAL_SECONDS]
    await harness.advance(RELEASE_RETRY_INTERVAL_SECONDS)
    assert len(await harness.bus.key_value("pw_triggers").entries("marks.>")) == 1
    assert (await harness.status_of())["events"] == 1


async def test_a_bug_becomes_a_condition_until_a_pass_succeeds(
    harness: TriggerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.apply(make_trigger())

    def fail(*_: object) -> None:
        raise TypeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(reconciler, "plan", fail)
        with pytest.raises(TypeError):
            await harness.reconcile(WARM)
        failed = await harness.condition_of("ReconcileFailed")
        assert (failed["status"], failed["reason"]) == ("True", "InternalError")
    await harness.reconcile(WARM)
    assert (await harness.condition_of("ReconcileFailed"))["status"] == "False"


async def test_a_refusal_of_many_words_neither_fills_the_status_nor_hides_the_remedy(
    harness: TriggerHarness,
) -> None:
    await harness.apply(make_trigger())
    refusal = Permanent("Forbidden", "policy says: " + "no " * 40_000)
    with harness.failing(refusal, "create", SAMPLE_JOBS):
        await harness.publish_ready("e-1")
    assert len(json.dumps(await harness.status_of())) < 4096
    messages = [(await harness.condition_of("Ready"))["message"]]
    messages += [event.message for event in await harness.kubernetes_events()]
    assert len(messages) == 2
    for message in messages:
        assert message.startswith("Forbidden: policy says: no ")
        assert message.endswith("change spec.create, the events wait")


async def test_a_cache_that_is_behind_creates_nothing(harness: TriggerHarness) -> None:
    """Another replica has dealt with the event, its job is gone, and the watch has not reported any of it."""
    await harness.apply(make_trigger())
    event = harness.make_ready("e-1")
    moved = False

    def move_on(verb: Verb, resource: Resource, key: Key) -> None:
        nonlocal moved
        if (verb, resource.plural) == ("get", "triggers") and not moved:
            moved = True
            stored = harness.cluster._objects[resource][key]
            stored["status"] = stored["status"] | {"recent": [names.digest(stored["metadata"]["uid"], "e-1")]}
            stored["metadata"]["resourceVersion"] = "1000000"

    with harness.intercepted(move_on):
        await harness.publish(event)
    assert moved
    assert await harness.sample_jobs() == []


async def test_events_that_waited_go_with_a_deleted_trigger(harness: TriggerHarness) -> None:
    await harness.apply(make_trigger())
    with (
        harness.failing(server_error(), "create", SAMPLE_JOBS),
        harness.failing(Conflict("the object has been modified"), "patch-status", TRIGGERS),
    ):
        await harness.publish_ready("e-1")
        await harness.delete(WARM)
        await harness.drain_queue()
    await harness.apply(make_trigger())
    # Facts about one object are delivered one after the other.
    await harness.publish_ready("e-2")
    assert [event_of(j) for j in await harness.sample_jobs()] == ["e-2"]
    assert (await harness.status_of())["events"] == 1
