"""How much a PaddleJob costs over the pods it is made of."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from tests.bench import passes
from tests.bench.rows import Row
from tests.bench.stand import JOB_CONTROLLER, Stand, stand

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import NAMESPACES, PADDLE_JOBS, PODS
from paddlewheel.operator.concurrency import gather_bounded
from paddlewheel.testkit.wait import eventually

WORKERS = 100
RANKS = 128
"""Of the job that is restarted."""
JOBS = 1000
ROUNDS = 3
FAKE_NODES = 10
SPEC = {
    "containers": [{"name": "main", "image": "example/train:1", "resources": {"requests": {"cpu": "10m"}}}]
}


async def measure() -> list[Row]:
    """The service's own code, then the whole on a real API server."""
    return [*await passes.measure(), *await _measure_jobs()]


async def _measure_jobs() -> list[Row]:
    """Jobs against as many bare pods on the same fake nodes; medians where there are several rounds."""
    async with stand(FAKE_NODES) as made:
        await made.start(JOB_CONTROLLER)
        return [*await _wide(made), *await _restarted(made), *await _many(made)]


async def _wide(made: Stand) -> list[Row]:
    """One job of many workers, from create to phase Running."""
    bare, jobs, writes = [], [], []
    for number in range(ROUNDS):
        namespace = await _namespace(made, f"wide-{number}")
        bare.append(await _bare_pods(made, namespace, WORKERS))
        before = await made.writes()
        jobs.append(await _run(made, namespace, {"worker": _role(WORKERS)}))
        writes.append(await made.writes() - before)
        await made.cluster.delete(PADDLE_JOBS, Key(namespace, "big"))
    floor, job = statistics.median(bare), statistics.median(jobs)
    return [
        Row("jobs.floor_100_bare_pods_running", floor, 120.0, "s"),
        Row("jobs.job_100_workers_running", job, 120.0, "s"),
        Row("jobs.job_100_workers_over_bare_pods", job / floor, 1.35, "x"),
        Row("jobs.api_writes_beside_one_per_worker", statistics.median(writes) - WORKERS, 8),
    ]


async def _restarted(made: Stand) -> list[Row]:
    """A failure of one rank, until all run again; the floor deletes as many bare pods and makes them anew."""
    namespace = await _namespace(made, "restarted")
    floor = await _remade_pods(made, namespace)
    await _run(made, namespace, {"worker": _role(RANKS), "backoffLimit": 1})
    failed = {"status": {"phase": "Failed", "reason": "Error"}}
    start = time.monotonic()
    await made.cluster.patch(PODS, Key(namespace, "big-worker-7"), failed, subresource="status")

    async def runs_again() -> bool:
        status = (await made.cluster.get(PADDLE_JOBS, Key(namespace, "big"))).get("status", {})
        return bool(status.get("epoch") == 1 and status.get("phase") == "Running")

    await eventually(runs_again, within=120, every=0.1, what="job running again")
    seconds = time.monotonic() - start
    await made.cluster.delete(PADDLE_JOBS, Key(namespace, "big"))
    return [
        Row("jobs.floor_128_bare_pods_made_anew", floor, 120.0, "s"),
        Row("jobs.gang_restart_of_128_ranks", seconds, 120.0, "s"),
        Row("jobs.gang_restart_over_bare_pods", seconds / floor, 1.35, "x"),
    ]


async def _many(made: Stand) -> list[Row]:
    """Many jobs of one pod each, until all run; then what they cost at rest."""
    namespace = await _namespace(made, "many")
    floor = await _bare_pods(made, namespace, JOBS)
    start = time.monotonic()
    jobs = (_manifest(namespace, f"job-{i}", {"worker": _role(1)}) for i in range(JOBS))
    await gather_bounded(made.cluster.create(PADDLE_JOBS, job) for job in jobs)

    async def all_run() -> bool:
        found = await made.cluster.list(PADDLE_JOBS, namespace)
        return all((job.get("status") or {}).get("phase") == "Running" for job in found)

    await eventually(all_run, within=600, every=0.5, what="all jobs running")
    seconds = time.monotonic() - start
    return [
        Row("jobs.floor_1000_bare_pods_running", floor, 600.0, "s"),
        Row("jobs.1000_jobs_of_one_pod_running", seconds, 600.0, "s"),
        Row("jobs.1000_jobs_over_bare_pods", seconds / floor, 1.25, "x"),
        Row("jobs.memory_with_1000_jobs", _memory(made.services[JOB_CONTROLLER].pid), 200.0, "MB"),
    ]


def _memory(pid: int) -> float:
    """Resident, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS:"))) / 1000


async def _namespace(made: Stand, name: str) -> str:
    await made.cluster.create(NAMESPACES, {"metadata": {"name": f"bench-{name}"}})
    return f"bench-{name}"


async def _bare_pods(made: Stand, namespace: str, count: int) -> float:
    """Seconds until all run; they are gone afterwards."""
    start = time.monotonic()
    await _make_pods(made, namespace, count)
    seconds = time.monotonic() - start
    await _delete_pods(made, namespace, count)
    return seconds


async def _remade_pods(made: Stand, namespace: str) -> float:
    """Seconds from the deletion of pods that run until as many new ones do."""
    await _make_pods(made, namespace, RANKS)
    start = time.monotonic()
    await _delete_pods(made, namespace, RANKS)
    await _make_pods(made, namespace, RANKS)
    seconds = time.monotonic() - start
    await _delete_pods(made, namespace, RANKS)
    return seconds


async def _make_pods(made: Stand, namespace: str, count: int) -> None:
    pods = ({"metadata": {"name": f"bare-{i}", "namespace": namespace}, "spec": SPEC} for i in range(count))
    await gather_bounded(made.cluster.create(PODS, pod) for pod in pods)

    async def all_running() -> bool:
        found = await made.cluster.list(PODS, namespace)
        return all((pod.get("status") or {}).get("phase") == "Running" for pod in found)

    await eventually(all_running, within=600, every=0.1, what="bare pods running")


async def _delete_pods(made: Stand, namespace: str, count: int) -> None:
    keys = [Key(namespace, f"bare-{i}") for i in range(count)]
    await gather_bounded(made.cluster.delete(PODS, key, grace_seconds=0) for key in keys)

    async def gone() -> bool:
        return not await made.cluster.list(PODS, namespace)

    await eventually(gone, within=120, every=0.1, what="bare pods gone")


async def _run(made: Stand, namespace: str, spec: dict[str, Any]) -> float:
    """Seconds until the job runs."""
    start = time.monotonic()
    await made.cluster.create(PADDLE_JOBS, _manifest(namespace, "big", spec))

    async def running() -> bool:
        return await _phase(made, namespace) == "Running"

    await eventually(running, within=120, every=0.1, what="job running")
    return time.monotonic() - start


async def _phase(made: Stand, namespace: str) -> str:
    job = await made.cluster.get(PADDLE_JOBS, Key(namespace, "big"))
    return str(job.get("status", {}).get("phase", ""))


def _role(replicas: int) -> dict[str, Any]:
    return {"replicas": replicas, "template": {"spec": SPEC}}


def _manifest(namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
