"""The API server, or the bus, is away for half a minute: nothing is parked or doubled, and one sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.integration.trigger_controller.conftest import EVENT, TriggerServiceHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.devcluster.cluster import Cluster
from paddlewheel.kube.ports import SAMPLE_JOBS, Objects
from paddlewheel.testkit.kubernetes import install, kill_api_server, own_control_plane
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.triggers import make_trigger
from paddlewheel.testkit.wait import eventually

AWAY = 30.0
"""Seconds: longer than all retries of a message together take by the consumer's backoff."""
MANY = 60
DEADLINE = "5"


@pytest.fixture(scope="module")
def control_plane(test_run: TestRun) -> Iterator[Cluster]:
    """Of these tests alone: its API server is kept down."""
    with own_control_plane(test_run, "outages") as started:
        yield started


@pytest.fixture(scope="module")
def api_server(control_plane: Cluster, pytestconfig: pytest.Config) -> str:
    crds = pytestconfig.rootpath / "deploy/charts/paddlewheel/files/crds"
    asyncio.run(install(str(control_plane.kubeconfig), crds))
    return str(control_plane.kubeconfig)


async def _keep_down(control_plane: Cluster) -> None:
    """kill -9 whenever its supervisor has started it again."""
    while True:
        with suppress(LookupError):
            await asyncio.to_thread(kill_api_server, control_plane)
        await asyncio.sleep(0.2)


async def test_the_bus_is_away_for_30_s(harness: TriggerServiceHarness) -> None:
    await harness.serve(HANDLER_DEADLINE=DEADLINE)
    key = await harness.watched(make_trigger())
    for number in range(MANY):
        await harness.publish_ready(f"e-{number}", name=f"set-{number}")
        if number == MANY // 2:
            await asyncio.to_thread(harness.nats.stop)
            await asyncio.sleep(AWAY)
            await asyncio.to_thread(harness.nats.start)
    await _all_are_handled(harness, key)


# Last, for afterwards the controller manager takes a while to lead again.


async def test_the_api_server_is_away_for_30_s(
    harness: TriggerServiceHarness, control_plane: Cluster
) -> None:
    await harness.serve(HANDLER_DEADLINE=DEADLINE)
    key = await harness.watched(make_trigger())
    killing = asyncio.create_task(_keep_down(control_plane))
    try:
        for number in range(MANY):
            await harness.publish_ready(f"e-{number}", name=f"set-{number}")
        await asyncio.sleep(AWAY)
        status, text = await harness.readiness()
        assert status == 503
        assert "trigger-controller-datasets has handled one message for" in text
    finally:
        await end(killing)
    await _all_are_handled(harness, key)


async def _all_are_handled(harness: TriggerServiceHarness, key: Key) -> None:
    jobs = await eventually(lambda: _jobs(harness), within=120, what=f"{MANY} jobs")
    assert len({job["metadata"]["annotations"][EVENT] for job in jobs}) == MANY
    await eventually(lambda: _is_counted(harness, key), within=60, what="all is counted")
    await eventually(lambda: len(harness.events) >= MANY, within=60, what="all facts")
    assert len({event.id for event in harness.events}) == len(harness.events) == MANY
    assert [letter async for letter in harness.bus.dead_letters.list()] == []
    await eventually(lambda: _is_ready(harness), within=60, what="it is ready")


async def _jobs(harness: TriggerServiceHarness) -> Objects | None:
    with suppress(Retry):
        jobs = await harness.objects(SAMPLE_JOBS)
        return jobs if len(jobs) == MANY else None
    return None


async def _is_counted(harness: TriggerServiceHarness, key: Key) -> bool:
    status = await harness.status(key)
    return (status.get("fired"), status.get("events"), "deferred" in status) == (MANY, MANY, False)


async def _is_ready(harness: TriggerServiceHarness) -> bool:
    return (await harness.readiness())[0] == 200
