"""The bus is away for an hour at any moment of jobs that expire: no fact is lost, doubled or different."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from itertools import combinations_with_replacement
from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness, OpenHarness

from paddlewheel.bus.streams import MODELS
from paddlewheel.contracts import wire
from paddlewheel.contracts.envelope import Event
from paddlewheel.core.errors import Unavailable
from paddlewheel.testkit.harness import Fakes
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

JOBS = ("first", "second")
HOUR = 3600.0
Publish = Callable[[Event], Awaitable[None]]
LIFE = {"JobAccepted", "JobRunning", "JobRestarted", "JobSucceeded", "ModelPublished", "JobDeleted"}


class Outage:
    """Calls fail at once, or (`is_deaf`) the server stores what it gets and its answers are lost."""

    def __init__(self, fakes: Fakes, *, is_deaf: bool) -> None:
        self._bus, self._publish, self._is_deaf = fakes.bus, fakes.bus.publish, is_deaf

    def begin(self) -> None:
        if not self._is_deaf:
            self._bus.down = True
            return

        async def publish(event: Event) -> None:
            await self._publish(event)
            raise Unavailable("BusUnreachable", "no answer")

        self._bus.publish = publish  # type: ignore[method-assign]

    def end(self) -> None:
        self._bus.down = False
        self._bus.publish = self._publish  # type: ignore[method-assign]


def uri_of(name: str) -> str:
    return f"s3://models/{name}/1"


async def begin(jobs: JobHarness) -> None:
    for name in JOBS:
        model = {"name": name, "uri": uri_of(name)}
        spec = make_paddle_job(
            name, worker=make_role(2), backoffLimit=3, outputModel=model, ttlSecondsAfterFinished=60
        )
        key = await jobs.create(spec)
        await jobs.settle(key)


async def run(jobs: JobHarness) -> None:
    await jobs.run_pods()
    await jobs.advance(1)


async def fail(jobs: JobHarness) -> None:
    """Each job for its own reason. The gang starts again, and runs."""
    for name in JOBS:
        message = f"loss of {name} is NaN"
        await jobs.end_pods(f"{name}-worker-1", phase="Failed", exit_code=1, message=message)
    await jobs.advance(10)
    await run(jobs)


async def succeed(jobs: JobHarness) -> None:
    for name in JOBS:
        own = [pod for pod in await jobs.pod_names() if pod.startswith(name)]
        await jobs.end_pods(*own, message=json.dumps({"accuracy": len(name), "model": {"uri": uri_of(name)}}))
    await jobs.advance(1)


async def expire(jobs: JobHarness) -> None:
    await jobs.advance(61)


STEPS = (begin, run, fail, succeed, expire)


async def live(
    open_harness: OpenHarness, fakes: Fakes, lasts: range, outage: Outage | None, kill: bool
) -> None:
    """The life of the jobs. The last of the steps `lasts` takes an hour more, with an outage or without."""
    async with open_harness() as jobs:
        for number, step in enumerate(STEPS):
            if outage and number == lasts.start:
                outage.begin()
            await step(jobs)
            if number in lasts and kill:
                await jobs.restart()
                await jobs.advance(1)
            if number == lasts.stop - 1:
                await jobs.advance(HOUR)
                if outage:
                    outage.end()
                await jobs.advance(30)
        await jobs.advance(HOUR)
        assert await jobs.objects(jobs.resource) == []


def told(fakes: Fakes) -> dict[str, list[Any]]:
    """The facts of each job in order, with all that they say but the version and the time of the record."""
    found: dict[str, list[Any]] = {}
    for event in (*fakes.bus.events("PW_JOBS"), *fakes.bus.events(MODELS.name)):
        data, _ = wire.encode(event)
        [own] = [part for part in json.loads(data).values() if isinstance(part, dict) and "uid" in part]
        # Each life has objects of its own. The version of a model begins as the uid of its job.
        content = json.loads(data.decode().replace(own["uid"], "uid").replace(own["uid"][:8], "version"))
        next(part for part in content.values() if isinstance(part, dict)).pop("resourceVersion")
        found.setdefault(own["name"], []).append((type(event.data).__name__, content))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("is_deaf", [False, True])
@pytest.mark.parametrize("kill", [pytest.param(False, marks=pytest.mark.long), True])
async def test_an_hour_without_the_bus_changes_no_fact(is_deaf: bool, kill: bool) -> None:
    def opened(fakes: Fakes) -> OpenHarness:
        return lambda **settings: JobHarness(fakes, **settings).running()

    for first, last in combinations_with_replacement(range(len(STEPS)), 2):
        lasts = range(first, last + 1)
        calm, cut = Fakes.create(), Fakes.create()
        await live(opened(calm), calm, lasts, None, kill)
        await live(opened(cut), cut, lasts, Outage(cut, is_deaf=is_deaf), kill)
        expected, found = told(calm), told(cut)
        assert {name for name, _ in expected["first"]} >= LIFE, lasts
        assert found == expected, lasts
