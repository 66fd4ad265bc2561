"""After SampleJobs of type clear, warmup and rmr the set says what its cache holds now."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.dataset_controller.conftest import JOB, SET, DataHarness

from dataset_controller.domain.samplejob.cache_changes import last_change
from dataset_controller.domain.samplejob.parse import parse_job
from dataset_controller.domain.sampleset.model import CacheChange
from paddlewheel.contracts.generated.cache_v1 import RunPhase
from paddlewheel.contracts.keys import Key
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


def ended(name: str, kind: str, phase: str, at: str, reason: str = "Completed") -> Object:
    job = make_sample_job(name, type=kind)
    job["metadata"] |= {"uid": name, "generation": 1}
    times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": f"2026-01-01T00:00:{at}Z"}
    status = {"phase": phase, "jobName": "r", **times}
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


CLEARED = ("a", "CacheCleared")


@pytest.mark.parametrize(
    ("jobs", "last"),
    [
        ([], None),
        ([ended("a", "sync", "Succeeded", "09")], None),
        ([ended("a", "rmr", "Succeeded", "09")], None),
        ([ended("a", "clear", "Running", "09")], None),
        ([ended("a", "warmup", "Failed", "09")], None),
        ([ended("a", "clear", "Failed", "01")], CLEARED),
        ([ended("a", "clear", "Succeeded", "01"), ended("b", "warmup", "Succeeded", "02")], ("b", "Warmed")),
        (
            [ended("a", "clear", "Succeeded", "03"), ended("b", "warmup", "Succeeded", "02")],
            CLEARED,
        ),
        ([ended("a", "warmup", "Succeeded", "01", "PartlyCached")], ("a", "PartlyCached")),
        (
            [ended("a", "clear", "Succeeded", "01"), ended("b", "warmup", "Failed", "02")],
            CLEARED,
        ),
    ],
)
def test_the_last_job_to_change_the_cache_counts(jobs: list[Object], last: tuple[str, str] | None) -> None:
    found = last_change(map(parse_job, jobs))
    assert (found and (found.mark.job, found.reason)) == last
    assert found is None or isinstance(found, CacheChange)


def test_a_clear_that_never_ran_has_emptied_nothing() -> None:
    """What it was to run after has failed, or it was cancelled while it waited."""
    unstarted = ended("a", "clear", "Failed", "05", "DependencyFailed")
    del unstarted["status"]["startTime"]
    assert last_change([parse_job(unstarted)]) is None
    warm = parse_job(ended("b", "warmup", "Succeeded", "02"))
    found = last_change([parse_job(unstarted), warm])
    assert found is not None
    assert found.mark.job == "b"
