"""Progress end to end: a script, the library, the service's HTTP port, the API server and the bus."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import pytest
from tests.integration.job_controller.conftest import JobServiceHarness

import paddlewheel_progress
from paddlewheel.bus.ports import Reading
from paddlewheel.contracts.generated.progress_v1 import JobProgressed
from paddlewheel.contracts.keys import Key
from paddlewheel.core.sockets import free_ports
from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import PODS
from paddlewheel.testkit.service_harness import BEGINNING
from paddlewheel.testkit.services import Service
from paddlewheel.testkit.wait import eventually

LIBRARY = Path(paddlewheel_progress.__file__).parent.parent
# Reports each step that it reads.
TRAINING = """
import sys
import paddlewheel_progress as progress
progress.report(total_steps=100)
for line in sys.stdin:
    progress.report(step=int(line), loss=1 / (1 + int(line)), samples_per_second=1840.5, lr=0.1)
    progress.flush(30)
    print("reported", flush=True)
"""

Environment = dict[str, str]
Tell = Callable[[int], Awaitable[None]]


class ProgressHarness:
    """Replicas that receive progress, each on a port of its own."""

    def __init__(self, jobs: JobServiceHarness, folder: Path) -> None:
        self.jobs = jobs
        self.facts: list[JobProgressed] = []
        self._key = folder / "key"
        self._key.write_text("k" * 64)
        self.ports: dict[str, int] = {}
        """Where pods report, by replica."""
        self._probed: dict[str, int] = {}

    async def start(self, replica: str = "replica-0", **settings: str) -> Service:
        """Return when it is ready; again on its port. Pods report to the replica that was started first."""
        if replica not in self.ports:
            self.ports[replica], self._probed[replica] = free_ports(2)
        first = next(iter(self.ports.values()))
        service = await self.jobs.start_process(
            replica,
            HTTP_PORT=str(self._probed[replica]),
            PODS_PORT=str(self.ports[replica]),
            PROGRESS_URL=f"http://127.0.0.1:{first}",
            PROGRESS_KEY_FILE=str(self._key),
            PROGRESS_PERIOD="1",
            **settings,
        )
        await eventually(lambda: self._is_ready(replica), what=f"{replica} is ready")
        return service

    async def environment(self, key: Key, replica: str = "") -> Environment:
        """The environment of the job's first worker, with the port of the replica."""
        pod = await self.jobs.cluster.get(PODS, self.jobs.key(f"{key.name}-worker-0"))
        env = {e["name"]: e["value"] for e in pod["spec"]["containers"][0]["env"] if "value" in e}
        if replica:
            url = urlsplit(env["PADDLEWHEEL_PROGRESS_URL"])
            moved = url._replace(netloc=f"127.0.0.1:{self.ports[replica]}")
            env["PADDLEWHEEL_PROGRESS_URL"] = urlunsplit(moved)
        return env

    async def get(self, path: str, replica: str = "replica-0") -> tuple[int, str]:
        url = f"http://127.0.0.1:{self._probed[replica]}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()

    async def wait_progress(self, key: Key, step: int) -> dict[str, Any]:
        """Wait until the status has this step."""

        async def there() -> dict[str, Any] | None:
            progress = (await self.jobs.status(key)).get("progress") or {}
            return dict(progress) if progress.get("step") == step else None

        return await eventually(there, what=f"{key} is at step {step}")

    async def wait_fact(self, step: int) -> JobProgressed:
        def there() -> JobProgressed | None:
            return next((fact for fact in self.facts if fact.step == step), None)

        return await eventually(there, what=f"the fact of step {step}")

    async def listen(self) -> None:
        async for delivery in self.jobs.bus.read(Reading(("pw.evt.progress.>",), BEGINNING)):
            assert isinstance(delivery.event.data, JobProgressed)
            self.facts.append(delivery.event.data)

    async def _is_ready(self, replica: str) -> bool:
        try:
            return (await self.get("/readyz", replica))[0] == 200
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def training(environment: Environment) -> AsyncIterator[Tell]:
    """A script as a process. It reads the steps that it has done."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        TRAINING,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(LIBRARY), **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    stdin, stdout = process.stdin, process.stdout

    async def tell(step: int) -> None:
        stdin.write(f"{step}\n".encode())
        assert await asyncio.wait_for(stdout.readline(), 90) == b"reported\n"

    try:
        yield tell
    finally:
        stdin.close()
        assert await asyncio.wait_for(process.wait(), 90) == 0


@pytest.fixture
async def progress(jobs: JobServiceHarness, tmp_path: Path) -> AsyncIterator[ProgressHarness]:
    harness = ProgressHarness(jobs, tmp_path)
    listening = asyncio.create_task(harness.listen())
    yield harness
    await end(listening)


async def test_a_script_reports_and_status_fact_and_metrics_follow(progress: ProgressHarness) -> None:
    await progress.start()
    key = await progress.jobs.to_running("train")

    async with training(await progress.environment(key)) as tell:
        await tell(40)
        status = await progress.wait_progress(key, 40)
        fact = await progress.wait_fact(40)
        await tell(80)
        await progress.wait_progress(key, 80)

    assert (status["percent"], status["totalSteps"], status["samplesPerSecond"]) == ("40%", 100, 1840.5)
    assert status["loss"] == pytest.approx(1 / 41)
    assert fact.job
    assert (fact.job.name, fact.total_steps, fact.metrics) == ("train", 100, {"lr": 0.1})

    async def is_counted() -> bool:
        _, metrics = await progress.get("/metrics")
        assert 'paddlewheel_jobs_progress_reports_total{status="204"}' in metrics
        assert 'paddlewheel_jobs_facts_total{fact="JobProgressed",outcome="published"}' in metrics
        return True

    await eventually(is_counted, what="report and fact are counted")


async def test_another_jobs_token_is_refused_and_changes_nothing(progress: ProgressHarness) -> None:
    await progress.start()
    mine, other = await progress.jobs.to_running("mine"), await progress.jobs.to_running("other")
    env = await progress.environment(mine)
    others = (await progress.environment(other))["PADDLEWHEEL_PROGRESS_TOKEN"]

    async with aiohttp.ClientSession() as session:
        url, body = env["PADDLEWHEEL_PROGRESS_URL"], {"step": 1}
        async with session.post(url, json=body, headers={"Authorization": f"Bearer {others}"}) as answer:
            assert answer.status == 403
            assert "PADDLEWHEEL_PROGRESS_TOKEN" in (await answer.json())["error"]
        own = {"Authorization": f"Bearer {env['PADDLEWHEEL_PROGRESS_TOKEN']}"}
        async with session.post(url, data=b"x" * 5000, headers=own) as answer:
            assert answer.status == 413
        async with session.post(url, json=body, headers=own) as answer:
            assert answer.status == 204

    await progress.wait_progress(mine, 1)
    assert "progress" not in await progress.jobs.status(other)
    logs = (progress.jobs.backends.directory / "replica-0.log").read_text()
    assert others not in logs
    assert env["PADDLEWHEEL_PROGRESS_TOKEN"] not in logs


@pytest.mark.long
async def test_any_replica_takes_the_report_of_any_job(progress: ProgressHarness) -> None:
    for replica in ("one", "two"):
        await progress.start(replica, REPLICAS_SHARE="true")
    keys = [await progress.jobs.to_running(f"job-{index}") for index in range(3)]

    for replica, step in (("one", 10), ("two", 20), ("one", 30)):
        for key in keys:
            async with training(await progress.environment(key, replica)) as tell:
                await tell(step)
            await progress.wait_progress(key, step)

    for key in keys:
        await progress.jobs.to_end(key)
        assert (await progress.jobs.status(key))["progress"]["step"] == 30


@pytest.mark.long
async def test_a_killed_service_loses_nothing_that_was_written_and_hears_the_script_again(
    progress: ProgressHarness,
) -> None:
    service = await progress.start()
    key = await progress.jobs.to_running("train")
    async with training(await progress.environment(key)) as tell:
        await tell(10)
        before = await progress.wait_progress(key, 10)
        await service.kill()
        await tell(15)
        assert (await progress.jobs.status(key))["progress"] == before
        await progress.start()
        await tell(20)
        await progress.wait_progress(key, 20)
