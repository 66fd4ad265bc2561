"""One cluster with two nodes for the tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from paddlewheel.devcluster.cluster import Cluster, running_cluster
from paddlewheel.devcluster.spec import ClusterSpec


@pytest.fixture(scope="session")
def two_nodes() -> Iterator[Cluster]:
    """A cluster of this test session alone."""
    with running_cluster(ClusterSpec(name=f"nodes-{os.getpid()}", nodes=2)) as running:
        yield running
