"""The example subscriber in Python on a real NATS server."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime

import pytest

from paddlewheel.bus import connect
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.gen.protos import ROOT
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobAccepted, JobFailed, JobRunning, JobSucceeded

pytestmark = pytest.mark.long

PROGRAM = ROOT / "examples/subscribers/python/follow.py"


async def publish(url: str, name: str, *facts: type[WireModel], **last: object) -> None:
    """Facts about one job; `last` is the content of the last one."""
    bus = await connect(url, name="publisher")
    try:
        for fact in facts:
            ref = ObjectRef(namespace="team-a", name=name, uid=f"uid-{name}")
            data = fact(job=ref, **(last if fact is facts[-1] else {}))
            about = {"namespace": "team-a", "uid": ref.uid, "time": datetime.now(UTC)}
            id_ = f"{ref.uid}/{fact.__name__}/0"
            await bus.publish(make_event(data, id=id_, source="job-controller", **about))  # type: ignore[arg-type]
    finally:
        await bus.close()


async def printed(url: str, job: str) -> list[str]:
    """What the program has printed when it has ended, without the times."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), job, env={**os.environ, "NATS_URL": url}, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0
    lines = out.decode().splitlines()
    return [line.split(" ", 1)[1] if line[2:3] == ":" else line for line in lines]


async def test_it_prints_a_job_until_it_has_succeeded(nats_url: str) -> None:
    await publish(nats_url, "other", JobAccepted)
    await publish(
        nats_url, "digits", JobAccepted, JobRunning, JobSucceeded, seconds=22.0, results={"accuracy": 0.99}
    )

    assert await printed(nats_url, "team-a/digits") == [
        "JobAccepted digits",
        "JobRunning digits",
        "JobSucceeded digits",
        "took 22.0 s: {'accuracy': 0.99}",
    ]


async def test_it_says_why_a_job_failed(nats_url: str) -> None:
    await publish(nats_url, "digits", JobAccepted, JobFailed, message="pod digits-worker-1 failed")

    assert await printed(nats_url, "team-a/digits") == [
        "JobAccepted digits",
        "JobFailed digits",
        "failed: pod digits-worker-1 failed",
    ]
