"""Workers run beside the data that is cached for them, and say so when they do not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.job_controller.builders import make_job, render
from tests.unit.job_controller.conftest import JobHarness

from dataset_controller.domain.sampleset.figures import cache_status
from job_controller.core.parse import parse_sample_set
from job_controller.core.parts import SampleSet
from job_controller.core.pods import PodId
from job_controller.features.dataset.placement import data_node, preferred_nodes, required_node
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import PADDLE_JOBS, PODS, SAMPLE_SETS, Object
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role, make_sample_set
from paddlewheel.testkit.samplesets import make_report

REF = {"name": "set", "mountPath": "/data"}
LABEL = "paddlepaddle.org/juicefs-default.set"
JOB = make_job(sampleSetRef=REF, worker=make_role(3), ps=make_role(1))


def held(*partitions: int) -> Object:
    return {"key": LABEL, "operator": "In", "values": [str(partition) for partition in partitions]}


def cached(*percent: int) -> SampleSet:
    """A set of that many partitions, each on node-0, node-1 ..."""
    nodes = {partition: f"node-{partition}" for partition in range(len(percent))}
    return SampleSet("Ready", len(percent), nodes=nodes, cached=dict(enumerate(percent)))


def weights(sample_set: SampleSet | None, worker: int = 0) -> list[tuple[int, Object]]:
    terms = preferred_nodes(JOB, PodId("worker", worker), sample_set)
    return [(term["weight"], term["preference"]["matchExpressions"][0]) for term in terms]


@pytest.mark.parametrize(
    ("sample_set", "expected"),
    [
        (None, []),
        (SampleSet("Ready", 2), [(60, held(0))]),
        (cached(0, 0), [(60, held(0))]),
        (cached(50, 50), [(100, held(0)), (20, held(1))]),
        (cached(50, 50, 50, 25), [(100, held(0)), (20, held(1, 2)), (10, held(3))]),
        (cached(0, 100), [(60, held(0)), (20, held(1))]),
        (cached(100, 1), [(100, held(0))]),
        (SampleSet("Ready", 2, cached={0: 40}), [(100, held(0))]),
        (SampleSet("Ready", 2, cached={1: 40}), [(100, held(0)), (20, held(1))]),
        (SampleSet("Ready", 2, cached={0: 40, 2: 40}), [(100, held(0))]),
    ],
    ids=[
        *("no set", "not measured", "cold", "even", "uneven", "own empty", "other empty", "other silent"),
        *("own silent", "removed"),
    ],
)
def test_a_worker_prefers_its_own_partition_by_what_is_cached(
    sample_set: SampleSet | None, expected: list[tuple[int, Object]]
) -> None:
    assert weights(sample_set) == expected


def test_a_set_of_very_many_partitions_costs_no_more() -> None:
    """Each partition would be an entry of a list of gigabytes."""
    assert weights(SampleSet("Ready", 2**31 - 1), worker=7) == [(60, held(7))]


def test_of_many_partitions_the_fullest_are_named() -> None:
    percent = [0] * 1000
    for partition in range(500, 530):
        percent[partition] = 10
    percent[900] = 100
    named = weights(cached(*percent), worker=3)
    assert named == [(60, held(3)), (20, held(900))]
    fuller = [100 if partition % 2 else 0 for partition in range(1000)]
    assert weights(cached(*fuller), worker=3) == [(100, held(3)), (20, held(1, *range(5, 23, 2)))]


def test_how_full_partitions_are_is_looked_at_once_for_all_workers() -> None:
    counted = Counting(dict.fromkeys(range(1000), 50))
    sample_set = SampleSet("Ready", 1000, cached=counted)
    for worker in range(100):
        assert weights(sample_set, worker)[0] == (100, held(worker))
    assert counted.reads < 20 * 1000, "not a look at each partition for each worker"


class Counting(dict[int, int]):
    """Counts which entries are looked at."""

    reads = 0

    def __getitem__(self, partition: int) -> int:
        self.reads += 1
        return super().__getitem__(partition)

    def __iter__(self) -> Iterator[int]:
        self.reads += len(self)
        return super().__iter__()

    def values(self) -> Any:
        self.reads += len(self)
        return super().values()

    def items(self) -> Any:
        self.reads += len(self)
        return super().items()


def test_what_the_set_writes_of_many_partitions_is_what_workers_go_by() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    share = 2**30
    reports = [
        make_report("u", i, now, total_bytes=200 * share, cached_bytes=share if i == 7 else share // 10)
        for i in range(200)
    ]
    written = {"spec": {"partitions": 200}, "status": {"cacheStatus": cache_status(reports, 200)}}
    found = parse_sample_set(written)
    assert weights(found, worker=7)[0] == (100, held(7))
    own, *others = weights(found, worker=3)
    assert own == (60, held(3))
    assert others == [(20, held(7))]


def test_figures_without_a_partition_say_nothing() -> None:
    nodes = [{"node": "lost"}, {"partition": 1, "node": "node-1", "cachedPercent": 5}]
    found = parse_sample_set({"spec": {"partitions": 2}, "status": {"cacheStatus": {"nodes": nodes}}})
    assert (found.nodes, found.cached) == ({1: "node-1"}, {1: 5})


def test_only_workers_within_the_partitions_have_a_place() -> None:
    two = cached(50, 50)
    assert weights(two, worker=2) == []
    assert preferred_nodes(JOB, PodId("ps", 0), two) == []
    assert preferred_nodes(make_job(worker=make_role()), PodId("worker", 0), two) == []
    assert (data_node(JOB, PodId("worker", 1), two), data_node(JOB, PodId("worker", 2), two)) == (
        "node-1",
        "",
    )
    assert data_node(JOB, PodId("worker", 1), SampleSet("Ready", 2)) == ""


def test_a_place_can_be_required() -> None:
    job = make_job(sampleSetRef={**REF, "placement": "Required"}, worker=make_role(3), ps=make_role(1))
    anywhere = {"key": LABEL, "operator": "Exists"}
    two = cached(50, 50)
    assert required_node(job, PodId("worker", 1), two) == held(1)
    assert required_node(job, PodId("worker", 2), two) == anywhere
    assert required_node(job, PodId("worker", 0), None) == anywhere
    assert required_node(job, PodId("ps", 0), two) is None
    assert required_node(JOB, PodId("worker", 0), two) is None


def test_what_is_required_holds_for_each_of_the_users_alternatives() -> None:
    users = [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, {"matchFields": [{"key": "x"}]}]
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": users}}
    }
    job = make_job(sampleSetRef={**REF, "placement": "Required"}, worker=make_role(2, affinity=affinity))
    node = render(job, index=1, sample_set=cached(50, 50))["spec"]["affinity"]["nodeAffinity"]
    assert node == {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "gpu", "operator": "Exists"}, held(1)]},
                {"matchFields": [{"key": "x"}], "matchExpressions": [held(1)]},
            ]
        }
    }


async def running(harness: JobHarness, *nodes: str) -> Key:
    """A job whose worker i runs on the i-th of these nodes; partition i is on node-i."""
    key = Key("default", "set")
    await make_sample_set(harness.cluster, key, partitions=2)
    measured = [{"partition": i, "node": f"node-{i}", "cachedPercent": 50} for i in range(2)]
    status: dict[str, Any] = {"phase": "Ready", "cacheStatus": {"nodes": measured}}
    await harness.set_status(key, status, SAMPLE_SETS)
    job = await harness.create(make_paddle_job(sampleSetRef=REF, worker=make_role(len(nodes))))
    await harness.settle(job)
    for index, node in enumerate(nodes):
        pod = Key("default", f"demo-worker-{index}")
        await harness.cluster.patch(PODS, pod, {"spec": {"nodeName": node}})
    await harness.run_pods()
    await harness.settle(job)
    return job


async def told(harness: JobHarness) -> list[str]:
    return [e.message for e in await harness.kubernetes_events() if e.reason == "SpilledOver"]


async def test_a_job_beside_its_data_says_so(harness: JobHarness) -> None:
    job = await running(harness, "node-0", "node-1", "node-7")
    condition = await harness.condition(job, "DataLocal")
    message = "2 workers run on the node of their partition of SampleSet default/set"
    assert (condition["reason"], condition["message"]) == ("BesideData", message)
    assert await told(harness) == []


async def test_a_job_without_pods_says_nothing_of_where_they_run(harness: JobHarness) -> None:
    job = await running(harness, "node-0", "node-5")
    await harness.cluster.patch(
        PADDLE_JOBS, job, {"metadata": {"annotations": {"paddlepaddle.org/restart": "1"}}}
    )
    await harness.settle(job)
    conditions = {condition["type"] for condition in (await harness.status(job))["conditions"]}
    assert "DataLocal" not in conditions


async def test_a_job_that_has_spilled_over_says_who_reads_from_afar(harness: JobHarness) -> None:
    job = await running(harness, "node-0", "node-5")
    message = (
        "1 of 2 workers run on other nodes than that of their partition of SampleSet default/set:"
        " demo-worker-1 is on node-5, its partition on node-1"
    )
    condition = await harness.condition(job, "DataLocal")
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "False",
        "SpilledOver",
        message,
    )
    for _ in range(2):
        await harness.run_pods()
        await harness.settle(job)
    assert await told(harness) == [message], "once"
    assert (await harness.status(job))["reason"] == "AllPodsRunning", "it is no fault"
