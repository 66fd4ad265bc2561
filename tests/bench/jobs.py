"""How much a PaddleJob costs over the pods it is made of."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from tests.bench import passes
from tests.bench.rows import Row
from tests.bench.stand import JOB_CONTROLLER, Stand, stand

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import NAMESPACES, PADDLE_JOBS, PODS
from paddlewheel.testkit.wait import eventually

WORKERS = 100
ROUNDS = 3
FAKE_NODES = 10
SPEC = {
    "containers": [{"name": "main", "image": "example/train:1", "resources": {"requests": {"cpu": "10m"}}}]
}
RELEASE = {"metadata": {"annotations": {"example.org/released": "true"}}}
"""What the gate writes into every pod of a job."""


async def measure() -> list[Row]:
    """The service's own code, then the whole on a real API server."""
    return [*await passes.measure(), *await _measure_jobs()]


async def _measure_jobs() -> list[Row]:
    """Job: from create to phase Running, all pods released by the gate. Medians of the rounds.

    Two floors: as many bare pods until all run; the same, then as many patches as the gate needs.
    """
    async with stand(FAKE_NODES) as made:
        await made.start(JOB_CONTROLLER)
        bare: list[float] = []
        patched: list[float] = []
        jobs, writes = [], []
        for round_number in range(ROUNDS):
            namespace = f"bench-{round_number}"
            await made.cluster.create(NAMESPACES, {"metadata": {"name": namespace}})
            running, with_patches = await _bare_pods(made, namespace)
            bare.append(running)
            patched.append(with_patches)
            before = await made.writes()
            jobs.append(await _job(made, namespace))
            writes.append(await made.writes() - before)
    job = statistics.median(jobs)
    return [
        Row("jobs.floor_100_bare_pods_running", statistics.median(bare), 120.0, "s"),
        Row("jobs.floor_100_bare_pods_running_and_patched", statistics.median(patched), 120.0, "s"),
        Row("jobs.job_100_workers_running", job, 120.0, "s"),
        Row("jobs.job_100_workers_over_bare_pods", job / statistics.median(bare), 3.0, "x"),
        Row("jobs.job_100_workers_over_patched_pods", job / statistics.median(patched), 2.0, "x"),
        Row("jobs.api_writes_per_worker", statistics.median(writes) / WORKERS, 2.2, ""),
    ]


async def _bare_pods(made: Stand, namespace: str) -> tuple[float, float]:
    """Seconds until all run; until each has been patched as well."""
    start = time.monotonic()
    pods = [{"metadata": {"name": f"bare-{i}", "namespace": namespace}, "spec": SPEC} for i in range(WORKERS)]
    await asyncio.gather(*(made.cluster.create(PODS, pod) for pod in pods))

    async def all_running() -> bool:
        return all(p["status"].get("phase") == "Running" for p in await made.cluster.list(PODS, namespace))

    await eventually(all_running, within=120, every=0.1, what="bare pods running")
    running = time.monotonic() - start
    keys = [Key(namespace, f"bare-{i}") for i in range(WORKERS)]
    await asyncio.gather(*(made.cluster.patch(PODS, key, RELEASE) for key in keys))
    patched = time.monotonic() - start
    await asyncio.gather(*(made.cluster.delete(PODS, key, grace_seconds=0) for key in keys))
    return running, patched


async def _job(made: Stand, namespace: str) -> float:
    start = time.monotonic()
    await made.cluster.create(PADDLE_JOBS, _manifest(namespace))

    async def running() -> bool:
        return await _phase(made, namespace) == "Running"

    await eventually(running, within=120, every=0.1, what="job running")
    seconds = time.monotonic() - start
    await made.cluster.delete(PADDLE_JOBS, Key(namespace, "big"))
    return seconds


async def _phase(made: Stand, namespace: str) -> str:
    job = await made.cluster.get(PADDLE_JOBS, Key(namespace, "big"))
    return str(job.get("status", {}).get("phase", ""))


def _manifest(namespace: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "big", "namespace": namespace},
        "spec": {"worker": {"replicas": WORKERS, "template": {"spec": SPEC}}},
    }
