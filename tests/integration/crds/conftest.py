"""A client of the test run's API server, and admission policies that are in force."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
from tests.integration.crds.api import Api, make, opened

from paddlewheel.testkit.kubernetes import run_kubectl
from paddlewheel.testkit.wait import eventually

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def kubectl(api_server: str) -> Kubectl:
    """Run kubectl against the test's API server."""
    return partial(run_kubectl, api_server, timeout=240)


@pytest.fixture
async def api(api_server: str) -> AsyncIterator[Api]:
    """One client for all requests of a test."""
    async with opened(api_server) as client:
        yield client


@pytest.fixture(scope="session")
def policies(api_server: str) -> None:
    """Admission policies take effect a moment after they are installed; each is probed."""
    warned = (
        make("PaddleJob", {"spec.cleanPodPolicy": "Nerver"}),
        make("SampleSet", {"spec.source": None}),
        make("SampleJob", {"spec.syncOptions": {}}),
    )
    refused = make("PaddleJob", {"spec.sampleSetRef": {"name": "s", "namespace": "x", "mountPath": "/d"}})

    async def wait() -> None:
        async with opened(api_server) as api:

            async def active() -> bool:
                answers = [await api.send(manifest) for manifest in warned]
                return all(each.warnings for each in answers) and bool((await api.send(refused)).error)

            await eventually(active, every=0.3, what="admission policies")

    asyncio.run(wait())
