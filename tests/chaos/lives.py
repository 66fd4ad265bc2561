"""The work of a fault run: PaddleJobs and SampleSets that are made, run, end and go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tests.chaos.world import World

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import AlreadyExists, NotFound, Retry
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import PADDLE_JOBS, SAMPLE_SETS, SECRETS, Object
from paddlewheel.testkit.kubernetes import set_pod_status
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role
from paddlewheel.testkit.samplesets import make_sample_set, make_secret

STEP_WITHIN = 120.0
"""Seconds one step of a life may take while everything around it is killed."""


@dataclass(frozen=True)
class Life:
    """One PaddleJob.

    Args:
        patient: its pods end only after the job was seen to run, so that it tells of that.
        sample_set: what it trains on, "" for nothing.
    """

    name: str
    workers: int = 1
    fails: bool = False
    is_deleted: bool = False
    patient: bool = True
    sample_set: str = ""


def draw_lives(chance: random.Random, count: int, sample_sets: Sequence[str]) -> list[Life]:
    """Two in five are deleted in the end, one in eight fails, one in ten uses a data set."""
    return [
        Life(
            name=f"job-{number:03}",
            workers=chance.choice((1, 1, 1, 2)),
            fails=chance.random() < 0.125,
            is_deleted=chance.random() < 0.4,
            patient=chance.random() < 0.9,
            sample_set=chance.choice(sample_sets) if sample_sets and number % 10 == 0 else "",
        )
        for number in range(count)
    ]


@dataclass
class Lives:
    """Leads lives in one namespace, so many at a time."""

    cluster: ApiCluster
    world: World
    namespace: str
    chance: random.Random
    at_once: int = 24
    led: int = 0
    stuck: int = 0

    async def lead(self, lives: Sequence[Life]) -> None:
        """Return when all are over or stuck."""
        slots = asyncio.Semaphore(self.at_once)

        async def one(life: Life) -> None:
            async with slots:
                is_over = await self._lead(life)
            self.led, self.stuck = self.led + 1, self.stuck + (not is_over)

        await asyncio.gather(*(one(life) for life in lives))

    async def end_started(self) -> None:
        """Let the pods of jobs that triggers make succeed, for ever."""
        ended: set[Key] = set()
        while True:
            ready = [pod for pod in self._started_pods() if pod not in ended]
            ended.update(ready)
            await asyncio.gather(*(self._set_pod(pod, "Succeeded") for pod in ready))
            await self.world.changed()

    def _started_pods(self) -> list[Key]:
        jobs = [seen.key for seen in self.world.objects.values() if seen.is_started and not seen.is_gone]
        pods = (Key(job.namespace, f"{job.name}-worker-0") for job in jobs)
        return [pod for pod in pods if self.world.pod_phases.get(pod) == "Running"]

    async def _set_pod(self, pod: Key, phase: str) -> None:
        await stubborn(set_pod_status, self.cluster, pod, phase, ip="10.0.0.1")

    async def make_sample_sets(self, names: Sequence[str]) -> None:
        """With the secrets they need."""
        for name in names:
            await stubborn(self.cluster.create, SECRETS, make_secret(name, self.namespace))
            await stubborn(self.cluster.create, SAMPLE_SETS, make_sample_set(name, self.namespace))

    async def _lead(self, life: Life) -> bool:
        key = Key(self.namespace, life.name)
        await stubborn(self.cluster.create, PADDLE_JOBS, _manifest(life, self.namespace))
        pods = [Key(self.namespace, f"{life.name}-worker-{index}") for index in range(life.workers)]
        if not await self._until(lambda: self._runs(life, key, pods)):
            return False
        await asyncio.sleep(self.chance.uniform(0.0, 1.0))
        for pod in pods:
            await self._set_pod(pod, "Failed" if life.fails else "Succeeded")
        if not await self._until(lambda: self._phase(key) == ("Failed" if life.fails else "Completed")):
            return False
        if not life.is_deleted:
            return True
        await stubborn(self.cluster.delete, PADDLE_JOBS, key)
        return await self._until(lambda: self._is_gone(key))

    def _runs(self, life: Life, key: Key, pods: Sequence[Key]) -> bool:
        all_run = all(self.world.pod_phases.get(pod) == "Running" for pod in pods)
        return all_run and (not life.patient or self._phase(key) == "Running")

    def _phase(self, key: Key) -> str:
        seen = self.world.named(PADDLE_JOBS.kind, key)
        return seen.phase if seen else ""

    def _is_gone(self, key: Key) -> bool:
        seen = self.world.named(PADDLE_JOBS.kind, key)
        return seen is not None and seen.is_gone

    async def _until(self, is_so: Callable[[], bool]) -> bool:
        return await self.world.until(is_so, STEP_WITHIN)


async def stubborn(call: Callable[..., Awaitable[object]], *args: object, **named: object) -> None:
    """What a user does: the API server may be slow, the object may be there from the last try."""
    while True:
        try:
            with suppress(AlreadyExists, NotFound):
                await call(*args, **named)
        except Retry:
            await asyncio.sleep(0.5)
        else:
            return


def _manifest(life: Life, namespace: str) -> Object:
    ref = {"sampleSetRef": {"name": life.sample_set, "mountPath": "/data"}} if life.sample_set else {}
    return make_paddle_job(life.name, namespace, worker=make_role(life.workers), **ref)
