"""How long a fact takes from the change of a job's pods in the API server to a subscriber.

Measured with many live jobs, beside the bare NATS publish-subscribe round trip, both under the same load.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from tests.bench.progress import note, progress
from tests.bench.rows import Row
from tests.bench.stand import JOB_CONTROLLER, Stand, stand

from job_controller.core import names
from paddlewheel import bus as bus_library
from paddlewheel.bus.ports import Bus, Reading
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.errors import NotFound
from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import NAMESPACES, PADDLE_JOBS, PODS, Object
from paddlewheel.testkit.kubernetes import SERVICE_ACCOUNTS
from paddlewheel.testkit.paddlejobs import ended_status, make_paddle_job, make_role, running_status
from paddlewheel.testkit.wait import eventually

LIVE = 1300
"""Jobs when the first run begins; in each run some end, so that the second begins with 1,000."""
CHANGES = 300
"""Jobs that begin to run, and as many that end, in each run."""
PODS_EACH = 2
NAMESPACE = "bench-latency"
ECHO = "bench.echo"
RUNNING, SUCCEEDED = "JobRunning", "JobSucceeded"


@dataclass(frozen=True)
class Run:
    """Changes at a steady rate per second: jobs that begin to run, and jobs that end."""

    rate: float
    begin: range
    finish: range


FIRST = Run(10.0, range(CHANGES), range(CHANGES, 2 * CHANGES))
SECOND = Run(20.0, range(2 * CHANGES, 3 * CHANGES), range(CHANGES))
RUNS_FROM_THE_START = (*FIRST.finish, *range(SECOND.begin.stop, LIVE))


@dataclass
class Times:
    """When each (job, fact) was made true in the API server, and when it arrived.

    Bare round trips to NATS and bare patches, in seconds, tell a busy machine from a slow controller.
    """

    changed: dict[tuple[str, str], float] = field(default_factory=dict)
    arrived: dict[tuple[str, str], float] = field(default_factory=dict)
    echoes: list[float] = field(default_factory=list)
    patches: list[float] = field(default_factory=list)

    def latencies(self, fact: str) -> list[float]:
        """Seconds, for those that arrived."""
        return [self.arrived[k] - at for k, at in self.changed.items() if k in self.arrived and k[1] == fact]


async def measure() -> list[Row]:
    """p99 of the facts, beside p99 of the bare round trips; a fact that never came fails the run."""
    async with stand(fake_nodes=0) as made:
        await made.start(JOB_CONTROLLER)
        await _prepare_namespace(made)
        async with _watching(made.nats.url) as (times, echo):
            await _make_live(made, times)
            slow, floor = await _change(made, times, echo, FIRST)
            await _wait_quiet(made)
            fast, _ = await _change(made, times, echo, SECOND)
    return [
        Row("bus.fact_latency_p99_over_round_trip", (slow - floor) * 1e3, 100.0, "ms"),
        Row("bus.fact_latency_p99_20_changes_per_second", fast * 1e3, 150.0, "ms"),
    ]


def _summarize(times: Times) -> tuple[float, float]:
    """Seconds: p99 of the facts and of the bare round trips since the last summary."""
    measured = {
        "bare round trip": times.echoes,
        "bare patch": times.patches,
        RUNNING: times.latencies(RUNNING),
        SUCCEEDED: times.latencies(SUCCEEDED),
    }
    for name, found in measured.items():
        middle, late, last = statistics.median(found), percentile(found, 99), max(found)
        note(f"{name}: median {middle * 1e3:.1f} ms, p99 {late * 1e3:.1f} ms, most {last * 1e3:.1f} ms")
    both = times.latencies(RUNNING) + times.latencies(SUCCEEDED)
    return percentile(both, 99), percentile(times.echoes, 99)


def percentile(values: list[float], percent: int) -> float:
    """The value that this percentage of them do not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


@asynccontextmanager
async def _watching(url: str) -> AsyncIterator[tuple[Times, Client]]:
    """A subscriber of job facts, and of its own echoes."""
    times = Times()
    bus = await bus_library.connect(url, name="bench")
    echo = await nats.connect(url)
    listening = asyncio.create_task(_listen(bus, times))
    try:
        await echo.subscribe(ECHO, cb=partial(_heard, times))
        yield times, echo
    finally:
        await end(listening)
        await echo.close()
        await bus.close()


async def _listen(bus: Bus, times: Times) -> None:
    async with aclosing(bus.read(Reading((event_filter("jobs"),)))) as facts:
        async for delivery in facts:
            name = delivery.event.data.job.name  # type: ignore[attr-defined]
            times.arrived[name, delivery.event.type.rpartition(".")[2]] = time.monotonic()


async def _heard(times: Times, msg: Msg) -> None:
    times.echoes.append(time.monotonic() - float(msg.data))


async def _prepare_namespace(made: Stand) -> None:
    await made.cluster.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})

    async def has_account() -> bool:
        try:
            await made.cluster.get(SERVICE_ACCOUNTS, Key(NAMESPACE, "default"))
        except NotFound:
            return False
        return True

    await eventually(has_account, within=30, what="service account of the namespace")


async def _make_live(made: Stand, times: Times) -> None:
    """All jobs with all their pods; those that will not begin under measurement run already."""
    began = time.monotonic()

    def is_starting(number: int) -> bool:
        return (_name(number), "JobStarting") in times.arrived

    async with progress(
        "live jobs", lambda: f"{sum(map(is_starting, range(LIVE)))} of {LIVE} have their pods"
    ):
        await asyncio.gather(*(made.cluster.create(PADDLE_JOBS, _manifest(n)) for n in range(LIVE)))
        await eventually(
            lambda: all(map(is_starting, range(LIVE))), within=600, every=0.5, what="pods of all"
        )
        await asyncio.gather(*(_set_pods(made, n, _gated_status, times) for n in range(LIVE)))
        await asyncio.gather(*(_begin(made, times, n) for n in RUNS_FROM_THE_START))
        await eventually(
            lambda: len(_arrived(times, RUNNING)) == len(RUNS_FROM_THE_START), within=300, every=0.5
        )
    note(f"{LIVE} jobs of {PODS_EACH} pods live after {time.monotonic() - began:.0f} s")
    await _wait_quiet(made)


async def _wait_quiet(made: Stand) -> None:
    """Confirmations of the last facts are still being recorded."""
    await eventually(partial(_is_quiet, made), within=60, every=1.0, what="job-controller has nothing to do")


async def _is_quiet(made: Stand) -> bool:
    before = await made.writes()
    await asyncio.sleep(2.0)
    return await made.writes() == before


async def _change(made: Stand, times: Times, echo: Client, run: Run) -> tuple[float, float]:
    """Begin and end jobs in random order at a steady rate; every change comes with a bare round trip.

    Returns:
        As `_summarize`.
    """
    times.changed.clear()
    times.echoes.clear()
    times.patches.clear()
    changes = [partial(_begin, made, times, n) for n in run.begin]
    changes += [partial(_finish, made, times, n) for n in run.finish]
    random.shuffle(changes)
    async with progress("fact latency", lambda: f"{len(times.changed)} of {len(changes)} changes"):
        async with asyncio.TaskGroup() as group:
            for change in changes:
                group.create_task(change())
                await echo.publish(ECHO, str(time.monotonic()).encode())
                await asyncio.sleep(1 / run.rate)
        await eventually(lambda: times.changed.keys() <= times.arrived.keys(), within=60, what="all facts")
    return _summarize(times)


def _gated_status(ip: str) -> Object:
    """A pod that has its address and waits in the gate, as all do before they run."""
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    gate = {"name": names.GATE_CONTAINER, "image": "", "imageID": "", "ready": False, "restartCount": 0}
    return {"phase": "Pending", "podIP": ip, "initContainerStatuses": [{**gate, "state": state}]}


async def _begin(made: Stand, times: Times, number: int) -> None:
    await _set_pods(made, number, running_status, times)
    times.changed[_name(number), RUNNING] = time.monotonic()


async def _finish(made: Stand, times: Times, number: int) -> None:
    await _set_pods(made, number, ended_status, times)
    times.changed[_name(number), SUCCEEDED] = time.monotonic()


async def _set_pods(made: Stand, number: int, status: Callable[[str], Object], times: Times) -> None:
    """Play the kubelet for all pods of one job, one after the other; the last makes the fact true."""
    for index in range(PODS_EACH):
        ip = f"10.{index}.{number // 250}.{number % 250 + 1}"
        key = Key(NAMESPACE, f"{_name(number)}-worker-{index}")
        began = time.monotonic()
        await made.cluster.patch(PODS, key, {"status": status(ip)}, subresource="status")
        times.patches.append(time.monotonic() - began)


def _arrived(times: Times, fact: str) -> list[str]:
    return [name for name, arrived in times.arrived if arrived == fact]


def _manifest(number: int) -> Object:
    """No scheduler feels responsible: pods wait for the run to play the kubelet."""
    role = make_role(PODS_EACH, schedulerName="nobody")
    return make_paddle_job(_name(number), NAMESPACE, worker=role)


def _name(number: int) -> str:
    return f"job-{number:04}"
