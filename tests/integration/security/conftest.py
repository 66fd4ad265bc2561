"""Servers with the chart's configuration: one for all tests of this folder, and empty ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlewheel.bus.streams import STREAMS
from paddlewheel.testkit.chart_bus import PATIENCE, ChartBus, guest, running


@pytest.fixture(scope="package")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChartBus]:
    """One server for all tests of this folder; who needs streams uses `provided`."""
    with running(tmp_path_factory.mktemp("bus")) as started:
        yield started


@pytest.fixture
def empty_bus(tmp_path: Path) -> Iterator[ChartBus]:
    """A server for this test alone, without streams."""
    with running(tmp_path / "bus") as started:
        yield started


@pytest.fixture
async def provided(bus: ChartBus) -> ChartBus:
    """The server with every declared stream."""
    async with guest(bus, "operator") as operator:
        js = operator.client.jetstream(timeout=PATIENCE)
        for spec in STREAMS:
            await js.add_stream(name=spec.name, subjects=list(spec.subjects), allow_direct=True)
    return bus
