"""What `kubectl get sset,sjob` shows: phase, reason, message and percent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.dataset_controller.conftest import JOB, SET, DataHarness

from dataset_controller.domain.samplejob.plan import RUN_AGAIN
from dataset_controller.domain.samplejob.status import progress_of
from dataset_controller.timing import SECRET_READ_INTERVAL_SECONDS
from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunState
from paddlewheel.kube import ports
from paddlewheel.kube.ports import Resource
from paddlewheel.testkit.samplesets import make_sample_job, make_sample_set

JOBS = ports.SAMPLE_JOBS


async def row(data: DataHarness, resource: Resource = ports.SAMPLE_SETS) -> tuple[str, str, str]:
    status = await data.status(SET if resource is ports.SAMPLE_SETS else JOB, resource)
    return status["phase"], status["reason"], status["message"]


async def test_a_rejected_set_has_a_phase_and_a_reason(data: DataHarness) -> None:
    await data.create(make_sample_set())
    await data.drive()
    phase, reason, message = await row(data)
    assert (phase, reason) == ("NotBound", "SecretNotFound")
    assert "Secret default/digits does not exist" in message


async def test_a_ready_set_says_so(data: DataHarness) -> None:
    await data.ready_set()
    assert await row(data) == ("Ready", "Ready", "")


async def test_a_set_that_lacks_partitions_says_which(data: DataHarness) -> None:
    data.kubernetes.unready.add("digits-runtime-1")
    await data.start_set(partitions=2)
    await data.wait(40)
    phase, reason, message = await row(data)
    assert (phase, reason) == ("PartialReady", "PartitionsNotReady")
    assert message.startswith("1 of 2 partitions are ready")


async def test_a_secret_that_becomes_invalid_is_the_reason_of_a_ready_set(data: DataHarness) -> None:
    uid = await data.ready_set()
    await data.patch(SET, {"data": {"bucket": None}}, ports.SECRETS)
    await data.advance(SECRET_READ_INTERVAL_SECONDS[0])
    await data.runtime.report(uid, 1)
    await data.drive()
    assert (await row(data))[:2] == ("Ready", "InvalidSecret")


async def test_a_rejected_job_has_a_phase_and_a_reason(data: DataHarness) -> None:
    await data.create_job(make_sample_job())
    phase, reason, message = await row(data, JOBS)
    assert (phase, reason) == ("Pending", "SampleSetNotFound")
    assert "SampleSet default/digits does not exist" in message
    assert (await data.status(JOB, JOBS))["jobName"] == ""


async def test_a_job_that_waits_for_its_set_is_pending_and_then_runs(data: DataHarness) -> None:
    data.runtime.script = {"sync": RunPhase.RUNNING, "warmup": RunPhase.RUNNING}
    await data.start_set()
    await data.create_job(make_sample_job())
    assert (await row(data, JOBS))[:2] == ("Pending", "WaitingForSampleSet")
    await data.runtime.end(data.runtime.runs("sync")[0], RunPhase.SUCCEEDED)
    await data.drive()
    await data.wait(3)
    assert (await row(data, JOBS))[:2] == ("Running", "Running")
    await data.runtime.end(data.runtime.runs("warmup")[0], RunPhase.SUCCEEDED)
    await data.drive()
    assert await row(data, JOBS) == ("Succeeded", "Completed", "")


async def test_a_failed_job_shows_the_runs_reason(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"warmup": RunPhase.FAILED}
    await data.create_job(make_sample_job())
    assert await row(data, JOBS) == ("Failed", "FilesFailed", f"the script says so; {RUN_AGAIN}")


async def test_what_a_run_says_of_its_success_is_the_jobs_message(data: DataHarness) -> None:
    await data.ready_set()
    data.runtime.script = {"remove": RunPhase.RUNNING}
    await data.create_job(make_sample_job(type="rmr", rmrOptions={"paths": ["old"]}))
    [run] = data.runtime.runs("remove")
    await data.runtime.end(run, RunPhase.SUCCEEDED, message="old: did not exist")
    await data.drive()
    assert await row(data, JOBS) == ("Succeeded", "Completed", "old: did not exist")
    said = [e.message for e in await data.kubernetes_events() if e.reason == "Completed"]
    assert said == ["10 files, 20971520 bytes; old: did not exist"]


@pytest.mark.parametrize(
    ("state", "percent"),
    [
        (RunState(), ""),
        (RunState(files_done=1, files_total=2), ""),
        (RunState(listed=True), "100%"),
        (RunState(listed=True, files_done=1, files_total=3), "33%"),
        (RunState(listed=True, files_done=3, files_total=3, bytes_done=1, bytes_total=1000), "0%"),
        (RunState(listed=True, bytes_done=999, bytes_total=1000), "99%"),
        (RunState(listed=True, bytes_done=1000, bytes_total=1000), "100%"),
        (RunState(listed=True, files_done=1, files_total=2, bytes_done=9, bytes_total=9), "50%"),
    ],
)
def test_percent_is_rounded_down_and_empty_before_the_total_is_known(state: RunState, percent: str) -> None:
    assert progress_of(state)["percent"] == percent


@pytest.mark.parametrize(("failed", "shown"), [(0, {}), (2, {"filesFailed": 2})])
def test_progress_has_the_files_that_failed(failed: int, shown: dict[str, int]) -> None:
    progress = progress_of(RunState(files_done=3, files_total=5, files_failed=failed))
    assert {name: figure for name, figure in progress.items() if name == "filesFailed"} == shown


BEGAN = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
GOES_ON: dict[str, Any] = {
    "phase": RunPhase.RUNNING,
    "listed": True,
    "started_at": BEGAN,
    "heartbeat": BEGAN + timedelta(seconds=60),
}


@pytest.mark.parametrize(
    ("figures", "seconds"),
    [
        ({"bytes_done": 25, "bytes_total": 100, "files_done": 1, "files_total": 2}, 180),
        ({"files_done": 1, "files_total": 3}, 120),
        ({"bytes_done": 99_000, "bytes_total": 100_000}, 1),
        ({"bytes_done": 100, "bytes_total": 100}, None),
        ({"bytes_total": 100}, None),
        ({"bytes_done": 25, "bytes_total": 100, "listed": False}, None),
        ({"bytes_done": 25, "bytes_total": 100, "heartbeat": BEGAN}, None),
        ({"bytes_done": 25, "bytes_total": 100, "heartbeat": None}, None),
        ({"bytes_done": 25, "bytes_total": 100, "phase": RunPhase.FAILED}, None),
    ],
)
def test_a_run_that_goes_on_has_the_seconds_until_its_end(
    figures: dict[str, Any], seconds: int | None
) -> None:
    assert progress_of(RunState(**{**GOES_ON, **figures})).get("etaSeconds") == seconds
