"""A node crashes under three jobs, and comes back: its kubelet and all its containers are killed at once.

The tests follow the jobs in the order of this file. The services and the bus run on the other node.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.training.live_job import Status
from tests.e2e.training.peer_job import WAIT_TIMEOUT_SECONDS, PeerJob, nodes_of, offer, restarts_of

from paddlewheel.cli.target import Target
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.faults import crash_node, start_node
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * WAIT_TIMEOUT_SECONDS)]

NODE_SILENCE_TIMEOUT_SECONDS = 45
"""A node is lost if its Lease was not renewed for so long."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
PLACEMENTS = 20
"""Attempts to have rank 0 on a certain node."""
UNREACHABLE = "node.kubernetes.io/unreachable"


async def test_a_program_that_fails_on_living_nodes_is_judged(
    paddlewheel_cluster: Target, tmp_path: Path
) -> None:
    for node in await nodes_of(paddlewheel_cluster):
        await offer(paddlewheel_cluster, node, faulty=1)
    job = PeerJob(paddlewheel_cluster, "faulty", tmp_path)
    await job.begin(2, failing_rank=1)

    async def has_failed() -> Status | None:
        status = await job.status()
        return status if status.get("phase") == "Failed" else None

    status = await eventually(has_failed, within=WAIT_TIMEOUT_SECONDS, every=1.0, what="the job fails")
    assert (status["reason"], restarts_of(status)) == ("PodFailed", {})
    await job.remove()


@dataclass(frozen=True)
class Crash:
    """The jobs, and the nodes.

    Args:
        program: one worker on each node.
        elastic: two workers on each node, rank 0 on the one that is alive.
        stranded: both workers on the dead node.
        lost: the lowest rank of the elastic job on the dead node.
    """

    where: Target
    alive: str
    dead: str
    program: PeerJob
    elastic: PeerJob
    stranded: PeerJob
    lost: int

    @property
    def jobs(self) -> tuple[PeerJob, ...]:
        return self.program, self.elastic, self.stranded


@pytest.fixture(scope="module")
def crash(paddlewheel_cluster: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crash]:
    """The node has crashed this moment. It runs again afterwards in any case."""
    found = asyncio.run(crashed(paddlewheel_cluster, tmp_path_factory.mktemp("jobs")))
    try:
        yield found
    finally:
        asyncio.run(bring_back(found))


async def crashed(where: Target, folder: Path) -> Crash:
    alive, dead = await nodes_of(where)
    for node in (alive, dead):
        await offer(where, node, program=1, elastic=2)
    await offer(where, dead, stranded=2)
    program, elastic, stranded = (PeerJob(where, name, folder) for name in ("program", "elastic", "stranded"))
    await program.begin(2)
    # Kubernetes deletes these pods soon after it notices that the node is lost, not after five minutes.
    toleration = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    await stranded.begin(2, requests=1, tolerations=[toleration])
    places = await placed(elastic, alive)
    for job in (program, stranded):
        await job.trains(2)
    try:
        crash_node(str(where.embedded), dead)
    except BaseException:
        start_node(str(where.embedded), dead)
        raise
    lost = min(rank for rank, node in places.items() if node == dead)
    return Crash(where, alive, dead, program, elastic, stranded, lost)


async def placed(job: PeerJob, first: str) -> dict[int, str]:
    """Begin the job until its rank 0 is on the first node. Return the node of each rank."""
    for _ in range(PLACEMENTS):
        await job.begin(4, requests=1)
        await job.trains(4)
        places = await job.places()
        if places[0] == first:
            return places
        await job.remove()
    raise AssertionError(f"rank 0 was never on {first}")


async def bring_back(crash: Crash) -> None:
    """Return when Kubernetes uses the node again."""
    run = crash.where.tools.run
    start_node(str(crash.where.embedded), crash.dead)

    async def is_back() -> bool:
        node = json.loads(await run("kubectl", "get", "node", crash.dead, "--output", "json"))
        conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]}
        taints = {taint["key"] for taint in node["spec"].get("taints", ())}
        return conditions["Ready"] == "True" and UNREACHABLE not in taints

    await eventually(is_back, within=WAIT_TIMEOUT_SECONDS, every=1.0, what=f"{crash.dead} is ready")
    with suppress(Permanent):
        # It has no such taint when a test has failed before it.
        await run("kubectl", "taint", "node", crash.dead, f"{OUT_OF_SERVICE}-")


async def test_the_exit_of_a_rank_that_lost_its_peer_is_not_the_programs_failure(crash: Crash) -> None:
    """The verdict waits while the Lease of the dead node is not renewed, and uses none of the budget."""
    job = crash.program
    assert crash.dead in await job.waits_with("WaitingForNode")
    await job.waits_with("PodStuckTerminating")
    status = await job.status()
    assert (status["epoch"], restarts_of(status)) == (1, {"NodeLost": 1})
    assert "backoffLimit" not in status["budgets"]
    assert crash.dead in status["lastRestart"]["message"]
    [lost] = job.history("lost")
    restarted = parse_stamp(status["lastRestart"]["time"])
    assert restarted is not None
    held = restarted.timestamp() - lost["at"]
    print(f"the verdict was held for {held:.0f} s")
    # The time of the restart has whole seconds.
    assert held > NODE_SILENCE_TIMEOUT_SECONDS - 1


async def test_the_ranks_below_a_lost_one_train_on(crash: Crash) -> None:
    job = crash.elastic
    status = await job.trains(crash.lost, epoch=1)
    assert status["world"]["workers"] == crash.lost
    assert restarts_of(status) == {"NodeLost": 1, "Resized": 1}
    assert "backoffLimit" not in status["budgets"]
    places = await job.places()
    assert {places[rank] for rank in range(crash.lost)} == {crash.alive}
    assert places[crash.lost] == crash.dead, "no pod is removed by force"
    lost, met = job.history("lost")[-1], job.history("met")[-1]
    print(f"{crash.lost} of 4 workers train {met['at'] - lost['at']:.0f} s after the crash")


async def test_a_lost_rank_0_is_waited_for_until_its_node_is_declared_out_of_service(crash: Crash) -> None:
    job = crash.stranded
    former = {pod["metadata"]["uid"] for pod in await job.pods()}
    message = await job.waits_with("PodStuckTerminating")
    assert crash.dead in message
    assert {pod["metadata"]["uid"] for pod in await job.pods()} == former, "no pod is removed by force"
    await offer(crash.where, crash.alive, stranded=2)
    taint = f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    await crash.where.tools.run("kubectl", "taint", "node", crash.dead, taint)
    status = await job.trains(2, epoch=1)
    assert restarts_of(status) == {"NodeLost": 1}
    assert set((await job.places()).values()) == {crash.alive}


async def test_all_workers_train_again_when_the_node_is_back(crash: Crash) -> None:
    await bring_back(crash)
    # A kubelet that starts may forget the slots of its node.
    await offer(crash.where, crash.dead, program=1, elastic=2, stranded=2)
    await crash.program.trains(2, epoch=1)
    await crash.elastic.trains(4, epoch=2)
    for job in crash.jobs:
        job.stop()
        status = await job.ends()
        print(job.name, status["epoch"], status["restarts"], status["budgets"])
        # Kubernetes may still evict a first pod from a node that is back; that pod alone is replaced.
        assert "backoffLimit" not in status["budgets"]
        assert set(restarts_of(status)) <= {"NodeLost", "Resized"}
        await job.remove()
