"""A cluster with two nodes for each file in this folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from paddlewheel.devcluster.cluster import Cluster, running_cluster
from paddlewheel.devcluster.configs import KERNEL_SETTINGS
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.testkit.shared import TestRun


@pytest.fixture(scope="session")
def kernel_before() -> Mapping[str, str]:
    """The machine's kernel settings before any node of this session was started."""
    return {name: Path("/proc/sys", name).read_text() for name in KERNEL_SETTINGS}


@pytest.fixture(scope="module")
def two_nodes(kernel_before: Mapping[str, str], test_run: TestRun) -> Iterator[Cluster]:
    """A cluster of one file, which the other files of its worker do not need."""
    with running_cluster(ClusterSpec(name=test_run.claim_cluster("nodes"), nodes=2)) as running:
        yield running
