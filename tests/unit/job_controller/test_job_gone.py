"""A job that went a moment ago, which the cache does not know yet."""

from __future__ import annotations

import pytest
from job_controller.cluster import KubernetesJobs

from job_controller.domain.parse import parse_job
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import ManualClock
from paddlewheel.core.errors import Conflict
from paddlewheel.kube.memory import MemoryCluster
from paddlewheel.kube.ports import PADDLE_JOBS
from paddlewheel.testkit.paddlejobs import make_paddle_job


async def test_writing_to_it_is_a_conflict_and_no_bug() -> None:
    cluster, clock = MemoryCluster(), ManualClock()
    jobs = KubernetesJobs(cluster, cluster, "", clock)
    job = parse_job(await cluster.create(PADDLE_JOBS, make_paddle_job()))
    await cluster.delete(PADDLE_JOBS, Key("default", "demo"))
    with pytest.raises(Conflict, match="default/demo is gone"):
        await jobs.patch_metadata(job, {"finalizers": []})
    with pytest.raises(Conflict, match="default/demo is gone"):
        await jobs.patch_status(job, {"phase": "Terminating"})
