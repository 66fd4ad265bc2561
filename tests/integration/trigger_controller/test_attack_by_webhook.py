"""A namespace whose admission webhook fails tries to stop the triggers of others (`make attacks`)."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.trigger_controller.conftest import EVENT, TriggerServiceHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.devcluster.cluster import Cluster
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import NAMESPACES, SAMPLE_JOBS, TRIGGERS
from paddlewheel.testkit.admission import Asked, FailingWebhook, failing_webhook
from paddlewheel.testkit.kubernetes import own_servers
from paddlewheel.testkit.service_harness import Backends
from paddlewheel.testkit.suites import long_after
from paddlewheel.testkit.triggers import WARMUP, make_ready, make_trigger
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.timeout(900)

MANY = 80
"""Events for each of two namespaces; a consumer takes 32 at a time."""
GROUPS = {
    "samplejobs": ("batch.paddlepaddle.org", "CREATE"),
    "triggers/status": ("events.paddlepaddle.org", "UPDATE"),
}

# Of these tests alone: the service reconciles the triggers of all namespaces.
control_plane, api_server = own_servers("triggers")


@pytest.fixture
async def neighbour(cluster: ApiCluster) -> AsyncIterator[str]:
    """The namespace of another team."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    await cluster.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    await cluster.delete(NAMESPACES, Key("", name))


@pytest.fixture(params=long_after(1, sorted(GROUPS)))
async def webhook(
    request: pytest.FixtureRequest,
    control_plane: Cluster,
    cluster: ApiCluster,
    backends: Backends,
    tmp_path: Path,
) -> AsyncIterator[FailingWebhook]:
    """Refuses what the service writes into the namespace of the test."""
    namespace, resource = backends.namespace, str(request.param)
    group, operation = GROUPS[resource]
    asked = Asked(namespace, group, "v1alpha1", resource, operation)

    async def is_in_force() -> bool:
        try:
            if operation == "CREATE":
                probe = {"metadata": {"namespace": namespace, "name": "probe"}, **WARMUP}
                await cluster.create(SAMPLE_JOBS, probe)
                await cluster.delete(SAMPLE_JOBS, Key(namespace, "probe"))
            else:
                probe = {"status": {"reason": uuid.uuid4().hex}}
                await cluster.patch(TRIGGERS, Key(namespace, "warm"), probe, subresource="status")
        except Retry:
            return True
        return False

    await cluster.create(TRIGGERS, make_trigger(namespace=namespace))
    folder = tmp_path / "ca"
    async with failing_webhook(cluster, control_plane, asked, folder, is_in_force) as failing:
        yield failing


async def test_attack_a_namespace_whose_admission_webhook_answers_500_stops_others(
    harness: TriggerServiceHarness, webhook: FailingWebhook, neighbour: str
) -> None:
    """The other fires all of its own meanwhile, and kill -9 in the middle loses and doubles nothing."""
    ours, theirs = Key(harness.namespace, "warm"), Key(neighbour, "warm")
    made: dict[str, set[str]] = {}
    watching = [asyncio.create_task(_remember(harness, key.namespace, made)) for key in (ours, theirs)]
    try:
        await harness.cluster.create(TRIGGERS, make_trigger(namespace=neighbour))
        service = await harness.start_process(NAMESPACE="")
        await eventually(lambda: _is_seen(harness, theirs), what="both triggers are seen")
        for number in range(MANY):
            for namespace in (ours.namespace, theirs.namespace):
                event = f"{namespace}-{number}"
                await harness.publish(make_ready(event, namespace, name=event))
            if number == MANY // 2:
                await service.kill()
                await service.start()
        await eventually(lambda: _count(harness, neighbour, MANY), what="the neighbour's jobs")
        await harness.wait_status(theirs, {"fired": MANY, "events": MANY})
        assert webhook.asked
        assert not (await harness.status(ours)).get("fired")
        await service.kill()
        webhook.is_broken = False
        await service.start()
        await eventually(lambda: _count(harness, ours.namespace, MANY), within=150, what="the jobs of all")
        await harness.wait_status(ours, {"fired": MANY, "events": MANY})
        await eventually(lambda: _is_caught_up(harness, ours), what="no event is deferred")
        await eventually(lambda: len(made) >= 2 * MANY, what="all jobs were seen")
    finally:
        await end(*watching)
    assert len(made) == 2 * MANY
    assert all(len(uids) == 1 for uids in made.values())
    await eventually(lambda: len(_fired(harness, ours, theirs)) >= 2 * MANY)
    ids = Counter(_fired(harness, ours, theirs))
    assert len(ids) == 2 * MANY == sum(ids.values())
    assert [letter async for letter in harness.bus.dead_letters.list()] == []


def _fired(harness: TriggerServiceHarness, *triggers: Key) -> list[str]:
    """Without the facts of triggers of an earlier test, which come back on the new bus."""
    places = {key.namespace for key in triggers}
    return [event.id for event in harness.events if event.subject.split(".")[-2] in places]


async def _is_seen(harness: TriggerServiceHarness, key: Key) -> bool:
    return "observedGeneration" in await harness.status(key)


async def _is_caught_up(harness: TriggerServiceHarness, key: Key) -> bool:
    return "deferred" not in await harness.status(key)


async def _count(harness: TriggerServiceHarness, namespace: str, wanted: int) -> bool:
    return len(await harness.cluster.list(SAMPLE_JOBS, namespace)) == wanted


async def _remember(harness: TriggerServiceHarness, namespace: str, made: dict[str, set[str]]) -> None:
    async for change in harness.cluster.watch(SAMPLE_JOBS, namespace):
        meta = change.obj["metadata"]
        if event := (meta.get("annotations") or {}).get(EVENT):
            made.setdefault(event, set()).add(meta["uid"])
