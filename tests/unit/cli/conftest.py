"""The command in this process, and the facts that the demo waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime

import pytest
import structlog
from typer.testing import CliRunner, Result

from paddlewheel.cli.app import app
from paddlewheel.cli.demo.facts import Facts
from paddlewheel.core.tasks import end
from paddlewheel.testkit.memory_bus import MemoryBus


@pytest.fixture
def paddlewheel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """Runs `paddlewheel <arguments>` in a wide terminal; the logging it sets up is taken back."""
    root, config = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    for variable in ("KUBECONFIG", "NATS_URL"):
        monkeypatch.delenv(variable, raising=False)
    yield lambda *arguments: CliRunner(env={"COLUMNS": "500"}).invoke(app, arguments)
    root.handlers[:], root.level = handlers, level
    structlog.configure(**config)


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus()


@pytest.fixture
async def facts(bus: MemoryBus) -> AsyncIterator[Facts]:
    """Of this bus, from the first one on."""
    made = Facts(bus, datetime(2020, 1, 1, tzinfo=UTC), lambda _: None)
    listening = asyncio.create_task(made.listen())
    yield made
    await end(listening)
