"""A fact is recorded in the status, then published, then confirmed: whatever fails in between."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.job_controller.conftest import JobHarness

from job_controller.timing import COUNTS_INTERVAL_SECONDS, POD_CHANGE_BATCH_INTERVAL_SECONDS
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Conflict, Retry
from paddlewheel.kube.ports import PADDLE_JOBS, PODS, Object
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS
from paddlewheel.testkit.kubernetes import set_pod_status
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

WORKER = Key("default", "demo-worker-0")
STATUS_WRITE = ("patch-status", "paddlejobs")


def kept(replicas: int = 2) -> Object:
    """A job whose pods are kept at its end."""
    return make_paddle_job(cleanPodPolicy="Never", worker=make_role(replicas))


async def test_an_end_that_could_not_be_recorded_is_not_on_the_bus(harness: JobHarness) -> None:
    key = await harness.to_running(kept())
    await harness.end_pods("demo-worker-0", phase="Failed", exit_code=1)
    with (
        harness.failing(Conflict("modified"), "patch-status", PADDLE_JOBS, times=1),
        pytest.raises(Conflict),
    ):
        await harness.reconcile(key)
    assert "JobFailed" not in harness.facts()

    # Before the next pass the failed pod is gone, and the process with what it knew of it: the job goes on as
    # after a deletion, and ends well.
    await harness.delete(WORKER, PODS)
    await harness.restart()
    await harness.settle(key)
    await harness.run_pods()
    await harness.settle(key)
    await harness.end_pods()
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Completed"
    begun = ["JobStarting", "JobRunning"]
    assert harness.facts() == ["JobAccepted", *begun, "JobRestarted", *begun, "JobSucceeded"]


async def test_the_api_server_holds_every_fact_before_the_bus_does(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = harness.bus.publish

    async def compared(event: Event) -> None:
        recorded = await harness.announced(Key("default", "demo"))
        assert event.type.rpartition(".")[2] in recorded
        await publish(event)

    monkeypatch.setattr(harness.bus, "publish", compared)
    key = await harness.to_running(kept())
    await harness.end_pods()
    await harness.settle(key)
    await harness.delete(key)
    await harness.reconcile(key)
    assert harness.facts() == ["JobAccepted", "JobStarting", "JobRunning", "JobSucceeded", "JobDeleted"]


async def test_the_deletion_is_recorded_before_it_is_published_and_the_job_goes(harness: JobHarness) -> None:
    key = await harness.to_running(kept())
    await harness.delete(key)
    with harness.failing(Retry("ServerError"), "patch-status", PADDLE_JOBS), pytest.raises(Retry):
        await harness.reconcile(key)
    assert await harness.exists(key)
    assert "JobDeleted" not in harness.facts()
    await harness.reconcile(key)
    assert not await harness.exists(key)
    assert harness.facts()[-1] == "JobDeleted"


async def test_a_job_deleted_while_the_bus_is_down_loses_its_pods_at_once(harness: JobHarness) -> None:
    key = await harness.to_running(kept())
    with harness.bus_down():
        await harness.delete(key)
        await harness.drain_queue()
        assert await harness.pod_names() == []
        assert await harness.exists(key)
    await harness.advance(5)
    assert not await harness.exists(key)


async def test_killed_between_record_and_publish_the_next_process_publishes(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await harness.to_running(kept())
    await harness.end_pods()

    async def die(_: Event) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(harness.bus, "publish", die)
        with pytest.raises(asyncio.CancelledError):
            await harness.reconcile(key)
    assert (await harness.status(key))["phase"] == "Completed"
    assert harness.facts()[-1] == "JobRunning"
    await harness.restart()
    await harness.reconcile(key)
    assert harness.facts() == ["JobAccepted", "JobStarting", "JobRunning", "JobSucceeded"]


@pytest.mark.parametrize("pause", [0.0, 2.0 * JOBS.duplicate_window])
async def test_killed_between_publish_and_confirmation_nothing_is_stored_twice(
    harness: JobHarness, pause: float
) -> None:
    key = await harness.to_running(kept())
    assert (await harness.announced(key))["JobRunning"] is False
    await harness.restart()
    await harness.clock.advance(pause)
    await harness.drain_queue()
    await harness.advance(CONFIRM_GRACE_SECONDS)
    assert (await harness.announced(key))["JobRunning"] is True
    assert harness.facts() == ["JobAccepted", "JobStarting", "JobRunning"]


async def test_a_confirmation_goes_with_the_next_write(harness: JobHarness) -> None:
    key = await harness.to_running(kept())
    await harness.end_pods()
    with harness.counted_writes() as writes:
        await harness.reconcile(key)
    assert writes == {STATUS_WRITE: 1}
    assert (await harness.announced(key))["JobRunning"] is True
    assert (await harness.announced(key))["JobSucceeded"] is False


async def test_a_confirmation_that_no_write_takes_along_is_written_alone(harness: JobHarness) -> None:
    key = await harness.to_running(kept())
    with harness.counted_writes() as early:
        await harness.clock.advance(CONFIRM_GRACE_SECONDS - 0.01)
        await harness.reconcile(key)
    assert not early
    with harness.counted_writes() as writes:
        await harness.clock.advance(0.01)
        assert (await harness.reconcile(key)).requeue_after is None
    assert writes == {STATUS_WRITE: 1}
    assert (await harness.announced(key))["JobRunning"] is True


async def test_a_resync_of_settled_jobs_reads_writes_and_publishes_nothing(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, done = make_paddle_job("running", worker=make_role(2)), make_paddle_job("done")
    keys = [await harness.create(running), await harness.create(done)]
    await harness.drain_queue()
    await harness.advance(POD_CHANGE_BATCH_INTERVAL_SECONDS)
    await harness.run_pods()
    await harness.drain_queue()
    await harness.end_pods("done-worker-0")
    await harness.drain_queue()
    await harness.advance(CONFIRM_GRACE_SECONDS)
    assert [(await harness.status(key))["phase"] for key in keys] == ["Running", "Completed"]

    published: list[Event] = []

    async def publish(event: Event) -> None:
        published.append(event)

    monkeypatch.setattr(harness.bus, "publish", publish)
    before = harness.replica.passes.copy()
    with harness.recorded_calls() as calls:
        harness.replica.resync()
        await harness.drain_queue()
    assert (harness.replica.passes - before).keys() == set(keys)
    assert (calls, published) == ([], [])


async def test_own_writes_cause_no_pass(harness: JobHarness) -> None:
    key = await harness.create(kept())
    await harness.drain_queue()
    assert harness.replica.passes[key] == 1
    # The new pods are counted.
    await harness.advance(POD_CHANGE_BATCH_INTERVAL_SECONDS)
    assert harness.replica.passes[key] == 2
    for name in await harness.pod_names():
        await set_pod_status(harness.cluster, Key("default", name), "Running", ip="10.0.0.1")
    await harness.drain_queue()
    assert (await harness.status(key))["phase"] == "Running"
    assert harness.replica.passes[key] == 3
    # The first pod to run waited for others. Neither the ConfigMap nor the status causes a pass.
    await harness.advance(COUNTS_INTERVAL_SECONDS + POD_CHANGE_BATCH_INTERVAL_SECONDS)
    assert harness.replica.passes[key] == 4
    await harness.advance(CONFIRM_GRACE_SECONDS)
    confirmed = harness.replica.passes[key]
    await harness.advance(60)
    assert harness.replica.passes[key] == confirmed


async def test_another_writer_of_the_status_is_corrected(harness: JobHarness) -> None:
    key = await harness.to_running(kept())
    await harness.advance(CONFIRM_GRACE_SECONDS)
    await harness.set_status(key, {"phase": "Pending"})
    await harness.drain_queue()
    assert (await harness.status(key))["phase"] == "Running"
