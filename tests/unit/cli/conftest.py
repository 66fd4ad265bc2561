"""The command in this process, and the facts that the demo waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner, Result

from paddlewheel.cli.app import app
from paddlewheel.cli.demo.facts import Facts
from paddlewheel.cli.table import Table, print_page
from paddlewheel.core.tasks import end
from paddlewheel.testkit.memory_bus import MemoryBus


@pytest.fixture
def paddlewheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Result]]:
    """Runs `paddlewheel <arguments>` in a wide terminal; the logging it sets up is taken back."""
    root, config = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    for variable in ("KUBECONFIG", "NATS_URL", "PADDLEWHEEL_CLUSTER", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield lambda *arguments: CliRunner(env={"COLUMNS": "500"}).invoke(app, arguments)
    root.handlers[:], root.level = handlers, level
    structlog.configure(**config)


def text_of(*parts: Table | str) -> str:
    """Tables and lines as a pipe gets them."""
    with redirect_stdout(StringIO()) as out:
        print_page(parts)
    return out.getvalue()


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
