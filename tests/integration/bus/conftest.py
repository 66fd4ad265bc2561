"""What the tests of the bus on a real server share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from paddlewheel.bus.nats import NatsBus


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    """A bus with its streams, on an empty server of this test alone."""
    bus = NatsBus(nats_url)
    await bus.start()
    yield bus
    await bus.close()
