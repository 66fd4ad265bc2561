"""Elastic jobs on nodes that they share, on nodes that die without a word, and under a quota."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.job_controller.properties.kubelet import index_of, node_of
from tests.unit.job_controller.properties.server import KEY, KEYS
from tests.unit.job_controller.properties.world import World

from job_controller.core import names
from job_controller.core.model import Options
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.objects import key_of, uid_of
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

pytestmark = pytest.mark.slow
HOUR = 3600.0


def make_world(nodes: int, *keys: Key, workers: int = 4) -> World:
    """Elastic jobs that want four workers each and can train with one."""
    world = World()
    world.options = Options(gate_image="example/gate:1", gate_url="http://gate")
    world.kubelet.slots = {f"node-{i}": 1 for i in range(nodes)}
    for key in keys:
        worker = {**make_role(workers), "requests": 1}
        world.server.create(names.JOB, make_paddle_job(key.name, worker=worker))
    world.start()
    return world


def trains(world: World, key: Key) -> int:
    """Workers of a job that runs, 0 of one that does not."""
    status = world.status_of(key)
    return int(status["ready"].partition("/")[0]) if status["phase"] == "Running" else 0


def restarts(world: World, key: Key) -> int:
    return sum(world.status_of(key).get("restarts", {}).values())


def pods_of(world: World, key: Key) -> list[Object]:
    return world.server.children(names.POD, uid_of(world.jobs[key]))


def give(world: World, nodes: int) -> None:
    """So many nodes with room for one pod each."""
    world.kubelet.slots = {f"node-{i}": 1 for i in range(nodes)}


def test_two_elastic_jobs_that_share_nodes_settle() -> None:
    """A restart gives up room. Pods of the other job take it, and that job then does the same."""
    world = make_world(2, *KEYS)
    world.come_to_rest(300)
    give(world, 5)
    world.come_to_rest(20)
    world.server.delete(names.POD, Key("default", "demo-worker-1"))
    world.come_to_rest(HOUR)
    settled = [restarts(world, key) for key in KEYS]
    assert sum(settled) <= 6, f"restarts in an hour: {settled}"
    assert sum(trains(world, key) for key in KEYS) == 5, "a node is not used"
    world.come_to_rest(HOUR)
    assert [restarts(world, key) for key in KEYS] == settled


def settle_by_chance(seed: int) -> None:
    """Nodes come, and go without a word, and the jobs settle."""
    chance = Random(seed)
    world = make_world(chance.randrange(6), *KEYS)
    for _ in range(3):
        world.come_to_rest(chance.choice([10, 40, 70, 400]), chance)
        give(world, chance.randrange(1, 6))
        if chance.random() < 0.3:
            world.kubelet.dead = {chance.choice(sorted(world.kubelet.slots)): world.clock.elapsed}
        if pods := world.kubelet.pods:
            world.server.delete(names.POD, key_of(chance.choice(pods)))
    world.come_to_rest(2 * HOUR, chance)
    settled = [restarts(world, key) for key in KEYS]
    world.come_to_rest(HOUR, chance)
    assert [restarts(world, key) for key in KEYS] == settled, f"seed {seed}: it goes on for ever"
    free = len(world.kubelet.slots) - len(world.kubelet.dead)
    assert sum(settled) <= 20, f"seed {seed}: {settled}"
    if all(world.status_of(key)["reason"] != "PodStuckTerminating" for key in KEYS):
        assert sum(trains(world, key) for key in KEYS) >= min(free, 4), f"seed {seed}: nodes are not used"


@pytest.mark.parametrize("seed", range(5))
def test_elastic_jobs_settle_on_whatever_nodes_there_are(seed: int) -> None:
    settle_by_chance(seed)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("first", range(5, 400, 40))
def test_elastic_jobs_settle_in_hundreds_of_histories(first: int) -> None:
    for seed in range(first, min(first + 40, 400)):
        settle_by_chance(seed)


def test_the_ranks_below_a_node_that_dies_before_they_begin_go_on_without_it() -> None:
    world = make_world(4, KEY)
    world.settle()
    for pod in pods_of(world, KEY):
        world.kubelet.place(pod, f"node-{index_of(pod)}")
    world.kubelet.dead = {"node-2": world.clock.elapsed}
    world.come_to_rest(HOUR)
    assert trains(world, KEY) == 2, world.status


def test_the_ranks_below_a_dead_node_go_on_without_it() -> None:
    world = make_world(4, KEY)
    world.come_to_rest(60)
    assert trains(world, KEY) == 4
    [lost] = [pod for pod in pods_of(world, KEY) if index_of(pod) == 2]
    world.kubelet.dead = {node_of(lost): world.clock.elapsed}
    world.come_to_rest(HOUR)
    assert trains(world, KEY) == 2, world.status
    world.kubelet.dead = {}
    world.come_to_rest(HOUR)
    assert trains(world, KEY) == 4, "the node is back"


def test_a_dead_node_with_rank_0_is_named_until_it_is_declared_out_of_service() -> None:
    world = make_world(4, KEY)
    world.come_to_rest(60)
    [lost] = [pod for pod in pods_of(world, KEY) if index_of(pod) == 0]
    world.kubelet.dead = {node_of(lost): world.clock.elapsed}
    world.come_to_rest(HOUR)
    assert world.status["reason"] == "PodStuckTerminating"
    world.kubelet.declare_out_of_service(node_of(lost))
    world.come_to_rest(HOUR)
    assert trains(world, KEY) == 3, world.status


def test_pods_of_a_lost_node_that_are_removed_one_after_the_other_shrink_no_job() -> None:
    """After the node is declared out of service, or its kubelet is back."""
    world = make_world(4, KEY)
    world.settle()
    nodes = ["node-0", "node-0", "node-1", "node-2"]
    for pod in pods_of(world, KEY):
        world.kubelet.place(pod, nodes[index_of(pod)])
    world.come_to_rest(60)
    assert trains(world, KEY) == 4
    world.kubelet.dead = {"node-0": world.clock.elapsed}
    world.come_to_rest(HOUR)
    assert world.status["reason"] == "PodStuckTerminating"
    before = restarts(world, KEY)
    give(world, 6)
    for pod in sorted(pods_of(world, KEY), key=index_of):
        world.server.delete(names.POD, key_of(pod), grace=0)
        world.settle()
    world.come_to_rest(HOUR)
    assert (trains(world, KEY), restarts(world, KEY)) == (4, before)


def test_an_elastic_job_trains_with_the_pods_that_a_quota_allows() -> None:
    world = make_world(4, KEY)
    world.server.quota = 2
    world.come_to_rest(HOUR)
    assert trains(world, KEY) == 2, world.status
    assert world.status["reason"] == "AllPodsRunning"
    assert restarts(world, KEY) == 1
    world.server.quota = None
    world.come_to_rest(HOUR)
    assert trains(world, KEY) == 4, "the quota has been raised"
