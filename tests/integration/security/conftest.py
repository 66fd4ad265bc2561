"""A server with the chart's configuration, for all tests of this folder that need no other settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paddlewheel.bus.streams import STREAMS
from paddlewheel.testkit.chart_bus import BUS_ANSWER_TIMEOUT_SECONDS, ChartBus, emptied, guest, running


@pytest.fixture(scope="package")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChartBus]:
    """The server, with the streams that the test before has left."""
    with running(tmp_path_factory.mktemp("bus")) as started:
        yield started


@pytest.fixture
async def empty_bus(bus: ChartBus) -> ChartBus:
    """The server without streams."""
    return await emptied(bus)


@pytest.fixture
async def provided(empty_bus: ChartBus) -> ChartBus:
    """The server with every declared stream, empty."""
    async with guest(empty_bus, "operator") as operator:
        js = operator.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
        for spec in STREAMS:
            await js.add_stream(name=spec.name, subjects=list(spec.subjects), allow_direct=True)
    return empty_bus
