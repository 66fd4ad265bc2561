"""Buses with token authentication: one for all tests that leave it as it is, and one for a test alone."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from paddlewheel.contracts.keys import Key
from paddlewheel.kube import connect
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import NAMESPACES
from paddlewheel.testkit.bus_auth import BusAuthStand, standing


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def release(api_server: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BusAuthStand]:
    """bus-auth, the chart's NATS server, and the namespace of the release."""
    async with await connect(api_server) as cluster:
        name = f"test-{uuid.uuid4().hex[:10]}"
        await cluster.create(NAMESPACES, {"metadata": {"name": name}})
        async with standing(cluster, api_server, name, tmp_path_factory.mktemp("release")) as started:
            yield started
        await cluster.delete(NAMESPACES, Key("", name))


@pytest.fixture
async def stand(release: BusAuthStand, cluster: ApiCluster, namespace: str) -> AsyncIterator[BusAuthStand]:
    """The servers of all tests, with a namespace of this test alone."""
    lent = release.lent(cluster, namespace)
    yield lent
    await lent.clean_up()


@pytest.fixture
async def own_stand(
    cluster: ApiCluster, api_server: str, namespace: str, tmp_path: Path
) -> AsyncIterator[BusAuthStand]:
    """Servers of this test alone, which it may stop and start."""
    async with standing(cluster, api_server, namespace, tmp_path) as started:
        yield started
