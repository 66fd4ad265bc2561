"""What the benches of jobs share: bare pods as a floor, and jobs of pods that kwok plays."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.bench.stand import Stand

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import NAMESPACES, PADDLE_JOBS, PODS, Resource
from paddlewheel.operator.concurrency import gather_bounded
from paddlewheel.testkit.wait import eventually

Phases = Callable[[], Counter[str]]
"""Objects by phase."""
SPEC = {
    "terminationGracePeriodSeconds": 0,
    "containers": [{"name": "main", "image": "example/train:1", "resources": {"requests": {"cpu": "10m"}}}],
}


async def make_namespace(made: Stand, name: str) -> str:
    await made.cluster.create(NAMESPACES, {"metadata": {"name": f"bench-{name}"}})
    return f"bench-{name}"


@asynccontextmanager
async def watched(made: Stand, resource: Resource, namespace: str) -> AsyncIterator[Phases]:
    """Yields what counts the objects by phase, as a watch tells: lists would burden what is measured."""
    store = Informer(made.cluster, resource, namespace, clock=SystemClock())
    following = asyncio.create_task(store.run())
    try:
        await store.wait_synced()
        yield lambda: Counter((obj.get("status") or {}).get("phase", "") for obj in store.list())
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def bare_pods(made: Stand, namespace: str, count: int) -> float:
    """Seconds until all run; they are gone afterwards."""
    async with watched(made, PODS, namespace) as phases:
        start = time.monotonic()
        await make_pods(made, namespace, count, phases)
        seconds = time.monotonic() - start
        await delete_pods(made, namespace, count, phases)
        return seconds


async def make_pods(made: Stand, namespace: str, count: int, phases: Phases, name: str = "bare") -> None:
    pods = ({"metadata": {"name": f"{name}-{i}", "namespace": namespace}, "spec": SPEC} for i in range(count))
    await gather_bounded(made.cluster.create(PODS, pod) for pod in pods)
    await eventually(lambda: phases()["Running"] == count, within=600, every=0.05, what="bare pods running")


async def delete_pods(made: Stand, namespace: str, count: int, phases: Phases, name: str = "bare") -> None:
    keys = [Key(namespace, f"{name}-{i}") for i in range(count)]
    await gather_bounded(made.cluster.delete(PODS, key) for key in keys)
    await eventually(lambda: not phases(), within=120, every=0.05, what="bare pods gone")


async def run_big(made: Stand, namespace: str, spec: dict[str, Any]) -> float:
    """Seconds until the job `big` runs."""
    start = time.monotonic()
    await made.cluster.create(PADDLE_JOBS, manifest(namespace, "big", spec))

    async def running() -> bool:
        return await _phase(made, namespace) == "Running"

    await eventually(running, within=600, every=0.1, what="job running")
    return time.monotonic() - start


async def _phase(made: Stand, namespace: str) -> str:
    job = await made.cluster.get(PADDLE_JOBS, Key(namespace, "big"))
    return str(job.get("status", {}).get("phase", ""))


async def drop_jobs(made: Stand, namespace: str) -> None:
    """Return when the namespace has no pods any more: what still ends would burden what is measured next."""
    jobs = await made.cluster.list(PADDLE_JOBS, namespace)
    await gather_bounded(made.cluster.delete(PADDLE_JOBS, key_of(job)) for job in jobs)
    async with watched(made, PODS, namespace) as phases:
        await eventually(lambda: not phases(), within=600, every=0.2, what=f"{namespace} has no pods")


def role(replicas: int) -> dict[str, Any]:
    return {"replicas": replicas, "template": {"spec": SPEC}}


def manifest(namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
