"""The informer and the client on an API server that is killed and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import AlreadyExists, Permanent, Retry
from paddlewheel.devcluster.cluster import Cluster
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import CONFIG_MAPS, Object
from paddlewheel.testkit.kubernetes import kill_api_server, own_control_plane
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long


def config(namespace: str, name: str, value: str = "1") -> Object:
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": {"own": "y"}},
        "data": {"value": value},
    }


@pytest.fixture(scope="module")
def control_plane(test_run: TestRun) -> Iterator[Cluster]:
    """Of these tests alone, for they kill its API server."""
    with own_control_plane(test_run, "restart") as started:
        yield started


@pytest.fixture(scope="module")
def api_server(control_plane: Cluster) -> str:
    return str(control_plane.kubeconfig)


@pytest.fixture
async def configs(cluster: ApiCluster, namespace: str) -> AsyncIterator[Informer]:
    informer = Informer(cluster, CONFIG_MAPS, namespace, clock=SystemClock(), label_selector="own=y")
    task = asyncio.create_task(informer.run())
    await asyncio.wait_for(informer.wait_synced(), 90)
    yield informer
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def write_when_back(cluster: ApiCluster, obj: Object) -> bool:
    try:
        await cluster.create(CONFIG_MAPS, obj)
    except Retry:
        return False
    except Permanent as error:
        if "not yet ready to handle request" not in error.message:
            raise
        return False
    except AlreadyExists:
        # The server was killed between the effect and the answer of an earlier try.
        return True
    return True


async def test_an_informer_survives_kill_9_of_the_api_server(
    control_plane: Cluster, cluster: ApiCluster, namespace: str, configs: Informer
) -> None:
    for name in ("stays", "changes", "goes"):
        await cluster.create(CONFIG_MAPS, config(namespace, name))
    await eventually(lambda: len(configs.list()) == 3)

    kill_api_server(control_plane)
    await eventually(lambda: write_when_back(cluster, config(namespace, "comes")))
    await cluster.patch(CONFIG_MAPS, Key(namespace, "changes"), {"data": {"value": "2"}})
    await cluster.delete(CONFIG_MAPS, Key(namespace, "goes"))

    def view() -> dict[str, str]:
        return {key_of(obj).name: obj["data"]["value"] for obj in configs.list()}

    await eventually(lambda: view() == {"stays": "1", "changes": "2", "comes": "1"})


async def test_a_call_while_the_server_is_away_is_a_retry(
    control_plane: Cluster, cluster: ApiCluster, namespace: str
) -> None:
    kill_api_server(control_plane)
    with pytest.raises(Retry):
        await cluster.get(CONFIG_MAPS, Key(namespace, "any"))
    await eventually(lambda: write_when_back(cluster, config(namespace, "after")))
