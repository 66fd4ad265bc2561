"""What job-controller's own code costs: a pass that finds nothing to do, and one event of a pod.

The API server and the bus are fakes. The floor of a pass is parsing the JSON of the job's objects once, as a
controller without caches would have to.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import orjson
from tests.bench.rows import Row
from tests.bench.stand import AS_SHIPPED, JOB_CONTROLLER

from job_controller.app import build
from job_controller.config import Settings
from job_controller.watch import BY_OWNER, JOB, Wakes
from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.kube.objects import key_of, uid_of
from paddlewheel.kube.ports import PADDLE_JOBS, PODS, Change, Object, Objects
from paddlewheel.operator.watch import Watch
from paddlewheel.testkit.harness import Harness
from paddlewheel.testkit.operators import OperatorReplica
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role, running_status

LARGE, SMALL = 1000, 2
"""Pods of the two jobs."""
ROUNDS = 50
EVENTS = 1000

JobHarness = Harness[OperatorReplica]


async def measure() -> list[Row]:
    """The best of many rounds, in CPU time: what else the machine does is left out."""
    large, events_of_large = await _measure(LARGE)
    small, events_of_small = await _measure(SMALL)
    return [
        Row("jobs.pass_without_work_1000_pods", large[0] * 1e3, 10.0, "ms"),
        Row("jobs.pass_without_work_1000_pods_over_parsing", large[0] / large[1], 1.5, "x"),
        Row("jobs.pass_without_work_2_pods", small[0] * 1e3, 0.3, "ms"),
        Row("jobs.pod_event_1000_pods_over_2", events_of_large / events_of_small, 3.0, "x"),
    ]


async def _measure(pods: int) -> tuple[tuple[float, float], float]:
    """Seconds of a pass and of its floor; seconds of a pod event."""
    async with _running_job(pods) as (harness, key):
        watch = harness.replica.operator.watch
        objects = [harness.replica.operator.watch.of(JOB).get(key) or {}, *_pods(watch, key)]
        raw = [orjson.dumps(obj) for obj in objects]

        async def parse() -> None:
            for text in raw:
                orjson.loads(text)

        reconcile = partial(harness.replica.reconcilers[PADDLE_JOBS], key)
        with harness.recorded_calls() as calls:
            costs = await _best(reconcile), await _best(parse)
        assert not calls, f"the pass was not without work: {calls}"
        return costs, _pod_event(watch, _pods(watch, key))


@asynccontextmanager
async def _running_job(pods: int) -> AsyncIterator[tuple[JobHarness, Key]]:
    """A job of this many pods that runs, with every fact confirmed."""
    shipped = {name.lower(): value for name, value in AS_SHIPPED[JOB_CONTROLLER].items()}
    made = partial(build, Settings.model_validate(shipped))
    harness = Harness(lambda fakes, wake_of: OperatorReplica(fakes, wake_of, made, PADDLE_JOBS), JOBS)
    async with harness.running():
        key = await harness.create(make_paddle_job(worker=make_role(pods)))
        await harness.settle(key)
        for index, pod in enumerate(await harness.objects(PODS)):
            status = running_status(f"10.1.{index // 250}.{index % 250 + 1}")
            await harness.set_status(key_of(pod), status, PODS)
        await harness.settle(key)
        await harness.clock.advance(3)
        await harness.settle(key)
        assert (await harness.status(key))["phase"] == "Running"
        yield harness, key


def _pods(watch: Watch, key: Key) -> Objects:
    job: Object = watch.of(JOB).get(key) or {}
    return watch.of(PODS.kind).by_index(BY_OWNER, uid_of(job))


async def _best(call: Callable[[], Awaitable[object]]) -> float:
    """CPU seconds of the fastest of many calls."""
    times = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        await call()
        times.append(time.thread_time() - began)
    return min(times)


def _pod_event(watch: Watch, pods: Objects) -> float:
    """CPU seconds of one event, with all pods of the job known."""
    wakes = Wakes(watch, lambda key, after: None, SystemClock())
    for pod in pods:
        wakes.changed(PODS.kind, Change("ADDED", pod))
    times = []
    for _ in range(5):
        began = time.thread_time()
        for index in range(EVENTS):
            wakes.changed(PODS.kind, Change("MODIFIED", pods[index % len(pods)]))
        times.append(time.thread_time() - began)
    return min(times) / EVENTS
