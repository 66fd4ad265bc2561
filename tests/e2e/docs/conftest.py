"""The cluster as `make demo` leaves it."""

from __future__ import annotations

import asyncio

import pytest
from tests.e2e.test_digits import small_run

from paddlewheel.cli.target import Target


@pytest.fixture(scope="session")
def demo(paddlewheel_cluster: Target, tmp_path_factory: pytest.TempPathFactory) -> Target:
    """With the data set and the job of the demo."""
    asyncio.run(small_run(paddlewheel_cluster, tmp_path_factory.mktemp("model"), digits=1797))
    return paddlewheel_cluster
