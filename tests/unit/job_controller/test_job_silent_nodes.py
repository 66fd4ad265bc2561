"""A node that crashes makes ranks on other nodes fail seconds before it counts as lost: its Lease decides."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.job_controller.builders import make_job, make_pod
from tests.unit.job_controller.conftest import JobHarness

from job_controller.core.model import Observed
from job_controller.core.parts import NodeLife
from job_controller.core.pods import Failure, PodState
from job_controller.features.silent_nodes.observe import NodeLeases
from job_controller.leases import LISTED_FROM, READS_AT_ONCE
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.stamps import milliseconds_stamp, seconds_stamp
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube.ports import LEASES, PODS, Object, Resource
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.kubernetes import set_pod_status
from paddlewheel.testkit.memory_cluster import MemoryCluster, Verb
from paddlewheel.testkit.paddlejobs import ended_status, make_paddle_job, make_role

FIRST, SECOND, THIRD = (Key("default", f"demo-worker-{index}") for index in range(3))
SILENCE_TIMEOUT_SECONDS, DOUBT_TIMEOUT_SECONDS = 45, 600
RENEWAL_INTERVAL_SECONDS = 10


async def renew(harness: JobHarness, node: str, ahead: float = 0) -> None:
    """Its kubelet does so every 10 s. Its clock is so many seconds ahead."""
    key = Key("kube-node-lease", node)
    at = harness.clock.now() + timedelta(seconds=ahead)
    spec = {"holderIdentity": node, "renewTime": milliseconds_stamp(at)}
    if await harness.exists(key, LEASES):
        await harness.cluster.patch(LEASES, key, {"spec": spec})
    else:
        await harness.cluster.create(
            LEASES, {"metadata": {"name": node, "namespace": key.namespace}, "spec": spec}
        )


async def on_nodes(harness: JobHarness, *nodes: str, **spec: Any) -> Key:
    """A job with a worker on each of these nodes; all run, and all nodes have just renewed their Leases."""
    key = await harness.to_running(make_paddle_job(**{"worker": make_role(len(nodes))} | spec))
    for index, node in enumerate(nodes):
        await harness.cluster.patch(
            PODS, Key("default", f"demo-worker-{index}"), {"spec": {"nodeName": node}}
        )
        await renew(harness, node)
    await harness.drain_queue()
    return key


async def fail(harness: JobHarness, pod: Key, exit_code: int = 1, ahead: float = 0, **changes: Any) -> None:
    """The clock of its node is so many seconds ahead."""
    status = ended_status(exit_code=exit_code, **changes)
    ended = status["containerStatuses"][0]["state"]["terminated"]
    ended["finishedAt"] = seconds_stamp(harness.clock.now() + timedelta(seconds=ahead))
    await harness.set_status(pod, status, PODS)
    await harness.drain_queue()


async def pass_time(harness: JobHarness, seconds: int, *living: str, ahead: float = 0) -> None:
    """Second by second; the living nodes renew their Leases."""
    for second in range(1, seconds + 1):
        if second % RENEWAL_INTERVAL_SECONDS == 0:
            for node in living:
                await renew(harness, node, ahead)
        await harness.advance(1)


async def test_a_rank_that_fails_because_a_node_has_crashed_is_not_the_programs_failure(
    harness: JobHarness,
) -> None:
    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    await fail(harness, FIRST)
    await pass_time(harness, SILENCE_TIMEOUT_SECONDS + 1, "a")
    status = await harness.status(key)
    assert await harness.restarts(key) == (1, {"NodeLost": 1})
    assert status["budgets"] == {"disruptions": 1}
    assert status["lastRestart"]["message"] == (
        "pod demo-worker-1 was lost with its node b, which has not renewed its Lease for 45 s"
    )


async def test_a_fail_rule_is_not_applied_to_what_follows_from_a_crashed_node(harness: JobHarness) -> None:
    rules = [{"action": "Fail", "exitCodes": [1]}]
    key = await on_nodes(harness, "a", "b", failurePolicy={"rules": rules}, backoffLimit=1)
    await harness.advance(3)
    await fail(harness, FIRST)
    await pass_time(harness, SILENCE_TIMEOUT_SECONDS + 1, "a")
    assert await harness.restarts(key) == (1, {"NodeLost": 1})


async def test_the_verdict_waits_until_every_other_node_has_renewed_its_lease(harness: JobHarness) -> None:
    key = await on_nodes(harness, "a", "b", "c")
    await harness.advance(3)
    await fail(harness, FIRST)
    await pass_time(harness, RENEWAL_INTERVAL_SECONDS - 1, "b", "c")
    assert (await harness.status(key))["phase"] == "Running", "no verdict yet"
    assert len(await harness.pod_names()) == 3
    await pass_time(harness, RENEWAL_INTERVAL_SECONDS + 2, "b", "c")
    assert (await harness.condition(key, "Failed"))["reason"] == "PodFailed"


async def test_nothing_is_made_in_place_of_a_pod_that_is_gone_while_the_verdict_waits(
    harness: JobHarness,
) -> None:
    key = await on_nodes(harness, "a", "b", "c", backoffLimit=2)
    await harness.advance(3)
    await fail(harness, FIRST)
    await harness.delete(SECOND, PODS)
    await harness.drain_queue()
    assert SECOND.name not in await harness.pod_names()
    await pass_time(harness, SILENCE_TIMEOUT_SECONDS + 1, "a", "b", "c")
    assert await harness.restarts(key) == (1, {"PodFailed": 1})


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"backoffLimit": 1, "failurePolicy": {"restartScope": "Pod"}}, "PodFailed"),
        ({"backoffLimit": 1}, "OOMKilled"),
    ],
    ids=["ranks that do not depend on each other", "killed by the kernel"],
)
async def test_a_failure_that_no_other_node_explains_is_judged_at_once(
    harness: JobHarness, spec: Object, cause: str
) -> None:
    key = await on_nodes(harness, "a", "b", **spec)
    await harness.advance(3)
    await fail(harness, FIRST, 137, reason="OOMKilled" if cause == "OOMKilled" else "Error")
    assert (await harness.restarts(key))[1] == {cause: 1}


async def test_ranks_of_one_node_are_judged_at_once(harness: JobHarness) -> None:
    key = await on_nodes(harness, "a", "a")
    await harness.advance(3)
    await fail(harness, FIRST)
    assert (await harness.status(key))["phase"] == "Failed"


@pytest.mark.parametrize("ahead", [-5, 0, 5])
async def test_the_clocks_of_nodes_do_not_tell_which_rank_failed_first(
    harness: JobHarness, ahead: float
) -> None:
    """Its peer fails two seconds later, by another clock."""
    rules = [{"action": "Fail", "exitCodes": [42]}]
    key = await on_nodes(harness, "a", "b", "c", failurePolicy={"rules": rules}, backoffLimit=3)
    await harness.advance(3)
    await fail(harness, FIRST, 42)
    await harness.advance(2)
    await fail(harness, SECOND, 1, ahead=ahead)
    await pass_time(harness, RENEWAL_INTERVAL_SECONDS + 2, "a", "b", "c")
    assert (await harness.condition(key, "Failed"))["reason"] == "FailureRule"


async def test_a_failure_that_follows_from_another_one_decides_nothing(harness: JobHarness) -> None:
    rules = [{"action": "Fail", "exitCodes": [42]}]
    key = await on_nodes(harness, "a", "b", "c", failurePolicy={"rules": rules}, backoffLimit=3)
    await harness.advance(3)
    await fail(harness, FIRST, 1)
    await harness.advance(2)
    await fail(harness, SECOND, 42, ahead=-5)
    await pass_time(harness, RENEWAL_INTERVAL_SECONDS + 2, "a", "b", "c")
    assert await harness.restarts(key) == (1, {"PodFailed": 1})


@pytest.mark.parametrize("node", ["a node without a Lease", ""])
async def test_a_node_without_a_lease_holds_nothing_up(harness: JobHarness, node: str) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(2)))
    if node:
        await harness.cluster.patch(PODS, SECOND, {"spec": {"nodeName": "c"}})
    await fail(harness, FIRST)
    assert (await harness.status(key))["phase"] == "Failed"


async def test_a_node_that_is_removed_from_the_cluster_is_lost_at_once(harness: JobHarness) -> None:
    """Kubernetes deletes its Lease, as after an autoscaler has deleted the Node."""
    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    await fail(harness, FIRST)
    await pass_time(harness, 9, "a")
    assert (await harness.status(key))["phase"] == "Running", "no verdict yet"
    await harness.cluster.delete(LEASES, Key("kube-node-lease", "b"))
    await pass_time(harness, 3, "a")
    assert await harness.restarts(key) == (1, {"NodeLost": 1})
    message = (await harness.status(key))["lastRestart"]["message"]
    assert message == "pod demo-worker-1 was lost with its node b, whose Lease was deleted"


async def test_a_lease_that_may_no_longer_be_read_proves_no_loss(harness: JobHarness) -> None:
    def forbidden(verb: Verb, resource: Resource, _: Key) -> None:
        if (verb, resource) == ("get", LEASES):
            raise Permanent("Forbidden", "leases are forbidden")

    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    await fail(harness, FIRST)
    await harness.advance(3)
    with harness.intercepted(forbidden):
        await harness.advance(3)
    assert (await harness.condition(key, "Failed"))["reason"] == "PodFailed"


async def test_leases_that_may_not_be_read_hold_nothing_up(harness: JobHarness) -> None:
    def forbidden(verb: Verb, resource: Resource, _: Key) -> None:
        if (verb, resource) == ("get", LEASES):
            raise Permanent("Forbidden", "leases are forbidden")

    key = await on_nodes(harness, "a", "b")
    with harness.intercepted(forbidden):
        await fail(harness, FIRST)
    assert (await harness.status(key))["phase"] == "Failed"


def is_away(verb: Verb, resource: Resource, _: Key) -> None:
    """The API server answers nothing about Leases."""
    if (verb, resource) == ("get", LEASES):
        raise Retry("away")


async def test_an_api_server_that_does_not_answer_proves_no_loss(harness: JobHarness) -> None:
    key = await on_nodes(harness, "a", "b")
    with harness.intercepted(is_away):
        await fail(harness, FIRST)
        await pass_time(harness, DOUBT_TIMEOUT_SECONDS - 1)
        assert (await harness.status(key))["phase"] == "Running"
        await pass_time(harness, 2)
    assert (await harness.condition(key, "Failed"))["reason"] == "PodFailed"


@pytest.mark.parametrize(("silent", "away"), [(2, SILENCE_TIMEOUT_SECONDS + 1), (40, 12)])
async def test_silence_is_counted_only_while_the_api_server_answers(
    harness: JobHarness, silent: int, away: int
) -> None:
    """While it is away, no kubelet can renew a Lease. Kubelets try again only after this service."""
    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    await fail(harness, FIRST)
    await pass_time(harness, silent)
    with harness.intercepted(is_away):
        await pass_time(harness, away)
    await pass_time(harness, 9)
    assert (await harness.status(key))["phase"] == "Running", "no verdict yet"
    await pass_time(harness, RENEWAL_INTERVAL_SECONDS + 2, "a", "b")
    assert (await harness.condition(key, "Failed"))["reason"] == "PodFailed"


async def test_a_few_reads_that_fail_make_no_silence_begin_again(harness: JobHarness) -> None:
    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    await fail(harness, FIRST)
    for _ in range(5):
        await pass_time(harness, 5, "a")
        with harness.intercepted(is_away):
            await pass_time(harness, 4)
    await pass_time(harness, 3, "a")
    assert await harness.restarts(key) == (1, {"NodeLost": 1})


@pytest.mark.parametrize("away", [18, 58, DOUBT_TIMEOUT_SECONDS - 50])
@pytest.mark.parametrize("answered", [0, 30], ids=["at first", "later"])
async def test_a_crashed_node_is_recognised_after_an_outage_of_the_api_server(
    harness: JobHarness, away: int, answered: int
) -> None:
    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    if answered:
        await fail(harness, FIRST)
        await pass_time(harness, answered, "a")
    with harness.intercepted(is_away):
        if not answered:
            await fail(harness, FIRST)
        await pass_time(harness, away)
    await pass_time(harness, SILENCE_TIMEOUT_SECONDS + 4, "a")
    assert await harness.restarts(key) == (1, {"NodeLost": 1})


async def test_a_crashed_node_is_recognised_after_a_long_outage_of_the_whole_api_server(
    harness: JobHarness,
) -> None:
    """No verdict can be recorded meanwhile."""

    def answers_nothing(*_: object) -> None:
        raise Retry("away")

    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    await fail(harness, FIRST)
    with harness.intercepted(answers_nothing):
        for _ in range(2 * DOUBT_TIMEOUT_SECONDS):
            await harness.advance(1)
    await pass_time(harness, SILENCE_TIMEOUT_SECONDS + 4, "a")
    assert await harness.restarts(key) == (1, {"NodeLost": 1})


async def test_no_job_is_held_for_ever_by_passes_that_come_seldom(harness: JobHarness) -> None:
    """The service has too much to do, so that each answer comes after a gap."""
    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    await fail(harness, FIRST)
    for _ in range(DOUBT_TIMEOUT_SECONDS // 12 + 1):
        await harness.advance(12)
    assert (await harness.condition(key, "Failed"))["reason"] == "PodFailed"


async def test_no_job_is_held_for_ever_by_an_api_server_that_seldom_answers(harness: JobHarness) -> None:
    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    await fail(harness, FIRST)
    for _ in range(DOUBT_TIMEOUT_SECONDS // 15 + 1):
        with harness.intercepted(is_away):
            await pass_time(harness, 12)
        await pass_time(harness, 3, "a")
    assert (await harness.condition(key, "Failed"))["reason"] == "PodFailed"


SKEWS = [-3600, -60, -15, 15, 60, 3600]
"""Seconds that the clock of a node is ahead."""


@pytest.mark.parametrize("ahead", SKEWS)
async def test_a_crashed_node_is_recognised_whatever_the_clock_of_the_failed_ranks_node(
    harness: JobHarness, ahead: int
) -> None:
    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    await fail(harness, FIRST, ahead=ahead)
    await pass_time(harness, SILENCE_TIMEOUT_SECONDS + 2, "a")
    assert await harness.restarts(key) == (1, {"NodeLost": 1})


@pytest.mark.parametrize("ahead", SKEWS)
async def test_a_node_that_renews_its_lease_is_alive_whatever_its_clock(
    harness: JobHarness, ahead: int
) -> None:
    key = await on_nodes(harness, "a", "b")
    await renew(harness, "b", ahead)
    await harness.advance(3)
    await fail(harness, FIRST)
    await pass_time(harness, SILENCE_TIMEOUT_SECONDS + 2, "a", "b", ahead=ahead)
    assert (await harness.condition(key, "Failed"))["reason"] == "PodFailed"


async def test_a_rank_whose_eviction_ends_after_it_failed_by_a_slow_clock_was_evicted(
    harness: JobHarness,
) -> None:
    """Peers of an evicted rank fail; the clock of their node is two minutes behind."""
    worker = make_role(2)
    worker["template"]["metadata"] = {"finalizers": ["example.com/held"]}
    key = await on_nodes(harness, "a", "b", worker=worker, backoffLimit=3)
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    await harness.set_status(SECOND, {"conditions": [evicted]}, PODS)
    await harness.delete(SECOND, PODS)
    await fail(harness, FIRST, ahead=-120)
    assert await harness.restarts(key) == (1, {"Evicted": 1})


@pytest.mark.parametrize(
    ("edit", "cause"),
    [
        ({"spec": {"suspend": True}}, "Suspended"),
        ({"metadata": {"annotations": {"paddlepaddle.org/restart": "now"}}}, "RestartRequested"),
    ],
)
async def test_a_change_that_ends_all_pods_does_not_wait_for_the_verdict(
    harness: JobHarness, edit: Object, cause: str
) -> None:
    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    await fail(harness, FIRST)
    await harness.patch(key, edit)
    await harness.settle(key)
    assert await harness.restarts(key) == (1, {cause: 1})


async def test_a_job_that_is_suspended_while_the_verdict_waits_gives_up_its_pods(harness: JobHarness) -> None:
    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    await fail(harness, FIRST)
    await harness.patch(key, {"spec": {"suspend": True}})
    await harness.settle(key)
    status = await harness.status(key)
    assert (status["phase"], status["reason"]) == ("Pending", "Suspended")
    assert await harness.pod_names() == []


async def test_a_crashed_node_is_recognised_though_the_spec_has_become_wrong_and_smaller(
    harness: JobHarness,
) -> None:
    key = await on_nodes(harness, "a", "b", "c")
    await harness.patch(key, {"spec": {"activeDeadlineSeconds": -1, "worker": {"replicas": 1}}})
    await harness.settle(key)
    await harness.advance(3)
    await fail(harness, SECOND)
    await pass_time(harness, SILENCE_TIMEOUT_SECONDS + 2, "a", "b")
    assert await harness.restarts(key) == (1, {"NodeLost": 1})
    assert "demo-worker-2" in (await harness.status(key))["lastRestart"]["message"]


async def test_a_wrong_spec_is_reported_once_though_the_verdict_waits(harness: JobHarness) -> None:
    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    await fail(harness, FIRST)
    await harness.patch(key, {"spec": {"activeDeadlineSeconds": -1}})
    await pass_time(harness, 2 * RENEWAL_INTERVAL_SECONDS + 2, "a", "b")
    assert (await harness.status(key))["phase"] == "Failed"
    refusals = [event for event in await harness.kubernetes_events() if event.reason == "InvalidSpec"]
    assert len(refusals) == 1


async def test_each_lease_is_read_every_two_seconds_and_no_more_once_its_node_is_alive(
    harness: JobHarness,
) -> None:
    await on_nodes(harness, "a", "b", "c")
    reads: list[str] = []

    def count(verb: Verb, resource: Resource, key: Key) -> None:
        if (verb, resource) == ("get", LEASES):
            reads.append(key.name)

    await harness.advance(3)
    with harness.intercepted(count):
        await fail(harness, FIRST)
        await harness.advance(1)
        spec = {"renewTime": milliseconds_stamp(harness.clock.now())}
        await harness.cluster.patch(LEASES, Key("kube-node-lease", "b"), {"spec": spec})
        for _ in range(10):
            await harness.advance(1)
    assert reads.count("a") == 0, "its kubelet has reported the failure"
    assert reads.count("b") <= 2
    assert 5 <= reads.count("c") <= 7


async def test_jobs_that_fail_together_share_the_reads_of_their_nodes(harness: JobHarness) -> None:
    """20 jobs of four workers on the same four nodes."""
    nodes = [f"node-{index}" for index in range(4)]
    for number in range(20):
        key = await harness.create(make_paddle_job(f"job-{number}", worker=make_role(len(nodes))))
        await harness.settle(key)
        for index, node in enumerate(nodes):
            pod = Key("default", f"job-{number}-worker-{index}")
            await harness.cluster.patch(PODS, pod, {"spec": {"nodeName": node}})
            await set_pod_status(harness.cluster, pod, "Running", ip=f"10.0.{number}.{index}")
        await harness.settle(key)
    for node in nodes:
        await renew(harness, node)
    reads: list[str] = []

    def count(verb: Verb, resource: Resource, key: Key) -> None:
        if (verb, resource) == ("get", LEASES):
            reads.append(key.name)

    with harness.intercepted(count):
        for number in range(20):
            await fail(harness, Key("default", f"job-{number}-worker-0"))
        await pass_time(harness, RENEWAL_INTERVAL_SECONDS + 2, *nodes)
        assert (await harness.status(Key("default", "job-19")))["phase"] == "Failed"
        settled = len(reads)
        await harness.advance(60)
    assert len(reads) == settled, "nobody needs them any more"
    assert settled <= 7 * len(nodes)


def held(job: str, *nodes: str) -> Observed:
    """The first of its workers has failed, and those on other nodes run."""
    failure = Failure("demo-worker-0", "Error", 1, "")
    pods = [make_pod("worker", 0, node=nodes[0], began=True, state=PodState.FAILED, failure=failure)]
    pods += [
        make_pod("worker", index, node=node, began=True, state=PodState.RUNNING)
        for index, node in enumerate(nodes[1:], start=1)
    ]
    return Observed(make_job(job, worker=make_role(len(nodes))), tuple(pods))


class BusyCluster(MemoryCluster):
    """Counts the calls that it answers at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self._calls = 0

    async def get(self, resource: Resource, key: Key) -> Object:
        self._calls += 1
        self.most = max(self.most, self._calls)
        await asyncio.sleep(0)
        self._calls -= 1
        return await super().get(resource, key)


async def test_the_passes_of_many_jobs_read_few_leases_at_once() -> None:
    cluster = BusyCluster()
    leases = NodeLeases(cluster, ManualClock())
    jobs = [held(f"job-{number}", f"node-{number}", f"peer-{number}") for number in range(100)]
    for seen in jobs:
        await cluster.create(
            LEASES,
            {
                "metadata": {"name": seen.pods[1].node, "namespace": "kube-node-lease"},
                "spec": {"renewTime": "now"},
            },
        )
    lives = [answer.node_lives for answer in await asyncio.gather(*map(leases.read, jobs))]
    assert lives == [{seen.pods[1].node: NodeLife.WAITING} for seen in jobs]
    assert cluster.most == READS_AT_ONCE


@pytest.mark.parametrize(
    ("nodes", "refusal", "calls"),
    [
        (1_000, None, {"list": 1}),
        (1_000, Permanent("Forbidden", "leases are forbidden"), {"list": 1, "get": 1_000}),
        (1_000, Retry("TooManyRequests", "lists wait"), {"list": 1, "get": 1_000}),
        (LISTED_FROM - 1, None, {"get": 63}),
    ],
    ids=["many", "without the right", "under load", "few"],
)
async def test_the_leases_of_many_nodes_are_listed(
    nodes: int, refusal: Exception | None, calls: dict[str, int]
) -> None:
    cluster, clock, made = MemoryCluster(), ManualClock(), Counter[str]()
    seen = held("demo", *(f"node-{index}" for index in range(nodes + 1)))
    for pod in seen.pods[1:]:
        metadata = {"name": pod.node, "namespace": "kube-node-lease"}
        await cluster.create(LEASES, {"metadata": metadata, "spec": {"renewTime": "now"}})

    def count(verb: Verb, *_: object) -> None:
        made[verb] += 1
        if verb == "list" and refusal is not None:
            raise refusal

    cluster.intercept = count
    lives = (await NodeLeases(cluster, clock).read(seen)).node_lives
    assert lives == {pod.node: NodeLife.WAITING for pod in seen.pods[1:]}
    assert made == calls


async def test_a_node_whose_lease_a_list_does_not_have_is_removed(harness: JobHarness) -> None:
    cluster, clock = MemoryCluster(), ManualClock()
    seen, leases = held("demo", *(f"node-{index}" for index in range(101))), NodeLeases(cluster, clock)
    for pod in seen.pods[1:]:
        metadata = {"name": pod.node, "namespace": "kube-node-lease"}
        await cluster.create(LEASES, {"metadata": metadata, "spec": {"renewTime": "now"}})
    await leases.read(seen)
    await cluster.delete(LEASES, Key("kube-node-lease", "node-7"))
    await clock.advance(2)
    lives = (await leases.read(seen)).node_lives or {}
    assert [node for node, life in lives.items() if life is NodeLife.REMOVED] == ["node-7"]


async def test_the_leases_of_a_job_that_is_deleted_while_the_verdict_waits_are_forgotten() -> None:
    cluster, clock = MemoryCluster(), ManualClock()
    leases = NodeLeases(cluster, clock)
    seen = held("demo", "node-0", "node-1")
    lives = (await leases.read(seen)).node_lives
    assert (lives, len(leases)) == ({"node-1": NodeLife.UNKNOWN}, 1), "it has no Lease"
    leases.forget(seen.job.key, "")
    assert len(leases) == 0


async def test_a_job_whose_first_verdict_waits_has_a_status(harness: JobHarness) -> None:
    key = await harness.create(make_paddle_job(worker=make_role(2)))
    await harness.settle(key)
    for index, node in enumerate(("a", "b")):
        pod = Key("default", f"demo-worker-{index}")
        await harness.cluster.patch(PODS, pod, {"spec": {"nodeName": node}})
        await renew(harness, node)
    await harness.run_pods(SECOND.name)
    await fail(harness, FIRST)
    await harness.settle(key)
    await harness.advance(5)
    assert (await harness.status(key))["phase"] == "Pending"
    assert harness.facts()[:1] == ["JobAccepted"]


async def test_the_status_names_the_node_that_the_verdict_waits_for(harness: JobHarness) -> None:
    key = await on_nodes(harness, "a", "b", "c")
    await harness.advance(3)
    await fail(harness, FIRST)
    with harness.counted_writes() as writes:
        await pass_time(harness, 40, "a", "b")
    status = await harness.status(key)
    assert (status["phase"], status["ready"], status["reason"]) == ("Running", "2/3", "WaitingForNode")
    assert status["message"] == (
        "waits until node c renews its Lease or is lost, which may be the cause:"
        " pod demo-worker-0 failed (Error, exit code 1)"
    )
    written = writes["patch-status", "paddlejobs"]
    assert written <= 2, "one for each node that was waited for, and none for a pass"


async def test_the_wait_for_a_verdict_names_one_node_as_long_as_it_is_in_doubt(harness: JobHarness) -> None:
    key = await on_nodes(harness, *(f"node-{index:02}" for index in range(20)))
    await harness.advance(3)
    await fail(harness, FIRST)
    messages = set[str]()
    for index in range(19, 1, -1):
        await harness.advance(2)
        await renew(harness, f"node-{index:02}")
        messages.add((await harness.status(key))["message"])
    assert len(messages) == 1
    assert "node-01 " in messages.pop()


async def test_the_wait_for_a_verdict_is_no_part_of_the_run_that_ends_delays(harness: JobHarness) -> None:
    """A run of ten minutes ends them. The wait lasts as long while the API server does not answer."""
    key = await on_nodes(harness, "a", "b", backoffLimit=9)
    for name in ("demo-worker-0", "demo-worker-1"):
        await harness.patch(key, {"metadata": {"annotations": {"paddlepaddle.org/restart": name}}})
        await harness.settle(key)
    await harness.run_pods()
    await harness.settle(key)
    failures = []
    for _ in range(2):
        for index, node in enumerate(("a", "b")):
            await harness.cluster.patch(
                PODS, Key("default", f"demo-worker-{index}"), {"spec": {"nodeName": node}}
            )
        await harness.advance(20)
        with harness.intercepted(is_away):
            await fail(harness, FIRST)
            await pass_time(harness, DOUBT_TIMEOUT_SECONDS + 2)
        failures.append((await harness.status(key))["lastRestart"]["failures"])
        await harness.advance(20)
        await harness.run_pods()
        await harness.settle(key)
    assert failures == [1, 2]


async def test_a_refused_deletion_is_shown_though_the_verdict_was_waiting(harness: JobHarness) -> None:
    key = await on_nodes(harness, "a", "b")
    await harness.advance(3)
    await fail(harness, FIRST)
    await pass_time(harness, 3, "b")
    assert (await harness.condition(key, "Running"))["reason"] == "WaitingForNode"
    harness.bus.down = True
    await harness.delete(key)
    with harness.failing(Permanent("Forbidden", "no deletions"), "delete", PODS):
        await pass_time(harness, 3, "b")
        assert (await harness.condition(key, "Blocked"))["status"] == "True"
    harness.bus.down = False


async def test_a_wrong_spec_is_shown_while_the_verdict_waits(harness: JobHarness) -> None:
    key = await on_nodes(harness, "a", "b")
    await harness.patch(key, {"spec": {"activeDeadlineSeconds": -1}})
    await harness.settle(key)
    await harness.advance(3)
    await fail(harness, FIRST)
    await pass_time(harness, 3, "b")
    assert (await harness.status(key))["reason"] == "InvalidSpec"
    assert (await harness.condition(key, "Running"))["reason"] == "WaitingForNode"
