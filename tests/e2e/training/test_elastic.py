"""Real Paddle trains on while the world of its workers changes, from its last checkpoint."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from tests.e2e.training.live_job import WITHIN, LiveJob, make_role

from paddlewheel.cli.target import Target
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("linear.py")
CHECKPOINT_EVERY = 5
KILL = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    command = open(f"/proc/{pid}/cmdline").read().split(chr(0))
    if command[:2] == ["python", "/code/linear.py"]:
        os.kill(int(pid), 9)
"""
Line = dict[str, float]


class Training(LiveJob):
    """The job on the cluster, as its own lines tell."""

    def __init__(self, where: Target, folder: Path) -> None:
        super().__init__(where, "elastic")
        self._folder = folder

    async def begin(self, workers: int) -> None:
        role = make_role(workers, PROGRAM.name, self._folder) | {"requests": 1}
        restarts = {"backoffLimit": 1, "checkpointPath": "/checkpoints"}
        await self.start(PROGRAM, cleanPodPolicy="Never", worker=role, **restarts)

    async def scale(self, workers: int) -> None:
        patch = json.dumps({"spec": {"worker": {"replicas": workers}}})
        await self.kubectl("patch", "pdj", self.name, "--type", "merge", "--patch", patch)

    async def inside(self, rank: int, *command: str) -> str:
        return await self.kubectl("exec", f"{self.name}-worker-{rank}", "--", *command)

    async def kill(self, rank: int) -> None:
        """The container ends with its program, and may take this command along."""
        with suppress(Permanent):
            await self.inside(rank, "python", "-c", KILL)

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
    await training.begin(2)
    await training.reaches(lambda now: now["step"] > 2 * CHECKPOINT_EVERY, "two workers train")
    await changed(training, training.scale(4), 4)
    await changed(training, training.scale(2), 2)
    await changed(training, training.kill(1), 2)
    training.stop()
    status = await training.ends()
    assert (status["epoch"], status["restarts"]) == (3, {"Scaled": 2, "PodFailed": 1})
    check(training.history())


def check(history: list[Line]) -> None:
    """No step is lost past the last checkpoint, and the loss goes on falling."""
    worlds = {line["epoch"]: line["size"] for line in history}
    assert worlds == {0: 2, 1: 4, 2: 2, 3: 2}
    for before, after in pairwise(history):
        is_new = after["epoch"] > before["epoch"]
        checkpoints = {before["step"] - before["step"] % CHECKPOINT_EVERY}
        if before["step"] in checkpoints:
            # A step is written down before its checkpoint: the pod may have ended between the two.
            checkpoints.add(before["step"] - CHECKPOINT_EVERY)
        assert after["step"] - 1 in (checkpoints if is_new else {before["step"]})
    ends = [max(line["step"] for line in history if line["epoch"] == epoch) for epoch in worlds]
    losses = [next(line["loss"] for line in reversed(history) if line["step"] == end) for end in ends]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < history[0]["loss"] / 10
