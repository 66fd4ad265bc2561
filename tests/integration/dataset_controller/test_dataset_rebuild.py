"""Facts about data sets after their stream was lost, and two replicas that share the work."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from paddlewheel.bus.streams import DATASETS
from paddlewheel.contracts.generated.cache_v1 import RunPhase
from paddlewheel.kube import ports
from paddlewheel.operator.sharding import rendezvous
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.rebuilds import rebuild
from paddlewheel.testkit.samplesets import make_sample_job, make_sample_set, make_secret
from paddlewheel.testkit.wait import eventually

FACTS = ["SampleSetBound", "SampleSetMounted", "SampleSetSynced", "SampleSetReady"]
SERVICE = "dataset-controller"
TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


async def create_set(bench: Any, name: str = "digits") -> None:
    await bench.create(ports.SECRETS, make_secret(name))
    await bench.create(ports.SAMPLE_SETS, make_sample_set(name))


async def test_the_data_directory_deleted_brings_the_facts_back_by_themselves(
    bench: Any, service: Any, nats_server: NatsServer
) -> None:
    await service.start()
    await create_set(bench)
    await bench.phase("Ready")
    await bench.create(ports.SAMPLE_JOBS, make_sample_job("warm"))
    await bench.phase("Succeeded", ports.SAMPLE_JOBS, "warm")
    life = [*FACTS, "SampleJobStarted", "SampleJobSucceeded"]
    await eventually(lambda: bench.facts() == life, within=10)
    before = {event.id for event in bench.events}
    nats_server.lose_data()
    bench.events.clear()
    await eventually(lambda: before <= {e.id for e in bench.events}, within=60, what=str(bench.facts()))
    told = [event for event in bench.events if event.id in before]
    assert len(told) == len(before)
    assert [event.type.rpartition(".")[2] for event in told] == life
    assert all(TRACEPARENT.fullmatch(event.traceparent) for event in bench.events)
    # What the lost records said is told from the status.
    assert (told[-1].data.files, told[-1].data.cached_percent) == (10, 100.0)


async def test_the_command_brings_back_what_is_missing(bench: Any, service: Any) -> None:
    await service.start()
    await create_set(bench)
    await bench.phase("Ready")
    await eventually(lambda: bench.facts() == FACTS, within=10)
    [first] = await rebuild(bench.bus, SERVICE, replicas=1, within=60)
    assert (first.service, first.replica) == ("dataset-controller", "replica-0")
    assert (first.objects, first.facts_checked, first.facts_published) == (1, 4, 0)
    js = await bench.bus._connection.jetstream()
    await js.delete_stream(DATASETS.name)
    bench.events.clear()

    async def is_complete() -> bool:
        [report] = await rebuild(bench.bus, SERVICE, replicas=1, within=60)
        return report.facts_checked == 4 and report.facts_published == 0

    await eventually(is_complete, within=40)
    await eventually(lambda: bench.facts() == FACTS, within=20)


def shared_names(namespace: str, key: Any) -> list[str]:
    """Names of two sets for each of two replicas."""
    found: dict[str, list[str]] = {"one": [], "two": []}
    for number in range(64):
        mine = found[rendezvous(("one", "two"), key(f"set-{number}"))]
        if len(mine) < 2:
            mine.append(f"set-{number}")
    return found["one"] + found["two"]


async def test_two_replicas_share_the_work_and_one_takes_over_from_the_killed(
    bench: Any, start_replica: Any, nats_server: NatsServer
) -> None:
    one, _ = await start_replica("one"), await start_replica("two")
    await rebuild(bench.bus, SERVICE, replicas=2, within=60)
    names = shared_names(bench.namespace, bench.key)
    bench.runtime.script = {"sync": RunPhase.RUNNING}
    for name in names:
        await create_set(bench, name)
    await eventually(lambda: len(bench.runtime.runs("sync")) == 4, within=90)
    made = [await bench.get(ports.STATEFUL_SETS, f"{name}-runtime") for name in names]
    shares = await rebuild(bench.bus, SERVICE, replicas=2, within=60)
    assert [(r.replica, r.objects) for r in shares] == [("one", 2), ("two", 2)]

    await one.kill()
    for spec in bench.runtime.runs("sync"):
        await bench.runtime.end(spec, RunPhase.SUCCEEDED)
    for name in names:
        await bench.phase("Ready", name=name, within=90)
        await eventually(partial(has_told, bench, name), within=20)
    assert len(bench.runtime.runs("sync")) == 4
    for before in made:
        after = await bench.get(ports.STATEFUL_SETS, before["metadata"]["name"])
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert len({e.id for e in bench.events}) == len(bench.events) == 16

    await start_replica("one")
    await eventually(lambda: is_shared(bench), within=60)
    ids = {e.id for e in bench.events}
    nats_server.lose_data()
    bench.events.clear()
    await eventually(lambda: ids <= {e.id for e in bench.events}, within=60)
    reports = await rebuild(bench.bus, SERVICE, replicas=2, within=60)
    assert [(r.replica, r.objects, r.facts_published) for r in reports] == [("one", 2, 0), ("two", 2, 0)]
    assert sum(r.facts_checked for r in reports) >= 16
    assert len({e.id for e in bench.events}) == len(bench.events)


def has_told(bench: Any, name: str) -> bool:
    return bool(bench.facts_of(name) == FACTS)


async def is_shared(bench: Any) -> bool:
    return [r.objects for r in await rebuild(bench.bus, SERVICE, replicas=2, within=60)] == [2, 2]
