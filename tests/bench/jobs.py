"""How much a PaddleJob costs over the pods it is made of."""

from __future__ import annotations

import statistics
import time

from tests.bench import many_jobs, passes
from tests.bench.job_stand import (
    bare_pods,
    delete_pods,
    drop_jobs,
    make_namespace,
    make_pods,
    role,
    run_big,
    watched,
)
from tests.bench.rows import Row
from tests.bench.stand import JOB_CONTROLLER, Stand, stand

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import PADDLE_JOBS, PODS, Object
from paddlewheel.testkit.paddlejobs import ended_status
from paddlewheel.testkit.wait import eventually

RANKS = 128
"""The size of the job that is restarted."""
ROUNDS = 3
_TRIES = 6
FAKE_NODES = 30
"""Each takes 110 pods."""


async def measure() -> list[Row]:
    """The service's own code, then the whole on a real API server."""
    return [*await passes.measure(), *await _measure_jobs()]


async def _measure_jobs() -> list[Row]:
    """Jobs against as many bare pods on the same fake nodes; medians where there are several rounds."""
    async with stand(FAKE_NODES) as made:
        await made.start(JOB_CONTROLLER)
        return [
            *await _wide(made, 100, ROUNDS),
            *await _wide(made, 1000, 1),
            *await _restarted(made),
            *await many_jobs.measure(made),
        ]


async def _wide(made: Stand, workers: int, rounds: int) -> list[Row]:
    """One job of many workers, from create to phase Running."""
    bare, jobs, writes = [], [], []
    for number in range(rounds):
        namespace = await make_namespace(made, f"{workers}-wide-{number}")
        bare.append(await bare_pods(made, namespace, workers))
        before = await made.writes()
        jobs.append(await run_big(made, namespace, {"worker": role(workers)}))
        writes.append(await made.writes() - before)
        await drop_jobs(made, namespace)
    floor, job = statistics.median(bare), statistics.median(jobs)
    return [
        Row(f"jobs.floor_{workers}_bare_pods_running", floor, 600.0, "s"),
        Row(f"jobs.job_{workers}_workers_running", job, 600.0, "s"),
        Row(f"jobs.job_{workers}_workers_over_bare_pods", job / floor, 1.35, "x"),
        Row(f"jobs.api_writes_beside_one_for_each_of_{workers}", statistics.median(writes) - workers, 8),
    ]


EVICTED: Object = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
"""A loss that explains itself. A program may have failed because a node of another rank was lost: its restart
waits until these nodes have renewed their Leases, 10 s or less."""
FAILED = {part: ended_status(exit_code=1)[part] for part in ("phase", "containerStatuses")}


async def _restarted(made: Stand) -> list[Row]:
    """The loss of one rank, until all run again; the floor deletes as many bare pods and makes them again."""
    floors, restarts, failures = [], [], []
    for number in range(ROUNDS):
        namespace = await make_namespace(made, f"restarted-{number}")
        floors.append(await _remade_pods(made, namespace))
        restarts.append(await _undisturbed_restart(made, namespace, EVICTED))
        failures.append(await _undisturbed_restart(made, namespace, FAILED))
    floor, seconds = statistics.median(floors), statistics.median(restarts)
    return [
        Row("jobs.floor_128_bare_pods_made_again", floor, 120.0, "s"),
        Row("jobs.gang_restart_of_128_ranks", seconds, 120.0, "s"),
        Row("jobs.gang_restart_over_bare_pods", seconds / floor, 1.35, "x"),
        Row("jobs.gang_restart_of_128_ranks_after_a_program_failed", statistics.median(failures), 120.0, "s"),
    ]


async def _undisturbed_restart(made: Stand, namespace: str, loss: Object) -> float:
    """Seconds of a restart that no other one followed.

    kwok deletes by name, and may take a new pod for the one that it was to delete, which costs a job another
    restart; a kubelet deletes by uid.
    """
    for _ in range(_TRIES):
        await run_big(made, namespace, {"worker": role(RANKS), "backoffLimit": 1})
        seconds, restarts = await _restart(made, namespace, loss)
        await drop_jobs(made, namespace)
        if restarts == 1:
            return seconds
    raise AssertionError(f"kwok deleted a pod of the new epoch in each of {_TRIES} restarts")


async def _restart(made: Stand, namespace: str, loss: Object) -> tuple[float, int]:
    """Seconds from the loss of one rank until all run again, and how often all were restarted for it."""
    start = time.monotonic()
    await made.cluster.patch(PODS, Key(namespace, "big-worker-7"), {"status": loss}, subresource="status")
    status: Object = {}

    async def runs_again() -> bool:
        nonlocal status
        status = (await made.cluster.get(PADDLE_JOBS, Key(namespace, "big"))).get("status", {})
        return bool(status.get("epoch", 0) >= 1 and status.get("phase") == "Running")

    await eventually(runs_again, within=120, every=0.1, what="job running again")
    return time.monotonic() - start, status["epoch"]


async def _remade_pods(made: Stand, namespace: str) -> float:
    """Seconds from the deletion of pods that run until as many new ones do.

    Under other names: kwok deletes by name, and may take a new pod for the one that it was to delete.
    """
    async with watched(made, PODS, namespace) as phases:
        await make_pods(made, namespace, RANKS, phases)
        start = time.monotonic()
        await delete_pods(made, namespace, RANKS, phases)
        await make_pods(made, namespace, RANKS, phases, "again")
        seconds = time.monotonic() - start
        await delete_pods(made, namespace, RANKS, phases, "again")
        return seconds
