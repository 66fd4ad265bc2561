"""From a notification of an object store to a run on the data set, with both controllers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.dataset_controller.conftest import DataHarness
from tests.unit.trigger_controller.conftest import TriggerHarness

from paddlewheel.contracts.generated.cache_v1 import RunPhase
from paddlewheel.contracts.objects import key_of
from paddlewheel.kube import ports
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.charts import REPOSITORY
from paddlewheel.testkit.samplesets import make_secret
from paddlewheel.testkit.triggers import s3_body, s3_record

QUIET = 31


def example(**changes: Any) -> Object:
    path = Path(REPOSITORY / "examples/triggers/sync-train-folder.yaml")
    trigger: Object = yaml.safe_load(path.read_text(encoding="utf-8"))
    trigger["metadata"]["namespace"] = "default"
    trigger["spec"] |= changes
    return trigger


async def store(harness: TriggerHarness, *keys: str, bucket: str = "digits", n: int = 1) -> None:
    """The object store posts that these keys were written; then it is quiet."""
    records = [s3_record(key, n=n, bucket=bucket) for key in keys]
    await harness.webhook.store("images", s3_body(*records))
    await harness.drain_queue()
    await harness.advance(QUIET)
    await harness.drain_queue()


async def test_new_files_below_a_folder_of_the_source_start_one_sync_of_its_data_set(
    harness: TriggerHarness,
) -> None:
    async with DataHarness(harness.fakes).opened() as data:
        await data.ready_set()
        await data.create(make_secret("digits-source"), ports.SECRETS)
        data.runtime.script = {"sync": RunPhase.RUNNING}
        before = len(data.runtime.runs("sync"))
        await harness.apply(example())
        await store(harness, "test/0.png", "train.txt")
        await store(harness, "train/0.png", bucket="mnist")
        await data.drive()
        assert await harness.sample_jobs() == []
        await store(harness, "train/0.png", "train/1.png", "train/2/3.png")
        await data.drive()
        [job] = await harness.sample_jobs()
        await data.expect_phase("Running", key_of(job), ports.SAMPLE_JOBS)
        run = data.runtime.runs("sync")[-1]
        assert len(data.runtime.runs("sync")) == before + 1
        assert run.sync is not None
        assert (run.set_name, run.sync.update, run.sync.source) == (
            "digits",
            True,
            "s3://bucket.s3.example.com/digits",
        )
        # What arrives meanwhile is one more job, after this one.
        await store(harness, "train/0.png", n=2)
        await store(harness, "train/4.png")
        assert len(await harness.sample_jobs()) == 1
        await data.runtime.end(run, RunPhase.SUCCEEDED)
        await data.drive()
        await harness.drain_queue()
        await harness.advance(QUIET)
        await harness.drain_queue()
        await data.drive()
        phases = [job["status"]["phase"] for job in await harness.sample_jobs()]
        assert sorted(phases) == ["Running", "Succeeded"]


@pytest.mark.parametrize(
    ("events", "jobs"), [(["ObjectCreated"], 0), (["ObjectCreated", "ObjectRemoved"], 1)]
)
async def test_removed_files_start_a_sync_only_where_they_count(
    harness: TriggerHarness, events: list[str], jobs: int
) -> None:
    when = {"objectStore": {"source": "images", "bucket": "digits", "prefix": "train/", "events": events}}
    await harness.apply(example(when=when))
    record = s3_record("train/0.png", bucket="digits", event="s3:ObjectRemoved:Delete")
    await harness.webhook.store("images", s3_body(record))
    await harness.drain_queue()
    await harness.advance(QUIET)
    await harness.drain_queue()
    assert len(await harness.sample_jobs()) == jobs
