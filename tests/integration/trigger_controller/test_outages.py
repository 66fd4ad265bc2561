"""The API server, or the bus, is away for half a minute: nothing is parked or doubled, and one sees it.

The other controllers run beside: an outage takes as long for all of them as for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial

import pytest
from tests.integration.dataset_controller.conftest import DATASET_CONTROLLER
from tests.integration.job_controller.conftest import JOB_CONTROLLER
from tests.integration.serving_controller.conftest import SERVING_CONTROLLER
from tests.integration.serving_controller.conftest import install as install_kind
from tests.integration.trigger_controller.conftest import EVENT, TriggerServiceHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.devcluster.cluster import Cluster
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import (
    HTTP_ROUTES,
    PADDLE_JOBS,
    PADDLE_SERVICES,
    SAMPLE_JOBS,
    SAMPLE_SETS,
    SECRETS,
    Object,
    Objects,
    Resource,
)
from paddlewheel.testkit.kubernetes import kill_api_server, own_servers
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role
from paddlewheel.testkit.paddleservices import make_service
from paddlewheel.testkit.samplesets import make_sample_set, make_secret
from paddlewheel.testkit.service_harness import Backends, ServiceHarness
from paddlewheel.testkit.services import Service
from paddlewheel.testkit.triggers import make_trigger
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

OUTAGE_TIMEOUT_SECONDS = 30.0
"""Seconds: longer than all retries of a message together take by the consumer's backoff."""
MANY = 60
DEADLINE = "5"


# Of these tests alone: its API server is kept down.
control_plane, api_server = own_servers("outages")


@pytest.fixture
async def beside(
    backends: Backends, cluster: ApiCluster, harness: TriggerServiceHarness
) -> AsyncIterator[Mapping[str, Service]]:
    """The other controllers, each with an object that it has dealt with."""
    specs = (JOB_CONTROLLER, DATASET_CONTROLLER, SERVING_CONTROLLER)
    harnesses = {spec.module: ServiceHarness(spec, backends) for spec in specs}
    await install_kind(cluster, HTTP_ROUTES)
    try:
        services = {
            name: await each.start_process(name.replace("_", "-")) for name, each in harnesses.items()
        }
        await _are_dealt_with(harness, "before")
        yield services
    finally:
        await asyncio.gather(*(each.stop() for each in harnesses.values()))
        # Or the namespace would stay.
        for obj in await harness.objects(SAMPLE_SETS):
            key = harness.key(obj["metadata"]["name"])
            await harness.cluster.patch(SAMPLE_SETS, key, {"metadata": {"finalizers": None}})


async def _are_dealt_with(harness: TriggerServiceHarness, name: str) -> None:
    """Objects made now get a status, and the facts in it are published."""
    job = make_paddle_job(f"job-{name}", worker=make_role(1))
    service = make_service(f"service-{name}", mode="Kubernetes")
    keys = {
        PADDLE_JOBS: await harness.create(job, PADDLE_JOBS),
        PADDLE_SERVICES: await harness.create(service, PADDLE_SERVICES),
    }
    await harness.create(make_secret(f"set-{name}"), SECRETS)
    keys[SAMPLE_SETS] = await harness.create(make_sample_set(f"set-{name}"), SAMPLE_SETS)
    for resource, key in keys.items():
        is_told = partial(_is_told, harness, resource, key)
        await eventually(is_told, what=f"{resource.kind} {key} is dealt with")


async def _is_told(harness: TriggerServiceHarness, resource: Resource, key: Key) -> bool:
    status: Object = await harness.status(key, resource)
    is_published = all(fact["announced"] for fact in status.get("announcements") or ())
    return bool(status.get("conditions")) and is_published


async def _keep_down(control_plane: Cluster) -> None:
    """kill -9 whenever its supervisor has started it again."""
    while True:
        with suppress(LookupError):
            await asyncio.to_thread(kill_api_server, control_plane)
        await asyncio.sleep(0.2)


async def test_the_bus_is_away_for_30_s(
    harness: TriggerServiceHarness, beside: Mapping[str, Service]
) -> None:
    await harness.serve(HANDLER_DEADLINE=DEADLINE)
    key = await harness.watched(make_trigger())
    for number in range(MANY):
        await harness.publish_ready(f"e-{number}", name=f"set-{number}")
        if number == MANY // 2:
            await asyncio.to_thread(harness.nats.stop)
            await asyncio.sleep(OUTAGE_TIMEOUT_SECONDS)
            await asyncio.to_thread(harness.nats.start)
    await _all_are_handled(harness, key)
    await _have_survived(harness, beside)


# Last, for afterwards the controller manager takes a while to lead again.


async def test_the_api_server_is_away_for_30_s(
    harness: TriggerServiceHarness, beside: Mapping[str, Service], control_plane: Cluster
) -> None:
    await harness.serve(HANDLER_DEADLINE=DEADLINE)
    key = await harness.watched(make_trigger())
    killing = asyncio.create_task(_keep_down(control_plane))
    try:
        for number in range(MANY):
            await harness.publish_ready(f"e-{number}", name=f"set-{number}")
        await asyncio.sleep(OUTAGE_TIMEOUT_SECONDS)

        async def is_seen() -> bool:
            status, text = await harness.readiness()
            return status == 503 and "trigger-controller-datasets has handled one message for" in text

        await eventually(is_seen, what="it says what it has not handled")
    finally:
        await end(killing)
    await _all_are_handled(harness, key)
    await _have_survived(harness, beside)


async def _all_are_handled(harness: TriggerServiceHarness, key: Key) -> None:
    jobs = await eventually(lambda: _jobs(harness), within=120, what=f"{MANY} jobs")
    assert len({job["metadata"]["annotations"][EVENT] for job in jobs}) == MANY
    await eventually(lambda: _is_counted(harness, key), what="all is counted")
    await eventually(lambda: len(harness.events) >= MANY, what="all facts")
    assert len({event.id for event in harness.events}) == len(harness.events) == MANY
    assert [letter async for letter in harness.bus.dead_letters.list()] == []
    await eventually(lambda: _is_ready(harness), what="it is ready")


async def _have_survived(harness: TriggerServiceHarness, beside: Mapping[str, Service]) -> None:
    """No process has ended, each goes on with its work, and no message of any was parked."""
    assert {name: service.exit_code for name, service in beside.items()} == dict.fromkeys(beside)
    await _are_dealt_with(harness, "after")
    assert [letter async for letter in harness.bus.dead_letters.list()] == []


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
