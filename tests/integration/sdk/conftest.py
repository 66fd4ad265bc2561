"""A bus to publish on, and facts about jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from paddlewheel.bus.ports import Bus
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.patient_bus import connect


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    """As a service holds it: makes the streams."""
    connected = await connect(nats_server.url, name="test")
    yield connected
    await connected.close()
