"""Faults: conflicts, refusals, unreachable dependencies, bugs and crashes, and what must go on beside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from tests.unit.dataset_controller.conftest import JOB, RUNTIME, SET, DataHarness

from dataset_controller import reconciler
from paddlewheel.bus.ports import Entry
from paddlewheel.bus.streams import RUNS_BUCKET
from paddlewheel.contracts.generated.cache_v1 import RunPhase
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Conflict, Permanent, Retry, Unavailable
from paddlewheel.kube import ports
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS
from paddlewheel.testkit.memory_bus.kv import MemoryKeyValue
from paddlewheel.testkit.samplesets import make_sample_job, make_sample_set, make_secret

FACTS = ["SampleSetBound", "SampleSetMounted", "SampleSetSynced", "SampleSetReady"]
UNAVAILABLE = Retry("ServerError", "503 service unavailable")


async def test_a_fact_whose_status_write_conflicts_is_not_published(data: DataHarness) -> None:
    uid = await data.ready_set()
    await data.wait(5)
    await data.runtime.report(uid, 1, ailment="DatabaseUnreachable", ailment_message="no answer")
    with (
        data.failing(Conflict("modified"), "patch-status", ports.SAMPLE_SETS),
        pytest.raises(Conflict),
    ):
        await data.reconcile(SET)
    assert data.facts() == FACTS
    # It is ready again before the write succeeds: the bus never gets a fact that says otherwise.
    await data.runtime.report(uid, 1)
    await data.drive()
    await data.expect_phase("Ready")
    assert data.facts() == FACTS


async def test_a_jobs_end_whose_write_conflicts_is_not_published(data: DataHarness) -> None:
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.ready_set()
    await data.create_job(make_sample_job())
    [spec] = data.runtime.runs("warmup")
    await data.runtime.end(spec, RunPhase.SUCCEEDED)
    with (
        data.failing(Conflict("modified"), "patch-status", ports.SAMPLE_JOBS),
        pytest.raises(Conflict),
    ):
        await data.reconcile(JOB, ports.SAMPLE_JOBS)
    assert data.facts()[-1] == "SampleJobStarted"
    await data.drive()
    assert data.facts()[-1] == "SampleJobSucceeded"


async def test_every_fact_on_the_bus_was_recorded_before(data: DataHarness) -> None:
    unrecorded: list[str] = []
    publish = data.bus.publish

    async def checked(event: Any) -> None:
        name = event.type.rpartition(".")[2]
        resource, key = (ports.SAMPLE_SETS, SET) if name.startswith("SampleSet") else (ports.SAMPLE_JOBS, JOB)
        if name not in [fact for fact, _, _ in await data.announcements(key, resource)]:
            unrecorded.append(name)
        await publish(event)

    data.bus.publish = checked  # type: ignore[method-assign]
    await data.ready_set()
    await data.create_job(make_sample_job())
    await data.delete(JOB, ports.SAMPLE_JOBS)
    await data.delete(SET)
    await data.drive()
    assert data.facts()[-2:] == ["SampleJobDeleted", "SampleSetDeleted"]
    assert unrecorded == []


@pytest.mark.parametrize("error", [UNAVAILABLE, Permanent("Forbidden", "exceeded quota: services")])
async def test_one_childs_trouble_hides_no_other_and_backs_off(data: DataHarness, error: Exception) -> None:
    with data.failing(error, "create", ports.SERVICES) as tried:
        await data.start_set(partitions=2)
        await data.expect_phase("Ready")
        condition = await data.expect_condition("Reconciled", "FailedCreate")
        assert condition["status"] == "False"
        assert str(error).rpartition(": ")[2] in condition["message"]
        assert data.facts() == FACTS
        before = len(tried)
        for _ in range(10):
            await data.reconcile(SET)
        assert len(tried) == before
        await data.wait(120)
        # 1, 2, 4 ... 60 s, not once a second or with every change.
        assert len(tried) <= 9
    await data.wait(61)
    assert await data.exists(Key("default", "digits-runtime-service"), ports.SERVICES)
    await data.expect_condition("Reconciled", "Recovered")
    warnings = [e for e in await data.kubernetes_events() if e.reason == "FailedCreate"]
    assert len(warnings) == 1


async def test_a_node_that_cannot_be_labelled_hides_no_other(data: DataHarness) -> None:
    with data.failing(UNAVAILABLE, "patch", ports.NODES, name="node-0"):
        await data.start_set(partitions=2)
        assert await data.labels() == {"node-1": "1"}
        condition = await data.expect_condition("Reconciled", "FailedUpdate")
        assert "Node node-0" in condition["message"]
        await data.expect_phase("PartialReady")
    await data.wait(61)
    await data.expect_phase("Ready")


async def test_a_delete_that_fails_hides_no_other(data: DataHarness) -> None:
    await data.ready_set()
    with data.failing(UNAVAILABLE, "delete", ports.SERVICES):
        await data.delete(SET)
        await data.wait(5)
        assert await data.objects(ports.PERSISTENT_VOLUME_CLAIMS) == []
        await data.expect_condition("Reconciled", "FailedDelete")
        assert "SampleSetDeleted" not in data.facts()
    await data.wait(61)
    assert not await data.exists(SET)


@pytest.mark.parametrize("error", [UNAVAILABLE, Permanent("Forbidden", "pods is forbidden")])
async def test_users_that_cannot_be_listed_stop_the_deletion_and_are_shown(
    data: DataHarness, error: Retry | Permanent
) -> None:
    await data.ready_set()
    with data.failing(error, "list", ports.PODS) as tried:
        await data.delete(SET)
        await data.drain_queue()
        condition = await data.expect_condition("Reconciled", "FailedGet")
        assert f"{error.reason}: {error.message}" in condition["message"]
        before = len(tried)
        for _ in range(10):
            await data.reconcile(SET)
        assert len(tried) == before
        assert await data.exists(RUNTIME, ports.STATEFUL_SETS)
    await data.wait(70)
    assert not await data.exists(SET)


async def test_a_bug_in_a_plan_becomes_a_condition(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await data.ready_set()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("no partitions")

    with monkeypatch.context() as patched:
        patched.setattr(reconciler, "plan_set", broken)
        with pytest.raises(ZeroDivisionError):
            await data.reconcile(SET)
    condition = await data.expect_condition("ReconcileFailed", "InternalError")
    assert condition["status"] == "True"
    assert "ZeroDivisionError" in condition["message"]
    await data.reconcile(SET)
    assert (await data.condition(SET, "ReconcileFailed"))["status"] == "False"
    await data.expect_phase("Ready")


async def test_trouble_with_records_silences_no_fact(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(*_: object) -> None:
        raise Unavailable("BusTimeout", "no answer from the bucket")

    await data.ready_set()
    with monkeypatch.context() as patched:
        patched.setattr(MemoryKeyValue, "create", unreachable)
        await data.create_job(make_sample_job())
        await data.expect_job("Pending")
        # No time passes: a breaker that the outbox shared would still be open.
        data.kubernetes.unready.add("digits-runtime-0")
        await data.kubernetes.settle()
        await data.drive()
        assert data.facts()[-1] == "SampleSetDegraded"
        with pytest.raises(LookupError):
            await data.condition(JOB, "Reconciled", ports.SAMPLE_JOBS)
    data.kubernetes.unready.clear()
    await data.wait(16)
    await data.expect_job("Succeeded")


async def test_records_that_cannot_be_removed_hold_the_finalizer_but_not_the_fact(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await data.ready_set()
    await data.create_job(make_sample_job())

    async def unreachable(*_: object) -> None:
        raise Unavailable("BusTimeout", "no answer from the bucket")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryKeyValue, "entries", unreachable)
        await data.delete(JOB, ports.SAMPLE_JOBS)
        await data.wait(10)
        assert await data.exists(JOB, ports.SAMPLE_JOBS)
        assert data.facts()[-1] == "SampleJobDeleted"
    await data.wait(6)
    assert not await data.exists(JOB, ports.SAMPLE_JOBS)
    assert data.facts().count("SampleJobDeleted") == 1


async def test_a_record_that_the_bus_refuses_is_shown(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> None:
        raise Permanent("TooLarge", "1.2 MiB are more than a record may have")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryKeyValue, "create", refused)
        await data.start_set()
        await data.expect_phase("Syncing")
        condition = await data.expect_condition("Reconciled", "FailedCreate")
        assert "1.2 MiB" in condition["message"]
    await data.wait(61)
    await data.expect_phase("Ready")


async def test_a_refused_record_backs_off_and_its_condition_names_the_remedy(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[object] = []

    async def refused(*args: object) -> None:
        tries.append(args[1])
        raise Permanent("TooLarge", "1.2 MiB, the server takes 1 MiB")

    monkeypatch.setattr(MemoryKeyValue, "create", refused)
    await data.start_set()
    condition = await data.expect_condition("Reconciled", "FailedCreate")
    assert "max_payload" in condition["message"]
    before = len(tries)
    for _ in range(10):
        await data.reconcile(SET)
    assert len(tries) == before
    await data.wait(120)
    assert len(tries) <= before + 8


async def test_a_bucket_that_is_full_is_shown_and_one_that_is_silent_is_not(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[Exception] = [Unavailable("BusTimeout", "no answer from the bucket")]

    async def failing(*_: object) -> None:
        raise errors[-1]

    with monkeypatch.context() as patched:
        patched.setattr(MemoryKeyValue, "create", failing)
        await data.start_set()
        with pytest.raises(LookupError):
            await data.condition(SET, "Reconciled")
        errors.append(Retry("BusFull", "maximum bytes exceeded"))
        await data.wait(6)
        condition = await data.expect_condition("Reconciled", "FailedCreate")
        assert "maximum bytes exceeded" in condition["message"]
    await data.wait(5)
    await data.expect_phase("Ready")
    await data.expect_condition("Reconciled", "Recovered")


async def test_a_refusal_keeps_the_records_of_a_deleted_job_until_they_are_removed(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await data.ready_set()
    await data.create_job(make_sample_job())

    async def refused(*_: object) -> None:
        raise Retry("BusRefused", "permissions violation")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryKeyValue, "entries", refused)
        await data.delete(JOB, ports.SAMPLE_JOBS)
        await data.wait(5)
        await data.expect_condition("Reconciled", "FailedDelete", JOB, ports.SAMPLE_JOBS)
    await data.wait(8)
    assert not await data.exists(JOB, ports.SAMPLE_JOBS)


async def test_a_cancellation_that_the_bus_refuses_is_shown_on_the_job_being_deleted(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.ready_set()
    await data.create_job(make_sample_job())

    async def refused(*_: object) -> None:
        raise Permanent("TooLarge", "the server takes nothing")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryKeyValue, "create", refused)
        await data.delete(JOB, ports.SAMPLE_JOBS)
        await data.drain_queue()
        await data.expect_condition("Reconciled", "FailedCreate", JOB, ports.SAMPLE_JOBS)


async def test_without_the_bus_the_rest_goes_on_and_facts_come_later(data: DataHarness) -> None:
    with data.bus_down():
        await data.start_set()
        await data.expect_phase("Syncing")
        assert data.facts() == []
        assert await data.announcements() == [("SampleSetBound", 0, False), ("SampleSetMounted", 0, False)]
    await data.wait(6)
    await data.expect_phase("Ready")
    assert data.facts() == FACTS


async def test_after_a_start_nothing_that_may_have_writes_goes_before_the_bus_has_told_what_agents_reported(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = await data.ready_set()
    await data.runtime.report(uid, 1, staged_bytes=1 << 20)
    await data.delete(SET)
    await data.drive()
    answers, watch = asyncio.Event(), MemoryKeyValue.watch

    async def silent(bucket: MemoryKeyValue, pattern: str) -> AsyncGenerator[Entry | None, None]:
        await answers.wait()
        async for entry in watch(bucket, pattern):
            yield entry

    monkeypatch.setattr(MemoryKeyValue, "watch", silent)
    await data.restart()
    await data.wait(90)
    assert await data.exists(RUNTIME, ports.STATEFUL_SETS)
    assert data.runtime.runs("clear") == []
    assert "waits for the bus" in (await data.condition(SET, "Ready"))["message"]
    answers.set()
    await data.wait(10)
    assert "1.0 MiB on node node-0;" in (await data.condition(SET, "Ready"))["message"]
    await data.runtime.report(uid, 1)
    await data.wait(130)
    assert not await data.exists(SET)


async def test_a_crash_between_record_and_publish_loses_and_repeats_no_fact(data: DataHarness) -> None:
    with data.bus_down():
        await data.start_set(noSync=True)
        await data.expect_phase("Mount")
        await data.restart()
    await data.drive()
    await data.wait(6)
    assert data.facts() == FACTS[:2]
    assert len({event.id for event in data.published}) == 2


async def test_a_crash_between_publish_and_confirmation_repeats_no_fact(data: DataHarness) -> None:
    await data.ready_set()
    assert ("SampleSetReady", 0, False) in await data.announcements()
    await data.restart()
    await data.drive()
    await data.wait(CONFIRM_GRACE_SECONDS)
    assert ("SampleSetReady", 0, True) in await data.announcements()
    assert data.facts() == FACTS


async def test_a_crash_after_the_last_fact_of_a_deleted_set_repeats_nothing(data: DataHarness) -> None:
    await data.ready_set()
    with data.failing(UNAVAILABLE, "patch", ports.SAMPLE_SETS):
        await data.delete(SET)
        await data.drive()
        assert data.facts()[-1] == "SampleSetDeleted"
        assert await data.exists(SET)
        await data.restart()
    await data.drive()
    await data.wait(5)
    assert not await data.exists(SET)
    assert data.facts().count("SampleSetDeleted") == 1


async def test_a_restart_in_the_middle_repeats_nothing(data: DataHarness) -> None:
    data.runtime.script = {"sync": RunPhase.RUNNING}
    await data.start_set()
    await data.expect_phase("Syncing")
    [spec] = data.runtime.runs("sync")
    await data.restart()
    await data.runtime.end(spec, RunPhase.SUCCEEDED)
    await data.drive()
    await data.expect_phase("Ready")
    assert len(data.runtime.runs("sync")) == 1
    assert data.cluster.writes["create", "statefulsets"] == 1


async def test_the_finalizer_is_added_before_anything_is_created(data: DataHarness) -> None:
    await data.create(make_secret(), ports.SECRETS)
    with data.recorded_calls() as calls:
        await data.create(make_sample_set())
        await data.drive()
    writes = [
        (verb, plural) for verb, plural, name in calls if verb not in ("list", "get") and plural != "events"
    ]
    assert writes[:3] == [("create", "samplesets"), ("patch", "samplesets"), ("create", "services")]
    assert (await data.get(SET))["metadata"]["finalizers"] == ["paddlepaddle.org/sampleset-digits"]


async def test_a_bucket_lost_with_its_records_gets_them_back(data: DataHarness) -> None:
    data.runtime.script = {"sync": RunPhase.RUNNING}
    uid = await data.start_set()
    [first] = data.runtime.runs("sync")
    await data.bus.key_value(RUNS_BUCKET).delete(f"{uid}.{first.run_id}.spec")
    await data.wait(16)
    _, second = data.runtime.runs("sync")
    assert first.run_id == second.run_id


async def retried_warmup(data: DataHarness) -> tuple[str, str]:
    """Run ids of a warmup that has failed and of the retry that is due."""
    data.runtime.script = {"warmup": RunPhase.FAILED}
    await data.start_set(warmup={"paths": ["train"]})
    [first] = data.runtime.runs("warmup")
    data.runtime.script = {"warmup": RunPhase.SUCCEEDED}
    return first.run_id, (await data.get(SET))["metadata"]["uid"]


async def test_killed_before_a_warmups_retry_was_recorded_the_failure_is_not_lost(data: DataHarness) -> None:
    failed, uid = await retried_warmup(data)
    with data.failing(UNAVAILABLE, "patch-status", ports.SAMPLE_SETS):
        await data.advance(30)
        assert f"{uid}.{failed}.state" in await data.records()
        await data.restart()
    data.runtime.script = {}
    await data.drive()
    await data.wait(31)
    await data.expect_phase("Ready")
    # The run that failed is not requested a second time: its retry is another one.
    first, second = [spec.run_id for spec in data.runtime.runs("warmup")]
    assert first == failed != second


async def test_the_records_of_a_warmup_that_failed_go_once_its_retry_is_recorded(data: DataHarness) -> None:
    failed, _ = await retried_warmup(data)
    await data.wait(31)
    await data.expect_phase("Ready")
    assert not any(failed in key for key in await data.records())


async def test_killed_before_a_syncs_retry_was_recorded_nothing_is_lost(data: DataHarness) -> None:
    data.runtime.script = {"sync": RunPhase.FAILED}
    await data.start_set()
    await data.expect_phase("SyncFailed")
    data.runtime.script = {}
    with data.failing(UNAVAILABLE, "patch-status", ports.SAMPLE_SETS):
        await data.patch(SET, {"spec": {"source": {"uri": "bos://other.example.com/train"}}})
        await data.drive()
        await data.restart()
    condition = await data.expect_condition("Synced", "FilesFailed")
    assert condition["message"] == "the script says so"
    await data.drive()
    await data.expect_phase("Ready")
    first, second = [spec.run_id for spec in data.runtime.runs("sync")]
    assert first != second


async def test_killed_before_a_jobs_restart_was_recorded_its_failure_is_not_lost(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.FAILED}
    await data.create_job(make_sample_job())
    data.runtime.script = {}
    with data.failing(UNAVAILABLE, "patch-status", ports.SAMPLE_JOBS):
        await data.patch(JOB, {"spec": {"warmupOptions": {"threads": 7}}}, ports.SAMPLE_JOBS)
        await data.drive()
        await data.restart()
    await data.expect_condition("Complete", "FilesFailed", JOB, ports.SAMPLE_JOBS)
    await data.drive()
    await data.expect_job("Succeeded")
    first, second = [spec.run_id for spec in data.runtime.runs("warmup")]
    assert first != second


async def test_a_set_that_flaps_while_the_bus_is_away_has_a_bounded_outbox(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 16
    monkeypatch.setattr("paddlewheel.operator.domain.facts.PENDING_MAX", most)
    await data.ready_set()
    with data.bus_down():
        for _ in range(most):
            data.kubernetes.unready.add("digits-runtime-0")
            await data.drive()
            data.kubernetes.unready.clear()
            await data.drive()
        waiting = [fact for fact in await data.announcements() if not fact[2]]
        assert len(waiting) == most
    await data.wait(6)
    assert data.facts()[-2:] == ["SampleSetDegraded", "SampleSetReady"]
    assert data.published[-1].id.endswith(f"SampleSetReady/{most}")
    assert len(data.facts()) == len(FACTS) + most
