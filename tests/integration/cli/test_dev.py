"""The inner loop as a developer uses it: `dev up`, a job, `dev status`, `dev logs`, `dev down`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from paddlewheel.cli.dev import SERVICES
from paddlewheel.cli.tools import run
from paddlewheel.contracts.keys import Key
from paddlewheel.kube import connect
from paddlewheel.kube.ports import PADDLE_JOBS, Object
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

SPEC = {"containers": [{"name": "main", "image": "example/train:1"}]}
JOB: Object = {
    "metadata": {"name": "tiny", "namespace": "default"},
    "spec": {"worker": {"replicas": 2, "template": {"spec": SPEC}}},
}


@dataclass(frozen=True)
class Shell:
    """The command, with a state folder of the test's own."""

    home: Path

    async def paddlewheel(self, *arguments: str) -> str:
        env = {k: v for k, v in os.environ.items() if k not in ("KUBECONFIG", "NATS_URL")}
        return await run(["paddlewheel", *arguments], env=env | {"PADDLEWHEEL_HOME": str(self.home)})


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    made = Shell(tmp_path)
    try:
        yield made
    finally:
        await made.paddlewheel("dev", "down")


async def test_a_job_runs_on_pretended_nodes_and_nothing_stays(shell: Shell) -> None:
    up = orjson.loads(await shell.paddlewheel("dev", "up", "--fake-nodes", "2", "-o", "json"))
    assert {row["name"] for row in up if row["alive"]} == {"nats", "bus-installer", *SERVICES}

    kubeconfig = (await shell.paddlewheel("cluster", "kubeconfig", "--name", "dev")).strip()
    async with await connect(kubeconfig) as cluster:
        await cluster.create(PADDLE_JOBS, JOB)

        async def running() -> bool:
            job = await cluster.get(PADDLE_JOBS, Key("default", "tiny"))
            return bool(job.get("status", {}).get("phase") == "Running")

        await eventually(running, what="the job runs")

    again = orjson.loads(await shell.paddlewheel("dev", "up", "--fake-nodes", "2", "-o", "json"))
    assert [row["pid"] for row in again] == [row["pid"] for row in up], "a second up finds all running"
    assert "bus connected" in await shell.paddlewheel("dev", "logs", "job-controller")

    down = await shell.paddlewheel("dev", "down")
    assert down.count("ended") == len(up)
    assert orjson.loads(await shell.paddlewheel("dev", "status", "-o", "json")) == []
