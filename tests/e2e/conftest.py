"""One embedded cluster with two nodes and Paddlewheel installed, for all end-to-end tests of a session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from paddlewheel.cli.demo.model import DemoOptions, Outcome
from paddlewheel.cli.demo.prepare import prepare_cluster
from paddlewheel.cli.demo.view import SilentView
from paddlewheel.cli.target import Target
from paddlewheel.devcluster.cluster import down
from paddlewheel.testkit.rights import keep
from paddlewheel.testkit.shared import TestRun

RUNTIME_SETTINGS = {"DATASET_CONTROLLER_RUNTIME_SETTINGS": json.dumps({"CHUNK_FILES": "20"})}
SMALL_CHUNKS = f"datasetController.extraEnv={json.dumps(RUNTIME_SETTINGS)}"
"""Small chunks, so that a fault can be injected in the middle of a small warmup."""


def services_on(node: str) -> str:
    """The setting by which the services and the bus run on one node, so that a test can crash the other."""
    return f"nodeSelector={json.dumps({'kubernetes.io/hostname': node})}"


@pytest.fixture(scope="session")
def paddlewheel_cluster(test_run: TestRun) -> Iterator[Target]:
    """A cluster of this test session, removed afterwards in any case."""
    name = test_run.claim_cluster("e2e")
    try:
        options, values = DemoOptions(name=name), [SMALL_CHUNKS, services_on(f"{name}-1")]
        yield asyncio.run(prepare_cluster(options, SilentView(), Outcome(), values=values))
    finally:
        keep(name)
        down(name)
