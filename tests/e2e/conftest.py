"""One embedded cluster with two nodes and Paddlewheel on it, for all end-to-end tests of a session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from paddlewheel.cli.demo.model import DemoOptions, Outcome
from paddlewheel.cli.demo.prepare import prepare_cluster
from paddlewheel.cli.demo.view import SilentView
from paddlewheel.cli.target import Target
from paddlewheel.devcluster.cluster import down


@pytest.fixture(scope="session")
def paddlewheel_cluster() -> Iterator[Target]:
    """A cluster of this test session alone; gone afterwards, whatever happened."""
    name = f"e2e-{os.getpid()}"
    try:
        yield asyncio.run(prepare_cluster(DemoOptions(name=name), SilentView(), Outcome()))
    finally:
        down(name)
