"""A PaddleJob whose ranks depend on each other, and nodes with slots for its pods."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.e2e.training.live_job import LiveJob, Status, make_role

from paddlewheel.cli.target import Target
from paddlewheel.contracts.reasons import Reason
from paddlewheel.testkit.wait import eventually

PROGRAM = Path(__file__).with_name("peers.py")
WAIT_TIMEOUT_SECONDS = 900
"""Longer than the waits of the rules that are tested, on a machine that is eight times as slow."""
Line = dict[str, Any]


async def nodes_of(where: Target) -> list[str]:
    """The names of the nodes. The services and the bus run on the first one."""
    found = await where.tools.run("kubectl", "get", "nodes", "--output", "jsonpath={.items[*].metadata.name}")
    return sorted(found.split())


def slot_of(name: str) -> str:
    """The extended resource of which each pod takes one."""
    return f"test.paddlewheel.io/{name}"


async def offer(where: Target, node: str, **slots: int) -> None:
    """Give a node slots for pods. Return when its kubelet has reported them."""
    amounts = {slot_of(name): str(number) for name, number in slots.items()}
    patch = json.dumps({"status": {"capacity": amounts}})
    options = ("--subresource", "status", "--type", "merge", "--patch", patch)
    await where.tools.run("kubectl", "patch", "node", node, *options)

    async def offers() -> bool:
        found = json.loads(await where.tools.run("kubectl", "get", "node", node, "--output", "json"))
        return all(found["status"]["allocatable"].get(name) == number for name, number in amounts.items())

    await eventually(offers, within=WAIT_TIMEOUT_SECONDS, every=1.0, what=f"{node} offers {amounts}")


def restarts_of(status: Status) -> dict[str, int]:
    """Restarts by cause, except those of pods that a kubelet refused before it had seen its new slots."""
    found: dict[str, int] = status.get("restarts", {})
    return {cause: count for cause, count in found.items() if cause != Reason.REJECTED_BY_NODE}


class PeerJob(LiveJob):
    """The job on the cluster, as its own lines tell.

    Args:
        folder: a folder of this machine for the files of all such jobs.
        slots: the job's pods take these.
    """

    def __init__(self, where: Target, name: str, folder: Path, *, slots: str = "") -> None:
        super().__init__(where, name)
        self._slot = slot_of(slots or name)
        self._folder = folder / name

    async def begin(
        self, workers: int, *, requests: int | None = None, failing_rank: int = -1, **pod: Any
    ) -> None:
        """Create the job.

        Args:
            requests: the least number of workers that train.
            failing_rank: it exits once all have met.
            pod: further fields of the pods' spec.
        """
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        role = make_role(workers, PROGRAM.name, self._folder, FAILING_RANK=str(failing_rank))
        spec = role["template"]["spec"]
        spec["containers"][0]["resources"] = {"limits": {self._slot: "1"}}
        spec |= pod
        least = {} if requests is None else {"requests": requests}
        await self.start(PROGRAM, cleanPodPolicy="Never", checkpointPath="/checkpoints", worker=role | least)

    def history(self, event: str) -> list[Line]:
        """Lines of the ranks, by their order in time."""
        file = self._folder / "history.jsonl"
        # The last line may be half written.
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [line for line in map(json.loads, lines) if line["event"] == event]

    async def trains(self, workers: int, *, epoch: int = 0) -> Status:
        """Wait until the job runs with this number of ranks, which have met in this epoch or a later one."""

        async def look() -> Status | None:
            last = [line for line in self.history("met") if line["rank"] == 0][-1:]
            if not any(line["size"] == workers and line["epoch"] >= epoch for line in last):
                return None
            status = await self.status()
            is_present = status.get("epoch", 0) == last[0]["epoch"]
            return status if is_present and status["phase"] == "Running" else None

        found: Status = await eventually(
            look,
            within=WAIT_TIMEOUT_SECONDS,
            every=1.0,
            what=f"{self.name}: {workers} ranks meet in epoch {epoch}",
        )
        return found

    async def waits_with(self, reason: str) -> str:
        """Wait for a reason of the condition `Running`; return the message."""

        async def look() -> Status | None:
            conditions = (await self.status()).get("conditions", ())
            return next((c for c in conditions if (c["type"], c["reason"]) == ("Running", reason)), None)

        found = await eventually(look, within=WAIT_TIMEOUT_SECONDS, every=0.5, what=f"{self.name}: {reason}")
        return str(found.get("message", ""))

    async def places(self) -> dict[int, str]:
        """Each rank's node, "" while it has none."""
        rank = len(f"{self.name}-worker-")
        pods = await self.pods()
        return {int(pod["metadata"]["name"][rank:]): pod["spec"].get("nodeName", "") for pod in pods}

    def stop(self) -> None:
        """Let the program end."""
        (self._folder / "stop").touch()

    async def remove(self) -> None:
        """Delete the job with its namespace."""
        await self.kubectl("delete", "namespace", self.name)
