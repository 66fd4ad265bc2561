"""A client of a real NATS server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from paddlewheel.bus.nats import NatsBus


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    bus = NatsBus(nats_url)
    yield bus
    await bus.close()
