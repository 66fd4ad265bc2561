"""After SampleJobs the set says what its cache holds now."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.dataset_controller.conftest import JOB, SET, DataHarness

from dataset_controller.domain.samplejob.cache_changes import changes_of, mirrored_at
from dataset_controller.domain.samplejob.parse import parse_job
from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunSpec
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.kube import ports
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.samplesets import make_sample_job

WARM: dict[str, Any] = {"warmup": {"paths": ["train"]}}


async def run_job(data: DataHarness, name: str, **spec: Any) -> None:
    await data.create_job(make_sample_job(name, **spec))
    await data.expect_job("Succeeded", name)
    await data.drive()


async def test_a_cleared_set_is_no_longer_warm_until_a_job_warms_it(data: DataHarness) -> None:
    await data.ready_set(**WARM)
    await data.expect_condition("Warmed", "Warmed")
    await data.clock.advance(10)
    await run_job(data, "empty", type="clear")
    cleared = await data.expect_condition("Warmed", "CacheCleared")
    assert cleared["status"] == "False"
    assert cleared["message"] == "SampleJob empty has emptied the cache; one of type warmup fills it again"
    await data.expect_phase("Ready")

    await data.clock.advance(10)
    await run_job(data, "fill", type="warmup")
    warmed = await data.expect_condition("Warmed", "Warmed")
    assert (warmed["status"], warmed["message"]) == ("True", "by SampleJob fill")
    assert data.facts().count("SampleSetWarmed") == 1


async def test_a_cleared_set_is_not_warmed_again_by_itself(data: DataHarness) -> None:
    await data.ready_set(**WARM)
    await data.clock.advance(10)
    await run_job(data, "empty", type="clear")
    await data.delete(Key("default", "empty"), ports.SAMPLE_JOBS)
    await data.wait(65)
    assert len(data.runtime.runs("warmup")) == 1
    await data.expect_condition("Warmed", "CacheCleared")
    await data.restart()
    await data.wait(20)
    assert len(data.runtime.runs("warmup")) == 1
    await data.expect_condition("Warmed", "CacheCleared")


async def test_a_set_without_a_warmup_of_its_own_has_no_such_condition(data: DataHarness) -> None:
    await data.ready_set()
    await run_job(data, "empty", type="clear")
    with pytest.raises(LookupError):
        await data.condition(SET, "Warmed")


@pytest.mark.parametrize("kind", ["clear", "rmr"])
async def test_sizes_follow_a_job_within_half_a_minute(data: DataHarness, kind: str) -> None:
    uid = await data.ready_set()
    data.runtime.script = {"clear": RunPhase.RUNNING, "remove": RunPhase.RUNNING}
    await data.create_job(make_sample_job(type=kind, rmrOptions={"paths": ["old"]}))
    [run] = data.runtime.runs("clear" if kind == "clear" else "remove")
    await data.runtime.end(run, RunPhase.SUCCEEDED)
    await data.drive()
    # As the agents do when a run that they worked on has ended.
    await data.runtime.report(uid, 1, cached_bytes=0, total_bytes=5 << 20, total_files=2)
    await data.wait(20)
    figures = (await data.status(SET))["cacheStatus"]
    shown = (figures["cachedSize"], figures["totalSize"], figures["totalFiles"])
    assert shown == ("0 B", "5.0 MiB", "2")


async def test_a_job_that_ends_after_its_run_wakes_the_set(data: DataHarness) -> None:
    await data.ready_set(**WARM)
    await data.clock.advance(10)
    data.runtime.script = {"clear": RunPhase.RUNNING}
    await data.create_job(make_sample_job(type="clear"))
    [run] = data.runtime.runs("clear")
    await data.runtime.end(run, RunPhase.SUCCEEDED)
    await data.drive()
    await data.expect_condition("Warmed", "CacheCleared")


def ended(
    name: str,
    kind: str,
    phase: str,
    at: str,
    reason: str = "Completed",
    progress: dict[str, int] | None = None,
) -> Object:
    job = make_sample_job(name, type=kind)
    job["metadata"] |= {"uid": name, "generation": 1}
    times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": f"2026-01-01T00:00:{at}Z"}
    status = {"phase": phase, "jobName": "r", "progress": progress or {}, **times}
    complete = {"type": "Complete", "status": "True", "reason": reason, "message": ""}
    return {**job, "status": {**status, "conditions": [complete]}}


async def test_an_older_job_never_counts_again(data: DataHarness) -> None:
    """The last one is deleted when its time is over, the one before it stays."""
    await data.ready_set(**WARM)
    await data.clock.advance(10)
    await run_job(data, "empty", type="clear")
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.create_job(make_sample_job("fill", ttlSecondsAfterFinished=5))
    await data.clock.advance(1)
    await data.runtime.end(data.runtime.runs("warmup")[-1], RunPhase.SUCCEEDED, reason="PartlyCached")
    await data.drive()
    await data.expect_condition("Warmed", "PartlyCached")
    await data.wait(10)
    assert not await data.exists(Key("default", "fill"), ports.SAMPLE_JOBS)
    await data.restart()
    await data.create_job(make_sample_job("touches", type="rmr", rmrOptions={"paths": ["x"]}))
    await data.expect_condition("Warmed", "PartlyCached")


async def test_a_run_whose_job_was_edited_counts_as_what_it_was(data: DataHarness) -> None:
    """Where the CRD's rules are missing, which refuse such an edit."""
    await data.ready_set(**WARM)
    await data.clock.advance(10)
    data.runtime.script = {"clear": RunPhase.RUNNING}
    await data.create_job(make_sample_job(type="clear"))
    edit = {"spec": {"type": "warmup", "sampleSetRef": {"name": "mnist"}}}
    await data.patch(JOB, edit, ports.SAMPLE_JOBS)
    await data.drive()
    await data.runtime.end(data.runtime.runs("clear")[0], RunPhase.SUCCEEDED)
    await data.drive()
    assert (await data.expect_job("Succeeded"))["sampleSetName"] == "digits"
    await data.expect_condition("Warmed", "CacheCleared")
    assert len(data.runtime.runs("clear")) == 1
    assert len(data.runtime.runs("warmup")) == 1, "the set's own"


async def test_an_edited_warmup_runs_and_a_job_in_another_order_does_not_stand_for_it(
    data: DataHarness,
) -> None:
    await data.ready_set(**WARM)
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    sampler = {"strategyName": "sampler", "sampler": {"batchSize": 4, "epoch": 3}}
    await data.patch(SET, {"spec": {"warmup": {"paths": ["train", "val"], **sampler}}})
    await data.drive()
    warming = await data.expect_condition("Warmed", "Warming")
    assert warming["message"] == "its options have changed"
    await data.expect_phase("PartialReady")
    await data.runtime.end(data.runtime.runs("warmup")[-1], RunPhase.SUCCEEDED)
    await data.drive()
    await data.expect_condition("Warmed", "Warmed")
    await data.expect_phase("Ready")

    data.runtime.script = {}
    await data.clock.advance(10)
    await run_job(data, "empty", type="clear")
    await data.clock.advance(10)
    other = {"strategyName": "sampler", "sampler": {"batchSize": 8, "epoch": 3}}
    await run_job(data, "other", type="warmup", warmupOptions=other)
    await data.expect_condition("Warmed", "PartlyWarmed")
    await data.clock.advance(10)
    await run_job(data, "same", type="warmup", warmupOptions=sampler)
    await data.expect_condition("Warmed", "Warmed")


CLEARED = ("a", "CacheCleared")
COPIED = {"filesDone": 3, "filesKept": 2}


@pytest.mark.parametrize(
    ("jobs", "changes"),
    [
        ([], []),
        ([ended("a", "sync", "Succeeded", "09")], []),
        ([ended("a", "sync", "Succeeded", "09", progress={"filesDone": 2, "filesKept": 2})], []),
        ([ended("a", "sync", "Running", "09", progress=COPIED)], []),
        ([ended("a", "sync", "Succeeded", "09", progress=COPIED)], [("a", "DataChanged")]),
        ([ended("a", "sync", "Failed", "09", progress={"filesDone": 1})], [("a", "DataChanged")]),
        ([ended("a", "rmr", "Succeeded", "09")], []),
        ([ended("a", "clear", "Running", "09")], []),
        ([ended("a", "warmup", "Failed", "09")], []),
        ([ended("a", "clear", "Failed", "01")], [CLEARED]),
        (
            [ended("b", "warmup", "Succeeded", "02"), ended("a", "clear", "Succeeded", "01")],
            [CLEARED, ("b", "Warmed")],
        ),
        (
            [ended("a", "clear", "Succeeded", "03"), ended("b", "warmup", "Succeeded", "02")],
            [("b", "Warmed"), CLEARED],
        ),
        ([ended("a", "warmup", "Succeeded", "01", "PartlyCached")], [("a", "PartlyCached")]),
        ([ended("a", "clear", "Succeeded", "01"), ended("b", "warmup", "Failed", "02")], [CLEARED]),
    ],
)
def test_jobs_have_changed_the_cache_in_the_order_of_their_ends(
    jobs: list[Object], changes: list[tuple[str, str]]
) -> None:
    found = changes_of(map(parse_job, jobs))
    assert [(change.mark.job, change.reason) for change in found] == changes


def test_a_clear_that_never_ran_has_emptied_nothing() -> None:
    """What it was to run after has failed, or it was cancelled while it waited."""
    unstarted = ended("a", "clear", "Failed", "05", "DependencyFailed")
    del unstarted["status"]["startTime"]
    assert changes_of([parse_job(unstarted)]) == ()
    warm = parse_job(ended("b", "warmup", "Succeeded", "02"))
    assert [change.mark.job for change in changes_of([parse_job(unstarted), warm])] == ["b"]


MIRROR = {"delete-dst": True}


@pytest.mark.parametrize(
    ("phase", "options", "is_mirrored"),
    [
        ("Succeeded", MIRROR, True),
        ("Succeeded", {**MIRROR, "destination": "."}, True),
        ("Succeeded", {}, False),
        ("Failed", MIRROR, False),
        ("Running", MIRROR, False),
        ("Succeeded", {**MIRROR, "dry": True}, False),
        ("Succeeded", {**MIRROR, "destination": "train"}, False),
        ("Succeeded", {**MIRROR, "exclude": "*.tmp"}, False),
        ("Succeeded", {**MIRROR, "end": "m"}, False),
        ("Succeeded", {**MIRROR, "source": "s3://another.s3.example.com/"}, False),
    ],
)
def test_a_whole_sync_with_delete_dst_leaves_only_what_its_source_has(
    phase: str, options: dict[str, Any], is_mirrored: bool
) -> None:
    job = ended("a", "sync", phase, "09")
    job["spec"]["syncOptions"] = options
    others = [ended("b", "sync", "Succeeded", "09"), ended("c", "warmup", "Succeeded", "09")]
    assert mirrored_at(map(parse_job, [job, *others])) == ("2026-01-01T00:00:00Z" if is_mirrored else "")


def test_an_edited_job_does_not_count_as_a_sync_with_delete_dst() -> None:
    job = ended("a", "sync", "Succeeded", "09")
    job["spec"]["syncOptions"] = MIRROR
    job["status"]["type"] = "warmup"
    assert mirrored_at([parse_job(job)]) == ""


async def sync(data: DataHarness, name: str, *, copied: int, to: str = "") -> None:
    """Copy `copied` of ten files into the set."""
    data.runtime.script = {"sync": RunPhase.RUNNING}
    options = {"source": "s3://other/train", "destination": to}
    await data.create_job(
        make_sample_job(name, type="sync", secretRef={"name": "digits"}, syncOptions=options)
    )
    await data.runtime.end(
        data.runtime.runs("sync")[-1], RunPhase.SUCCEEDED, files_done=10, files_kept=10 - copied
    )
    await data.drive()
    await data.expect_job("Succeeded", name)


async def test_a_set_is_not_warm_any_more_when_a_job_has_copied_into_it(data: DataHarness) -> None:
    await data.ready_set(**WARM)
    await data.clock.advance(10)
    await sync(data, "nothing", copied=0)
    await data.expect_condition("Warmed", "Warmed")
    await data.clock.advance(10)
    await sync(data, "elsewhere", copied=3, to="val")
    await data.expect_condition("Warmed", "Warmed")
    await data.clock.advance(10)
    await sync(data, "new", copied=1, to="train/new")
    changed = await data.expect_condition("Warmed", "DataChanged")
    assert changed["status"] == "False"
    assert changed["message"] == "SampleJob new has copied files into the set; one of type warmup loads them"
    ready = await data.expect_condition("Ready", "Ready")
    assert (ready["status"], ready["message"]) == ("True", changed["message"])
    await data.expect_phase("Ready")
    await data.wait(65)
    assert len(data.runtime.runs("warmup")) == 1, "none by itself"
    await run_job(data, "fill", type="warmup", warmupOptions={"paths": ["train"]})
    await data.expect_condition("Warmed", "Warmed")


async def test_a_warmup_of_a_part_does_not_make_a_set_warm(data: DataHarness) -> None:
    await data.ready_set(**WARM)
    await data.clock.advance(10)
    await run_job(data, "more", type="warmup", warmupOptions={"paths": ["train/a"]})
    await data.expect_condition("Warmed", "Warmed")
    await data.clock.advance(10)
    await run_job(data, "empty", type="clear")
    await data.clock.advance(10)
    await run_job(data, "some", type="warmup", warmupOptions={"paths": ["train/a", "val"]})
    partly = await data.expect_condition("Warmed", "PartlyWarmed")
    assert partly["status"] == "False"
    assert partly["message"] == "SampleJob some has warmed less than spec.warmup asks for"
    await data.expect_phase("Ready")
    await data.clock.advance(10)
    await run_job(data, "fill", type="warmup", warmupOptions={"paths": ["train", "val"]})
    await data.expect_condition("Warmed", "Warmed")


async def test_of_two_changes_that_are_seen_together_none_is_lost(data: DataHarness) -> None:
    """A clear and a warmup of a part, while the service is away."""
    await data.ready_set(**WARM)
    for at, job in enumerate(
        [
            ended("empty", "clear", "Succeeded", "01"),
            ended("some", "warmup", "Succeeded", "02"),
        ]
    ):
        job["spec"] |= {"warmupOptions": {"paths": ["train/a"]}} if job["spec"]["type"] == "warmup" else {}
        job["status"]["completionTime"] = f"2099-01-01T00:00:0{at}Z"
        await data.cluster.create(ports.SAMPLE_JOBS, job)
    await data.restart()
    await data.drive()
    await data.expect_condition("Warmed", "PartlyWarmed")


async def test_a_set_says_what_a_failed_sync_may_have_left_until_a_job_has_removed_it(
    data: DataHarness,
) -> None:
    data.runtime.script = {"sync": RunPhase.FAILED}
    await data.start_set()
    await data.expect_phase("SyncFailed")
    data.runtime.script = {}
    await data.patch(SET, {"spec": {"source": {"uri": "s3://bucket.s3.example.com/other"}}})
    await data.wait(65)
    synced = await data.expect_condition("Synced", "Synced")
    assert "only the source of a failed sync had" in synced["message"]
    await data.clock.advance(10)
    options: dict[str, Any] = {"secretRef": {"name": "digits"}, "syncOptions": {"delete-dst": True}}
    await data.create_job(make_sample_job("mirror", type="sync", ttlSecondsAfterFinished=0, **options))
    await data.wait(10)
    assert (await data.expect_condition("Synced", "Synced"))["message"] == ""
    assert "syncOverwrites" not in (await data.status(SET))["jobsName"]
    assert not await data.exists(Key("default", "mirror"), ports.SAMPLE_JOBS)


async def test_a_job_that_is_to_be_deleted_waits_for_its_set_also_after_the_service_was_away(
    data: DataHarness,
) -> None:
    """The job has ended, and the service with it before the set took note; more than a minute later it comes
    back, and hears of the job first."""
    data.runtime.script = {"sync": RunPhase.FAILED}
    await data.start_set()
    data.runtime.script = {}
    await data.patch(SET, {"spec": {"source": {"uri": "s3://bucket.s3.example.com/other"}}})
    await data.wait(65)
    assert "syncOverwrites" in (await data.status(SET))["jobsName"]
    await data.clock.advance(10)
    options: dict[str, Any] = {"secretRef": {"name": "digits"}, "syncOptions": {"delete-dst": True}}
    with data.failing(Retry("killed", "before the write"), "patch-status", ports.SAMPLE_SETS):
        await data.create_job(make_sample_job("mirror", type="sync", ttlSecondsAfterFinished=0, **options))
        await data.expect_job("Succeeded", "mirror")
    await data.clock.advance(120)
    await data.restart()
    for _ in range(3):
        await data.replica.reconcilers[ports.SAMPLE_JOBS](Key("default", "mirror"))
        await data.catch_up()
    await data.wait(10)
    assert (await data.expect_condition("Synced", "Synced"))["message"] == ""
    assert "syncOverwrites" not in (await data.status(SET))["jobsName"]
    assert not await data.exists(Key("default", "mirror"), ports.SAMPLE_JOBS)


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("sync", {"syncOptions": {"destination": "train"}}, "DataChanged"),
        ("sync", {"syncOptions": {"destination": "val"}}, "Warmed"),
        ("clear", {}, "CacheCleared"),
    ],
)
async def test_a_set_knows_what_a_job_has_done_that_was_cancelled_by_its_deletion(
    data: DataHarness, kind: str, options: dict[str, Any], reason: str
) -> None:
    await data.ready_set(**WARM)
    await data.clock.advance(10)
    data.runtime.script = {kind: RunPhase.RUNNING}
    await data.create_job(make_sample_job("doomed", type=kind, secretRef={"name": "digits"}, **options))
    await data.delete(Key("default", "doomed"), ports.SAMPLE_JOBS)
    await data.wait(3)
    assert not await data.exists(Key("default", "doomed"), ports.SAMPLE_JOBS)
    await data.expect_condition("Warmed", reason)


async def begin_sync_beside_own_warmup(data: DataHarness, **spec: Any) -> tuple[RunSpec, RunSpec]:
    """A partition is added while a job copies into the set: their runs."""
    uid = await data.ready_set(**WARM)
    await data.clock.advance(10)
    data.runtime.script = {"sync": RunPhase.RUNNING, "warmup": RunPhase.RUNNING}
    options = {"source": "s3://other/train", "destination": "train"}
    await data.create_job(
        make_sample_job("mirror", type="sync", secretRef={"name": "digits"}, syncOptions=options, **spec)
    )
    await data.patch(SET, {"spec": {"partitions": 2}})
    await data.drive()
    await data.runtime.report(uid, 2)
    await data.drive()
    await data.expect_condition("Warmed", "Warming")
    await data.clock.advance(100)
    return data.runtime.runs("sync")[-1], data.runtime.runs("warmup")[-1]


async def test_a_set_is_not_warm_when_a_job_has_copied_into_it_during_its_own_warmup(
    data: DataHarness,
) -> None:
    sync_run, warmup_run = await begin_sync_beside_own_warmup(data)
    await data.runtime.end(sync_run, RunPhase.SUCCEEDED, files_done=1000)
    await data.drive()
    await data.expect_condition("Warmed", "Warming")
    await data.clock.advance(10)
    await data.runtime.end(warmup_run, RunPhase.SUCCEEDED)
    await data.drive()
    changed = await data.expect_condition("Warmed", "DataChanged")
    message = "SampleJob mirror has copied files into the set; one of type warmup loads them"
    assert (changed["status"], changed["message"]) == ("False", message)
    await data.expect_phase("Ready")
    assert data.facts().count("SampleSetWarmed") == 1
    data.runtime.script = {}
    await data.clock.advance(10)
    await run_job(data, "fill", type="warmup", warmupOptions={"paths": ["train"]})
    await data.expect_condition("Warmed", "Warmed")


async def test_a_first_warmup_beside_which_a_job_has_copied_has_succeeded_all_the_same(
    data: DataHarness,
) -> None:
    """Its first attempt has failed, and the job has begun before the next one."""
    data.runtime.script = {"warmup": RunPhase.FAILED}
    await data.start_set(**WARM)
    data.runtime.script = {"warmup": RunPhase.RUNNING, "sync": RunPhase.RUNNING}
    await data.create_job(make_sample_job("mirror", type="sync", secretRef={"name": "digits"}))
    await data.wait(35)
    await data.runtime.end(data.runtime.runs("sync")[-1], RunPhase.SUCCEEDED)
    await data.drive()
    await data.clock.advance(10)
    await data.runtime.end(data.runtime.runs("warmup")[-1], RunPhase.SUCCEEDED)
    await data.drive()
    await data.expect_condition("Warmed", "DataChanged")
    await data.expect_phase("Ready")
    assert data.facts().count("SampleSetWarmed") == 1


async def test_what_a_job_has_copied_during_a_warmup_is_known_also_when_it_is_deleted(
    data: DataHarness,
) -> None:
    sync_run, warmup_run = await begin_sync_beside_own_warmup(data, ttlSecondsAfterFinished=0)
    await data.runtime.end(sync_run, RunPhase.FAILED, files_done=3)
    await data.wait(10)
    assert not await data.exists(Key("default", "mirror"), ports.SAMPLE_JOBS)
    await data.restart()
    await data.runtime.end(warmup_run, RunPhase.SUCCEEDED)
    await data.drive()
    await data.expect_condition("Warmed", "DataChanged")


async def test_a_set_is_not_warm_when_a_sync_has_ended_during_the_warmup_of_another_job(
    data: DataHarness,
) -> None:
    """The sync was cancelled, and has not ended in time."""
    await data.ready_set(**WARM)
    await data.clock.advance(10)
    data.runtime.script = {"sync": RunPhase.RUNNING, "warmup": RunPhase.RUNNING}
    await data.create_job(make_sample_job("mirror", type="sync", secretRef={"name": "digits"}))
    sync_run = data.runtime.runs("sync")[-1]
    data.runtime.seen.remove(sync_run)  # Its agents do not hear of the cancel.
    await data.create_job(make_sample_job("fill", terminate=True))
    await data.wait(65)
    await data.expect_job("Running", "fill")
    await data.runtime.end(sync_run, RunPhase.CANCELLED, files_done=4)
    await data.drive()
    await data.expect_condition("Warmed", "DataChanged")
    await data.clock.advance(10)
    await data.runtime.end(data.runtime.runs("warmup")[-1], RunPhase.SUCCEEDED)
    await data.drive()
    await data.expect_job("Succeeded", "fill")
    await data.expect_condition("Warmed", "DataChanged")
    data.runtime.script = {}
    await data.clock.advance(10)
    await run_job(data, "again", type="warmup")
    await data.expect_condition("Warmed", "Warmed")
