"""A bus with token authentication for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddlewheel.kube.api import ApiCluster
from paddlewheel.testkit.bus_auth import BusAuthStand, standing


@pytest.fixture
async def stand(
    cluster: ApiCluster, api_server: str, namespace: str, tmp_path: Path
) -> AsyncIterator[BusAuthStand]:
    """bus-auth, the chart's NATS server, and a namespace of this test alone as home of the release."""
    async with standing(cluster, api_server, namespace, tmp_path) as started:
        yield started
