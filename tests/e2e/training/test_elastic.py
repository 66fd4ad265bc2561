"""Real Paddle trains on while the world of its workers changes, from its last checkpoint."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paddlewheel.cli.target import Target
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.timeout(900)

JOB, CODE, NAMESPACE, WITHIN = "elastic", "elastic-code", "elastic", 240
CHECKPOINT_EVERY = 5
KILL = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    command = open(f"/proc/{pid}/cmdline").read().split(chr(0))
    if command[:2] == ["python", "/code/elastic.py"]:
        os.kill(int(pid), 9)
"""
Line = dict[str, float]


def manifest(workers: int, checkpoints: Path) -> dict[str, Any]:
    """`checkpoints` is a folder of this machine, which the nodes of an embedded cluster share."""
    container = {
        "name": "main",
        "image": "paddlewheel/paddle-cpu:dev",
        # A shell of its own, so that the program is not process 1, which no signal from inside ends.
        "command": ["sh", "-c", "python /code/elastic.py; exit $?"],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [
            {"name": "code", "mountPath": "/code"},
            {"name": "checkpoints", "mountPath": "/checkpoints"},
        ],
    }
    volumes = [
        {"name": "code", "configMap": {"name": CODE}},
        {"name": "checkpoints", "hostPath": {"path": str(checkpoints)}},
    ]
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": volumes}
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": JOB, "namespace": NAMESPACE},
        "spec": {
            "backoffLimit": 1,
            "cleanPodPolicy": "Never",
            "checkpointPath": "/checkpoints",
            "worker": {"replicas": workers, "requests": 1, "template": {"spec": pod}},
        },
    }


class Training:
    """The job on the cluster, as its own lines tell."""

    def __init__(self, where: Target, folder: Path) -> None:
        self._where = where
        self._folder = folder

    async def kubectl(self, *arguments: str, text: str | None = None) -> str:
        stdin = None if text is None else text.encode()
        return await self._where.tools.run("kubectl", "--namespace", NAMESPACE, *arguments, stdin=stdin)

    async def start(self, workers: int) -> None:
        await self.kubectl("create", "namespace", NAMESPACE)
        program = Path(__file__).with_name("elastic.py")
        await self.kubectl("create", "configmap", CODE, f"--from-file=elastic.py={program}")
        await self.kubectl("apply", "--filename", "-", text=json.dumps(manifest(workers, self._folder)))

    async def scale(self, workers: int) -> None:
        patch = json.dumps({"spec": {"worker": {"replicas": workers}}})
        await self.kubectl("patch", "pdj", JOB, "--type", "merge", "--patch", patch)

    async def inside(self, rank: int, *command: str) -> str:
        return await self.kubectl("exec", f"{JOB}-worker-{rank}", "--", *command)

    def history(self) -> list[Line]:
        """Every step so far."""
        file = self._folder / "history.jsonl"
        # The last line may be half written.
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in lines]

    def stop(self) -> None:
        (self._folder / "stop").touch()

    async def reaches(self, is_there: Callable[[Line], bool], what: str) -> Line:
        """Waits for a step; returns it."""

        def look() -> Line | None:
            last = self.history()[-1:]
            return last[0] if last and is_there(last[0]) else None

        found: Line = await eventually(look, within=WITHIN, every=1.0, what=what)
        return found

    async def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(await self.kubectl("get", "pdj", JOB, "-o", "json"))["status"]
        return status

    async def is_completed(self) -> bool:
        return bool((await self.status())["phase"] == "Completed")


async def changed(training: Training, change: Awaitable[object], size: int) -> None:
    """The world changes, and the new one trains beyond where the former one was."""
    before = training.history()[-1]
    await change
    await training.reaches(
        lambda now: (
            now["epoch"] > before["epoch"]
            and now["size"] == size
            # The former world may have trained on after the change was asked for.
            and now["step"] > now["begun"] + 2 * CHECKPOINT_EVERY
        ),
        f"{size} workers train",
    )


async def test_paddle_trains_on_from_its_checkpoint_with_2_4_and_2_workers_and_after_a_kill(
    paddlewheel_cluster: Target, tmp_path: Path
) -> None:
    training = Training(paddlewheel_cluster, tmp_path)
    await training.start(2)
    await training.reaches(lambda now: now["step"] > 2 * CHECKPOINT_EVERY, "two workers train")
    await changed(training, training.scale(4), 4)
    await changed(training, training.scale(2), 2)
    await changed(training, training.inside(1, "python", "-c", KILL), 2)
    training.stop()
    await eventually(training.is_completed, within=WITHIN, what="the job has ended")

    status = await training.status()
    assert (status["epoch"], status["restarts"]) == (3, {"Scaled": 2, "PodFailed": 1})
    check(training.history())


def check(history: list[Line]) -> None:
    """No step is lost past the last checkpoint, and the loss goes on falling."""
    worlds = {line["epoch"]: line["size"] for line in history}
    assert worlds == {0: 2, 1: 4, 2: 2, 3: 2}
    for before, after in pairwise(history):
        is_new = after["epoch"] > before["epoch"]
        checkpoint = before["step"] - before["step"] % CHECKPOINT_EVERY
        assert after["step"] == (checkpoint if is_new else before["step"]) + 1
    ends = [max(line["step"] for line in history if line["epoch"] == epoch) for epoch in worlds]
    losses = [next(line["loss"] for line in reversed(history) if line["step"] == end) for end in ends]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < history[0]["loss"] / 10
