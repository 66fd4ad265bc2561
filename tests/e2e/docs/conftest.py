"""The cluster as `make demo` leaves it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.e2e.test_digits import small_run

from paddlewheel.cli.target import Target


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the demo's model."""
    return tmp_path_factory.mktemp("model")


@pytest.fixture(scope="session")
def demo(paddlewheel_cluster: Target, model: Path) -> Target:
    """With the data set, the job and the service of the demo."""
    asyncio.run(small_run(paddlewheel_cluster, model, digits=1797))
    return paddlewheel_cluster
