"""A SampleJob's life over fakes: waiting, running, failing, termination, deletion; and lost streams."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from tests.unit.dataset_controller.conftest import JOB, RUNTIME, SET, DataHarness, OpenData

from dataset_controller.domain import operations
from dataset_controller.domain.samplejob.plan import RUN_AGAIN
from dataset_controller.timing import BUS_DELETION_TIMEOUT_SECONDS
from paddlewheel.bus.streams import DATASETS
from paddlewheel.contracts.generated.bus_v1 import RebuildReport
from paddlewheel.contracts.generated.cache_v1 import RunPhase
from paddlewheel.contracts.generated.datasets_v1 import SampleJobFailed
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.subjects import command_subject
from paddlewheel.contracts.wire import from_json
from paddlewheel.core.errors import Retry
from paddlewheel.kube import ports
from paddlewheel.testkit.samplesets import make_sample_job, make_sample_set, make_secret

FACTS = ["SampleSetBound", "SampleSetMounted", "SampleSetSynced", "SampleSetReady"]


async def test_a_warmup_job_runs_and_reports_its_progress(data: DataHarness) -> None:
    await data.ready_set()
    await data.create_job(make_sample_job(warmupOptions={"strategyName": "random"}))
    status = await data.expect_job("Succeeded")
    assert status["progress"] == {
        "filesDone": 10,
        "filesTotal": 10,
        "bytesDone": 20 << 20,
        "bytesTotal": 20 << 20,
        "percent": "100%",
        "cachedPercent": 100.0,
        "listed": True,
    }
    [spec] = data.runtime.runs("warmup")
    assert spec.warmup
    assert (spec.run_id, spec.warmup.strategy) == (status["jobName"], "random")
    assert data.facts()[-2:] == ["SampleJobStarted", "SampleJobSucceeded"]
    assert ("Normal", "Completed") in await data.event_reasons()


@pytest.mark.parametrize("phase", [RunPhase.SUCCEEDED, RunPhase.FAILED])
async def test_records_of_an_ended_run_leave_the_bus_and_its_end_stays(
    data: DataHarness, phase: RunPhase
) -> None:
    await data.ready_set()
    data.runtime.script = {"warmup": phase}
    await data.create_job(make_sample_job())
    run = (await data.expect_job(phase.name.capitalize()))["jobName"]
    assert any(run in key for key in await data.records())
    await data.wait(61)
    assert not any(run in key for key in await data.records())
    await data.restart()
    await data.wait(61)
    assert (await data.expect_job(phase.name.capitalize()))["jobName"] == run
    assert len(data.runtime.runs("warmup")) == 1


async def test_a_job_goes_when_its_time_is_over_and_with_it_what_is_on_the_bus(data: DataHarness) -> None:
    await data.ready_set()
    await data.create_job(make_sample_job(ttlSecondsAfterFinished=30))
    run = (await data.expect_job("Succeeded"))["jobName"]
    await data.wait(28)
    await data.expect_job("Succeeded")
    await data.wait(4)
    assert not await data.exists(JOB, ports.SAMPLE_JOBS)
    assert not any(run in key for key in await data.records())
    assert data.facts()[-3:] == ["SampleJobStarted", "SampleJobSucceeded", "SampleJobDeleted"]
    assert ("Normal", "TTLExpired") in await data.event_reasons()


async def fail_without_bus(data: DataHarness, **spec: Any) -> None:
    """A job fails while the bus is away, because the job that it waits for has failed."""
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.FAILED}
    await data.create_job(make_sample_job("first"))
    data.bus.down = True
    await data.create_job(make_sample_job(after=["first"], **spec))
    assert (await data.expect_job("Failed"))["reason"] == "DependencyFailed"


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_job_whose_time_is_over_while_the_bus_is_away_takes_no_fact_along(
    data: DataHarness, is_killed: bool
) -> None:
    await fail_without_bus(data, ttlSecondsAfterFinished=30)
    for _ in range(3):
        await data.advance(BUS_DELETION_TIMEOUT_SECONDS)
        if is_killed:
            await data.restart()
        await data.drive()
    await data.expect_job("Failed")
    data.bus.down = False
    await data.wait(30)
    assert not await data.exists(JOB, ports.SAMPLE_JOBS)
    uid = data.published[-1].id.partition("/")[0]
    assert [e.id.partition("/")[2] for e in data.published if e.id.startswith(uid)] == [
        "SampleJobStarted/0",
        "SampleJobFailed/0",
        "SampleJobDeleted/0",
    ]


async def test_a_failure_keeps_its_reason_and_run_although_the_job_has_started_again(
    data: DataHarness,
) -> None:
    await fail_without_bus(data)
    run = (await data.expect_job("Failed"))["jobName"]
    await data.patch(JOB, {"spec": {"after": None}}, ports.SAMPLE_JOBS)
    await data.drive()
    await data.expect_job("Pending")
    data.bus.down = False
    await data.wait(30)
    failed = [e.data for e in data.published if isinstance(e.data, SampleJobFailed)][1]
    assert (failed.reason, failed.run_id) == ("DependencyFailed", run)


async def test_a_clear_that_goes_at_once_still_tells_its_set(data: DataHarness) -> None:
    await data.ready_set(warmup={})
    await data.clock.advance(10)
    await data.create_job(make_sample_job(type="clear", ttlSecondsAfterFinished=0))
    await data.wait(3)
    assert not await data.exists(JOB, ports.SAMPLE_JOBS)
    await data.expect_condition("Warmed", "CacheCleared")


async def test_a_job_waits_for_its_set(data: DataHarness) -> None:
    await data.create_job(make_sample_job())
    await data.expect_condition("Accepted", "SampleSetNotFound", JOB, ports.SAMPLE_JOBS)
    await data.start_set()
    await data.expect_job("Succeeded")


async def test_a_sync_job_brings_its_own_keys_in_the_runtime_secret(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"sync": RunPhase.RUNNING}
    options: dict[str, Any] = {
        "source": "bos://bucket.example.com/train",
        "destination": "train",
        "threads": 32,
        "bwlimit": 400,
        "delete-dst": True,
    }
    await data.create_job(make_sample_job(type="sync", secretRef={"name": "source"}, syncOptions=options))
    await data.expect_condition("Accepted", "SecretNotFound", JOB, ports.SAMPLE_JOBS)
    values = {"access-key": "JOBAK", "secret-key": "JOBSK"}
    await data.create(make_secret("source", values=values), ports.SECRETS)
    await data.wait(6)
    running = await data.expect_job("Running")
    spec = data.runtime.runs("sync")[-1]
    assert spec.sync
    assert spec.sync.secret == f"job-{running['jobName']}"
    assert (spec.sync.destination, spec.sync.threads, spec.sync.bandwidth_limit) == ("train", 32, 400)
    assert spec.sync.delete_dst
    entry = f"{spec.sync.secret}.access-key"
    secret = await data.get(RUNTIME, ports.SECRETS)
    assert base64.b64decode(secret["data"][entry]) == b"JOBAK"
    [pod] = await data.objects(ports.PODS)
    version = pod["metadata"]["annotations"]["paddlepaddle.org/runtime-secret-version"]
    assert version == secret["metadata"]["resourceVersion"]
    await data.runtime.end(spec, RunPhase.SUCCEEDED)
    await data.drive()
    await data.expect_job("Succeeded")
    await data.wait(1)
    assert entry not in (await data.get(RUNTIME, ports.SECRETS))["data"]


async def test_a_failed_job_begins_anew_with_other_options(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.FAILED}
    await data.create_job(make_sample_job())
    first = await data.expect_job("Failed")
    complete = await data.expect_condition("Complete", "FilesFailed", JOB, ports.SAMPLE_JOBS)
    assert complete["message"] == f"the script says so; {RUN_AGAIN}"
    data.runtime.script = {}
    await data.patch(JOB, {"spec": {"warmupOptions": {"threads": 7}}}, ports.SAMPLE_JOBS)
    await data.drive()
    second = await data.expect_job("Succeeded")
    assert first["jobName"] != second["jobName"]
    ids = [event.id.rpartition("/SampleJob")[2] for event in data.published[-4:]]
    assert ids == ["Started/0", "Failed/0", "Started/1", "Succeeded/1"]


SOURCE, AT_SOURCE = Key("default", "source"), {"access-key": "JOBAK", "secret-key": "JOBSK"}


async def start_sync(data: DataHarness) -> set[str]:
    """A SampleJob whose sync goes on; returns the names of its keys in the runtime's Secret."""
    await data.ready_set()
    data.runtime.script = {"sync": RunPhase.RUNNING}
    await data.create(make_secret("source", values=AT_SOURCE), ports.SECRETS)
    options = {"source": "bos://bucket.example.com/train"}
    await data.create_job(make_sample_job(type="sync", secretRef={"name": "source"}, syncOptions=options))
    await data.wait(3)
    keys = await keys_of_jobs(data)
    assert len(keys) == 2
    return keys


async def keys_of_jobs(data: DataHarness) -> set[str]:
    found = await data.get(RUNTIME, ports.SECRETS)
    return {name for name in found["data"] if name.startswith("job-")}


async def test_a_sync_keeps_its_keys_when_its_secret_is_deleted_by_mistake(data: DataHarness) -> None:
    keys = await start_sync(data)
    await data.delete(SOURCE, ports.SECRETS)
    await data.wait(400)
    await data.expect_job("Running")
    await data.expect_condition("Accepted", "SecretNotFound", JOB, ports.SAMPLE_JOBS)
    assert await keys_of_jobs(data) == keys
    await data.create(make_secret("source", values={**AT_SOURCE, "access-key": "NEWAK"}), ports.SECRETS)
    await data.wait(40)
    await data.expect_condition("Accepted", "Accepted", JOB, ports.SAMPLE_JOBS)
    entry = next(name for name in keys if name.endswith(".access-key"))
    assert base64.b64decode((await data.get(RUNTIME, ports.SECRETS))["data"][entry]) == b"NEWAK"


async def test_a_sync_keeps_its_keys_while_its_secret_cannot_be_read(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, get = await start_sync(data), data.cluster.get

    async def unreadable(resource: ports.Resource, key: Key) -> ports.Object:
        if key == SOURCE:
            raise Retry("InternalError", "etcd timeout")
        return await get(resource, key)

    await data.restart()
    monkeypatch.setattr(data.cluster, "get", unreadable)
    await data.wait(6)
    assert await keys_of_jobs(data) == keys


MIRROR: dict[str, Any] = {
    "type": "sync",
    "secretRef": {"name": "digits"},
    "syncOptions": {"delete-dst": True},
}
"""Of the set's own source: what that does not have is deleted from the set."""


async def test_a_cancelled_mirror_stays_so_when_its_set_gets_another_source(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"sync": RunPhase.RUNNING}
    await data.create_job(make_sample_job("mirror", **MIRROR))
    data.runtime.script = {}
    await data.create_job(make_sample_job("stop", type="warmup", terminate=True))
    await data.wait(70)
    await data.expect_job("Failed", "mirror")
    await data.expect_condition("Complete", "Cancelled", Key("default", "mirror"), ports.SAMPLE_JOBS)
    before = len(data.runtime.runs("sync"))
    other = "s3://bucket.s3.example.com/tiny"
    await data.patch(SET, {"spec": {"source": {"uri": other}}})
    tidy = {"spec": {"ttlSecondsAfterFinished": 1 << 20}}
    await data.patch(Key("default", "mirror"), tidy, ports.SAMPLE_JOBS)
    await data.wait(20)
    assert len(data.runtime.runs("sync")) == before
    await data.expect_job("Failed", "mirror")
    options = {"spec": {"syncOptions": {"threads": 2}}}
    await data.patch(Key("default", "mirror"), options, ports.SAMPLE_JOBS)
    await data.drive()
    await data.expect_job("Succeeded", "mirror")
    run = data.runtime.runs("sync")[-1].sync
    assert run is not None
    assert (run.source, run.delete_dst, run.threads) == (other, True, 2)


async def test_a_failed_job_stays_so_when_a_new_release_has_another_default(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await data.ready_set()
    data.runtime.script = {"sync": RunPhase.FAILED}
    await data.create_job(make_sample_job(**MIRROR))
    await data.expect_job("Failed")
    before = data.runtime.runs("sync")
    monkeypatch.setattr(operations, "SYNC_THREADS", 11)
    await data.restart()
    await data.wait(20)
    await data.expect_job("Failed")
    assert data.runtime.runs("sync") == before


async def test_an_edit_after_success_changes_nothing_but_is_answered_once(data: DataHarness) -> None:
    await data.ready_set()
    await data.create_job(make_sample_job())
    await data.expect_job("Succeeded")
    await data.patch(JOB, {"spec": {"warmupOptions": {"threads": 7}}}, ports.SAMPLE_JOBS)
    await data.drive()
    await data.settle(JOB, ports.SAMPLE_JOBS)
    assert len([e for e in await data.kubernetes_events() if e.reason == "EditsIgnored"]) == 1
    assert len(data.runtime.runs("warmup")) == 1
    assert (await data.status(JOB, ports.SAMPLE_JOBS))["observedGeneration"] == 2


async def test_terminate_cancels_what_runs_and_then_begins(data: DataHarness) -> None:
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.ready_set()
    await data.create_job(make_sample_job("slow"))
    await data.expect_job("Running", "slow")
    options: Any = {"type": "rmr", "terminate": True, "rmrOptions": {"paths": ["old", "/tmp-files"]}}
    await data.create_job(make_sample_job("rmr", **options))
    await data.expect_job("Succeeded", "rmr")
    slow = await data.expect_job("Failed", "slow")
    assert {c["type"]: c["reason"] for c in slow["conditions"]}["Complete"] == "Cancelled"
    [spec] = data.runtime.runs("remove")
    assert spec.remove
    assert spec.remove.paths == ["old", "tmp-files"]


async def test_a_run_ends_with_its_set_also_when_another_gets_its_name(data: DataHarness) -> None:
    old = await data.ready_set()
    data.runtime.script = {"clear": RunPhase.RUNNING}
    await data.create_job(make_sample_job(type="clear"))
    assert (await data.expect_job("Running"))["sampleSetUid"] == old
    # Replaced within a moment: no pass sees that there is no set.
    await data.patch(SET, {"metadata": {"finalizers": []}})
    await data.delete(SET)
    await data.create(make_sample_set())
    await data.drive()
    await data.wait(20)
    failed = await data.expect_job("Failed")
    assert failed["reason"] == "SampleSetNotFound"
    assert [run.set_uid for run in data.runtime.runs("clear")] == [old]
    assert (await data.get(SET))["metadata"]["uid"] != old


async def test_deleting_a_job_ends_its_run_and_no_other(data: DataHarness) -> None:
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.ready_set()
    for name in ("job", "other"):
        await data.create_job(make_sample_job(name))
        await data.expect_job("Running", name)
    doomed = (await data.status(JOB, ports.SAMPLE_JOBS))["jobName"]
    await data.delete(JOB, ports.SAMPLE_JOBS)
    await data.drive()
    assert not await data.exists(JOB, ports.SAMPLE_JOBS)
    assert not any(doomed in key for key in await data.records())
    await data.expect_job("Running", "other")
    assert data.facts()[-2:] == ["SampleJobFailed", "SampleJobDeleted"]


async def test_a_job_deleted_while_the_bus_is_down_goes_once_its_facts_are_published(
    data: DataHarness,
) -> None:
    await data.ready_set()
    await data.create_job(make_sample_job())
    await data.expect_job("Succeeded")
    with data.bus_down():
        await data.delete(JOB, ports.SAMPLE_JOBS)
        await data.drive()
        assert ("SampleJobDeleted", 0, False) in await data.announcements(JOB, ports.SAMPLE_JOBS)
        await data.wait(20)
        assert await data.exists(JOB, ports.SAMPLE_JOBS)
    await data.wait(6)
    assert not await data.exists(JOB, ports.SAMPLE_JOBS)
    assert data.facts()[-2:] == ["SampleJobSucceeded", "SampleJobDeleted"]


async def test_a_job_deleted_while_the_bus_is_down_for_too_long_goes_without(data: DataHarness) -> None:
    await data.ready_set()
    await data.create_job(make_sample_job())
    await data.expect_job("Succeeded")
    with data.bus_down():
        await data.delete(JOB, ports.SAMPLE_JOBS)
        await data.drive()
        await data.advance(BUS_DELETION_TIMEOUT_SECONDS - 1)
        assert await data.exists(JOB, ports.SAMPLE_JOBS)
        await data.wait(10)
        assert not await data.exists(JOB, ports.SAMPLE_JOBS)
    assert data.facts()[-1] == "SampleJobSucceeded"


async def test_progress_is_recorded_at_a_bounded_rate(data: DataHarness) -> None:
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.ready_set()
    await data.create_job(make_sample_job())
    [spec] = data.runtime.runs("warmup")
    await data.wait(5)
    with data.counted_writes() as writes:
        for done in range(5, 9):
            await data.runtime.progress(spec, files_done=done)
            await data.drive()
    assert writes["patch-status", "samplejobs"] == 1
    assert (await data.expect_job("Running"))["progress"]["filesDone"] == 5
    await data.wait(2)
    assert (await data.expect_job("Running"))["progress"]["filesDone"] == 8


async def test_an_own_status_write_wakes_nobody(data: DataHarness) -> None:
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.ready_set()
    await data.create_job(make_sample_job())
    [spec] = data.runtime.runs("warmup")
    await data.wait(5)
    await data.runtime.progress(spec, files_done=5)
    await data.catch_up()
    assert set(data.woken) == {SET, JOB}
    data.forget_woken()
    with data.counted_writes() as writes:
        await data.reconcile(JOB, ports.SAMPLE_JOBS)
        await data.catch_up()
    assert writes == {("patch-status", "samplejobs"): 1}
    assert data.woken == []


async def create_jobs_of_every_end(data: DataHarness) -> None:
    """`done` has succeeded, `failed` has failed, `running` goes on."""
    await data.create_job(make_sample_job("done"))
    data.runtime.script = {"warmup": RunPhase.FAILED}
    await data.create_job(make_sample_job("failed"))
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.create_job(make_sample_job("running"))


async def woken_by_figures(data: DataHarness, uid: str) -> list[Key]:
    """Jobs that a write of the set's figures wakes."""
    await data.wait(6)
    await data.runtime.report(uid, 1, cached_bytes=1 << 10)
    await data.catch_up()
    data.forget_woken()
    with data.counted_writes() as writes:
        await data.reconcile(SET)
        await data.catch_up()
    assert writes["patch-status", "samplesets"] == 1
    return data.woken


async def test_figures_of_a_set_wake_no_job(data: DataHarness) -> None:
    uid = await data.ready_set()
    await create_jobs_of_every_end(data)
    await data.create_job(make_sample_job("refused", type="nonsense"))
    assert await woken_by_figures(data, uid) == []


async def test_a_set_that_degrades_wakes_jobs_that_are_not_finished(data: DataHarness) -> None:
    uid = await data.ready_set()
    await create_jobs_of_every_end(data)
    await data.wait(6)
    await data.runtime.report(uid, 1, mounted=False)
    await data.catch_up()
    data.forget_woken()
    await data.reconcile(SET)
    await data.catch_up()
    assert data.woken == [Key("default", "running")]


async def test_an_edited_set_wakes_jobs_that_are_not_finished(data: DataHarness) -> None:
    await data.ready_set()
    await create_jobs_of_every_end(data)
    data.forget_woken()
    await data.patch(SET, {"spec": {"partitions": 2}})
    await data.catch_up()
    assert set(data.woken) == {SET, Key("default", "running")}


async def test_a_set_that_is_gone_wakes_the_jobs_that_ran_on_it(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.create_job(make_sample_job())
    await data.delete(SET)
    await data.wait(130)
    assert not await data.exists(SET)
    await data.expect_job("Failed")


async def test_facts_of_a_lost_stream_come_back_by_themselves_in_order(open_data: OpenData) -> None:
    async with open_data() as data:
        await data.ready_set()
        await data.create_job(make_sample_job())
        await data.expect_job("Succeeded")
        await data.wait(15)
        before = [event.id for event in data.published]
        data.bus.lose_facts(DATASETS.name)
        await data.wait(15)
        assert sorted(event.id for event in data.published) == sorted(before)
        assert data.facts() == [*FACTS, "SampleJobStarted", "SampleJobSucceeded"]


async def test_the_command_rebuild_brings_back_what_is_missing(data: DataHarness) -> None:
    await data.ready_set()
    await data.wait(5)
    stream = data.bus._streams[DATASETS.name]
    stream.drop(2)
    stream._ids.clear()
    subject = command_subject("dataset-controller", "rebuild")

    async def rebuilt() -> RebuildReport:
        asked = asyncio.create_task(data.bus.ask_all(subject, b"{}", within=0.2))
        while not asked.done():
            await data.clock.advance(0.01)
        [answer] = await asked
        return from_json(RebuildReport, answer)

    for published in (1, 0):
        report = await rebuilt()
        assert (report.replica, report.objects) == ("replica-0", 1)
        assert (report.facts_checked, report.facts_published) == (4, published)
    assert sorted(data.facts()) == sorted(FACTS)


async def test_a_clear_needs_nothing_but_type_and_set(data: DataHarness) -> None:
    await data.ready_set()
    await data.create_job(make_sample_job(type="clear"))
    await data.expect_job("Succeeded")
    [spec] = data.runtime.runs("clear")
    assert spec.clear
    assert (spec.clear.paths, spec.clear.partitions) == ([], [])


@pytest.mark.parametrize("kind", ["nonsense", ""])
async def test_an_unknown_type_is_reported(data: DataHarness, kind: str) -> None:
    await data.ready_set()
    await data.create_job(make_sample_job(type=kind))
    await data.expect_condition("Accepted", "UnknownOperation", JOB, ports.SAMPLE_JOBS)


async def test_a_spec_that_cannot_be_parsed_is_reported(data: DataHarness) -> None:
    await data.ready_set()
    await data.create_job(make_sample_job(warmupOptions={"threads": "many"}))
    condition = await data.expect_condition("Accepted", "InvalidSpec", JOB, ports.SAMPLE_JOBS)
    assert "spec.warmupOptions.threads" in condition["message"]
