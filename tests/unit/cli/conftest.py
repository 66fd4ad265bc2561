"""The command in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
import structlog
from typer.testing import CliRunner, Result

from paddlewheel.cli.app import app


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
