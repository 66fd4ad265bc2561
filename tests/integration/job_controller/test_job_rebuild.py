"""The facts of jobs after their stream was lost: back by themselves, on command, and shared by replicas."""

from __future__ import annotations

import re
from typing import Any

from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.keys import Key
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role
from paddlewheel.testkit.rebuilds import rebuild
from paddlewheel.testkit.wait import eventually

LIFE = ("JobAccepted", "JobStarting", "JobRunning", "JobSucceeded")
SERVICE = "job-controller"
TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


async def to_running(bench: Any, name: str) -> Key:
    key: Key = await bench.create(make_paddle_job(name, cleanPodPolicy="Never", worker=make_role(2)))
    await bench.wait_pods(key, 2)
    await bench.set_pods(key, "Running")
    await bench.wait_phase(key, "Running")
    return key


async def to_end(bench: Any, key: Key) -> None:
    await bench.set_pods(key, "Succeeded")
    await bench.wait_phase(key, "Completed")


async def test_the_data_directory_deleted_in_the_middle_of_a_run_brings_the_facts_back_by_themselves(
    bench: Any, service: Any, nats_server: NatsServer
) -> None:
    await service.start()
    done, midway = await to_running(bench, "done"), await to_running(bench, "midway")
    await to_end(bench, done)
    await bench.wait_facts(done, *LIFE)
    await bench.wait_facts(midway, *LIFE[:3])
    assert all(TRACEPARENT.fullmatch(event.traceparent) for event in bench.events)
    before = {event.id for event in bench.events}

    nats_server.lose_data()
    bench.events.clear()
    await to_end(bench, midway)
    # In order, though one of them became true while the others were lost.
    await bench.wait_facts(midway, *LIFE, within=40)
    await bench.wait_facts(done, *LIFE, within=40)
    after = {event.id for event in bench.events}
    assert before < after
    assert len(after) == len(bench.events) == 8
    assert all(TRACEPARENT.fullmatch(event.traceparent) for event in bench.events)


async def test_a_stream_lost_while_the_service_was_dead_is_noticed_at_its_start(
    bench: Any, service: Any, nats_server: NatsServer
) -> None:
    await service.start()
    key = await to_running(bench, "digits")
    await bench.wait_facts(key, *LIFE[:3])
    await service.kill()
    nats_server.lose_data()
    bench.events.clear()
    await service.start()
    await bench.wait_facts(key, *LIFE[:3], within=40)


async def test_the_command_brings_back_what_is_missing_and_only_that(bench: Any, service: Any) -> None:
    await service.start()
    key = await to_running(bench, "digits")
    await bench.wait_facts(key, *LIFE[:3])
    [first] = await rebuild(bench.bus, SERVICE, replicas=1, within=40)
    assert (first.service, first.objects, first.facts_checked, first.facts_published) == (
        "job-controller",
        1,
        3,
        0,
    )
    js = await bench.bus._connection.jetstream()
    await js.delete_stream(JOBS.name)
    bench.events.clear()

    async def is_complete() -> bool:
        [report] = await rebuild(bench.bus, SERVICE, replicas=1, within=40)
        return report.facts_checked == 3 and report.facts_published == 0

    await eventually(is_complete, within=40)
    await bench.wait_facts(key, *LIFE[:3], within=40)


async def test_replicas_share_a_rebuild(bench: Any, start_replica: Any, nats_server: NatsServer) -> None:
    await start_replica("one")
    await start_replica("two")
    keys = [await to_running(bench, f"job-{i}") for i in range(8)]
    for key in keys:
        await bench.wait_facts(key, *LIFE[:3])
    nats_server.lose_data()
    bench.events.clear()
    for key in keys:
        await bench.wait_facts(key, *LIFE[:3], within=60)
    one, two = await rebuild(bench.bus, SERVICE, replicas=2, within=40)
    assert (one.replica, two.replica) == ("one", "two")
    assert one.objects + two.objects == 8
    assert one.facts_checked + two.facts_checked == 24
    assert one.facts_published + two.facts_published == 0
    assert len(bench.events) == 24
