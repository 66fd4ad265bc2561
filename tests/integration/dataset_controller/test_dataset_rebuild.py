"""Facts about data sets after their stream was lost, and two replicas that share the work."""

from __future__ import annotations

import re

import pytest
from tests.integration.dataset_controller.conftest import DataServiceHarness

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.streams import DATASETS
from paddlewheel.contracts.generated.cache_v1 import RunPhase
from paddlewheel.contracts.generated.datasets_v1 import SampleJobSucceeded
from paddlewheel.kube import ports
from paddlewheel.operator.sharding import rendezvous
from paddlewheel.testkit.harness import name_of
from paddlewheel.testkit.rebuilds import rebuild
from paddlewheel.testkit.samplesets import make_sample_job
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FACTS = ["SampleSetBound", "SampleSetMounted", "SampleSetSynced", "SampleSetReady"]
SERVICE = "dataset-controller"
TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


async def test_the_data_directory_deleted_brings_the_facts_back_by_themselves(
    data: DataServiceHarness,
) -> None:
    await data.start_process()
    key = await data.create_set()
    await data.wait_phase(key, "Ready", within=90)
    warm = await data.create(make_sample_job("warm"), ports.SAMPLE_JOBS)
    await data.wait_phase(warm, "Succeeded", resource=ports.SAMPLE_JOBS, within=90)
    life = [*FACTS, "SampleJobStarted", "SampleJobSucceeded"]
    await data.wait_facts(None, *life)
    before = {event.id for event in data.events}
    data.nats.lose_data()
    data.events.clear()
    await eventually(lambda: before <= {e.id for e in data.events}, what=str(data.facts()))
    again = [event for event in data.events if event.id in before]
    assert len(again) == len(before)
    assert [name_of(event) for event in again] == life
    assert all(TRACEPARENT.fullmatch(event.traceparent) for event in data.events)
    # What the lost records said is rendered from the status.
    ended = again[-1].data
    assert isinstance(ended, SampleJobSucceeded)
    assert (ended.files, ended.cached_percent) == (10, 100.0)


async def test_the_command_brings_back_what_is_missing(data: DataServiceHarness) -> None:
    await data.start()
    key = await data.create_set()
    await data.wait_phase(key, "Ready", within=90)
    await data.wait_facts(key, *FACTS)
    [first] = await rebuild(data.bus, SERVICE, replicas=1, within=90)
    assert (first.service, first.replica) == ("dataset-controller", "replica-0")
    assert (first.objects, first.facts_checked, first.facts_published) == (1, 4, 0)
    assert isinstance(data.bus, NatsBus)
    js = await data.bus._connection.jetstream()
    await js.delete_stream(DATASETS.name)
    data.events.clear()

    async def is_complete() -> bool:
        [report] = await rebuild(data.bus, SERVICE, replicas=1, within=90)
        return report.facts_checked == 4 and report.facts_published == 0

    await eventually(is_complete)
    await data.wait_facts(key, *FACTS)


def shared_names(data: DataServiceHarness) -> list[str]:
    """Names of two sets for each of two replicas."""
    found: dict[str, list[str]] = {"one": [], "two": []}
    for number in range(64):
        mine = found[rendezvous(("one", "two"), data.key(f"set-{number}"))]
        if len(mine) < 2:
            mine.append(f"set-{number}")
    return found["one"] + found["two"]


async def test_two_replicas_share_the_work_and_one_takes_over_from_the_killed(
    data: DataServiceHarness,
) -> None:
    one, _ = await data.start_process("one"), await data.start_process("two")
    await rebuild(data.bus, SERVICE, replicas=2, within=90)
    names = shared_names(data)
    data.runtime.script = {"sync": RunPhase.RUNNING}
    for name in names:
        await data.create_set(name)
    await eventually(lambda: len(data.runtime.runs("sync")) == 4)
    runtimes = [data.key(f"{name}-runtime") for name in names]
    made = [await data.get(key, ports.STATEFUL_SETS) for key in runtimes]
    shares = await rebuild(data.bus, SERVICE, replicas=2, within=90)
    assert [(r.replica, r.objects) for r in shares] == [("one", 2), ("two", 2)]

    await one.kill()
    for spec in data.runtime.runs("sync"):
        await data.runtime.end(spec, RunPhase.SUCCEEDED)
    for name in names:
        await data.wait_phase(data.key(name), "Ready", within=90)
        await data.wait_facts(data.key(name), *FACTS)
    assert len(data.runtime.runs("sync")) == 4
    for before in made:
        after = await data.get(data.key(before["metadata"]["name"]), ports.STATEFUL_SETS)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert len({e.id for e in data.events}) == len(data.events) == 16

    await data.start("one")
    await eventually(lambda: is_shared(data))
    ids = {e.id for e in data.events}
    data.nats.lose_data()
    data.events.clear()
    await eventually(lambda: ids <= {e.id for e in data.events})
    reports = await rebuild(data.bus, SERVICE, replicas=2, within=90)
    assert [(r.replica, r.objects, r.facts_published) for r in reports] == [("one", 2, 0), ("two", 2, 0)]
    assert sum(r.facts_checked for r in reports) >= 16
    assert len({e.id for e in data.events}) == len(data.events)


async def is_shared(data: DataServiceHarness) -> bool:
    return [r.objects for r in await rebuild(data.bus, SERVICE, replicas=2, within=90)] == [2, 2]
