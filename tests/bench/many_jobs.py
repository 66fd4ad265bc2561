"""What a thousand jobs of one pod cost: until they run, when a pod changes, and at rest."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.bench.job_stand import bare_pods, drop_jobs, make_namespace, manifest, role, run_big, watched
from tests.bench.rows import Row
from tests.bench.stand import JOB_CONTROLLER, Stand

from paddlewheel.contracts.keys import Key
from paddlewheel.core.sockets import free_ports
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import PADDLE_JOBS, PODS, Object, Resource
from paddlewheel.operator.concurrency import gather_bounded
from paddlewheel.testkit.wait import eventually

JOBS = 1000
CHANGES = 200
"""Of each kind."""
CHANGES_PER_SECOND = 20.0
RESYNC = 30.0
"""Seconds between two looks at all jobs, long enough for one."""
PAIR = ("job-controller-0", "job-controller-1")


@dataclass(frozen=True)
class _Kind:
    """A change of a pod's status, and how a watch shows it and what follows from it."""

    patch: Object
    in_pod: Callable[[Object], bool]
    in_job: Callable[[Object], bool]


_CONTAINER = {"name": "main", "ready": False, "restartCount": 0, "image": "", "imageID": ""}
UNREADY = _Kind(
    {"containerStatuses": [_CONTAINER]},
    lambda pod: any(not status["ready"] for status in pod.get("containerStatuses", ())),
    lambda job: job.get("ready") == "0/1",
)
FAILED = _Kind(
    {"phase": "Failed", "reason": "Error"},
    lambda pod: pod.get("phase") == "Failed",
    lambda job: job.get("phase") == "Failed",
)


async def measure(made: Stand) -> list[Row]:
    """On a stand with one replica; it has others afterwards."""
    namespace = await make_namespace(made, "many")
    floor = await bare_pods(made, namespace, JOBS)
    alone = await _start(made, namespace)
    memory = await _memory(made)
    cpu, writes = await _resync(made)
    unready = await _change_some(made, namespace, UNREADY)
    failed = await _change_some(made, namespace, FAILED)
    await drop_jobs(made, namespace)
    together = await _start_with_two(made)
    return [
        Row("jobs.floor_1000_bare_pods_running", floor, 600.0, "s"),
        Row("jobs.1000_jobs_of_one_pod_running", alone, 600.0, "s"),
        Row("jobs.1000_jobs_over_bare_pods", alone / floor, 1.25, "x"),
        Row("jobs.1000_jobs_with_two_replicas_over_one", together / alone, 1.2, "x"),
        Row("jobs.memory_with_1000_jobs_and_2000_pods", memory, 200.0, "MB"),
        Row("jobs.floor_pod_to_watch_p99", _p99(unready.floor + failed.floor), 10.0, "s"),
        Row("jobs.pod_unready_to_status_p99", _p99(unready.late), 0.25, "s"),
        Row("jobs.pod_failed_to_status_p99", _p99(failed.late), 0.25, "s"),
        Row("jobs.resync_of_1000_jobs_cpu", cpu, 1.0, "s"),
        Row("jobs.resync_of_1000_jobs_writes", writes, 0),
    ]


async def _memory(made: Stand) -> float:
    """With as many pods again, in one job."""
    namespace = await make_namespace(made, "beside-many")
    await run_big(made, namespace, {"worker": role(JOBS)})
    memory = made.memory(JOB_CONTROLLER)
    await drop_jobs(made, namespace)
    return memory


async def _start(made: Stand, namespace: str) -> float:
    """Seconds until all run."""
    async with watched(made, PADDLE_JOBS, namespace) as phases:
        start = time.monotonic()
        jobs = (manifest(namespace, f"job-{i}", {"worker": role(1)}) for i in range(JOBS))
        await gather_bounded(made.cluster.create(PADDLE_JOBS, job) for job in jobs)
        await eventually(lambda: phases()["Running"] == JOBS, within=600, every=0.05, what="all jobs running")
        return time.monotonic() - start


@dataclass(frozen=True)
class _Delays:
    """Seconds from the change of a pod until a watch shows its job's status, and until one shows the pod."""

    late: list[float]
    floor: list[float]


async def _change_some(made: Stand, namespace: str, kind: _Kind) -> _Delays:
    """Change the pods of some jobs, one after the other."""
    began: dict[str, float] = {}
    async with (
        _seen(made, PADDLE_JOBS, namespace, kind.in_job) as jobs,
        _seen(made, PODS, namespace, kind.in_pod) as pods,
    ):
        for number in range(CHANGES):
            name = f"job-{number}"
            began[name] = time.monotonic()
            pod = Key(namespace, f"{name}-worker-0")
            await made.cluster.patch(PODS, pod, {"status": kind.patch}, subresource="status")
            await asyncio.sleep(max(0.0, began[name] + 1 / CHANGES_PER_SECOND - time.monotonic()))
        await eventually(lambda: len(jobs) == CHANGES, within=60, what=f"{kind.patch} in the status of all")
    late = [jobs[name] - at for name, at in began.items()]
    return _Delays(late, [pods[f"{name}-worker-0"] - at for name, at in began.items()])


@asynccontextmanager
async def _seen(
    made: Stand, resource: Resource, namespace: str, is_seen: Callable[[Object], bool]
) -> AsyncIterator[dict[str, float]]:
    """When a watch has first shown each object with such a status."""
    seen: dict[str, float] = {}
    synced = asyncio.Event()

    async def follow() -> None:
        async for change in made.cluster.watch(resource, namespace, on_synced=synced.set):
            if is_seen(change.obj.get("status") or {}):
                seen.setdefault(key_of(change.obj).name, time.monotonic())

    following = asyncio.create_task(follow())
    try:
        async with asyncio.timeout(60):
            await synced.wait()
        yield seen
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _resync(made: Stand) -> tuple[float, int]:
    """CPU seconds and writes of one look at all jobs, in a process that does so often."""
    await made.services[JOB_CONTROLLER].kill()
    await made.start(JOB_CONTROLLER, RESYNC=str(RESYNC))
    await _passes(made, JOBS)
    # The first look may have had something to confirm.
    await asyncio.sleep(RESYNC / 3)
    passes, cpu, writes = (
        await made.passes(JOB_CONTROLLER),
        await made.cpu(JOB_CONTROLLER),
        await made.writes(),
    )
    await _passes(made, passes + JOBS)
    spent = await made.cpu(JOB_CONTROLLER) - cpu, await made.writes() - writes
    await made.services[JOB_CONTROLLER].kill()
    await made.start(JOB_CONTROLLER)
    await _passes(made, JOBS)
    return spent


async def _passes(made: Stand, count: int) -> None:
    async def reached() -> bool:
        return await made.passes(JOB_CONTROLLER) >= count

    await eventually(reached, within=2 * RESYNC + 60, every=0.5, what=f"{count} passes")


async def _start_with_two(made: Stand) -> float:
    """Seconds until as many jobs run."""
    await made.services[JOB_CONTROLLER].kill()
    ports = free_ports(2 * len(PAIR))
    for replica, probed, pods in zip(PAIR, ports[0::2], ports[1::2], strict=True):
        own = {"HTTP_PORT": str(probed), "PODS_PORT": str(pods)}
        await made.start(JOB_CONTROLLER, replica, REPLICAS_SHARE="true", **own)
    return await _start(made, await make_namespace(made, "pair"))


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]
