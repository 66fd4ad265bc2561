"""What each holder of a token may do on the bus."""

from __future__ import annotations

import nats.errors
import pytest

from paddlewheel.bus import connect
from paddlewheel.bus.admin.permissions import AGENT
from paddlewheel.bus.ports import Bus
from paddlewheel.bus.streams import NODES_BUCKET, RUNS_BUCKET
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.testkit.bus_auth import ROLE_BINDINGS, BusAuthStand

NOT_ALLOWED = "authorization violation"
FACT = "pw.evt.jobs.job.succeeded.v1.{}.uid"


async def test_an_agent_with_a_token_does_all_its_work(stand: BusAuthStand) -> None:
    uid = "uid-a"
    access = stand.access(AGENT, await stand.allow_role(AGENT))
    async with stand.installed():
        bus = await connect(access, name="digits-runtime-0")
        try:
            assert await works(bus, uid) == (b"state", b"state", b"chunk")
            assert await reports(bus, uid) == (b"report", [f"{uid}.0"])
        finally:
            await bus.close()


async def reports(bus: Bus, uid: str) -> tuple[bytes, list[str]]:
    """Write and read the record of a node, and read those of all partitions."""
    nodes = bus.key_value(NODES_BUCKET)
    await nodes.put(f"{uid}.0", b"report")
    found = (await nodes.get(f"{uid}.0")).value or b""
    return found, [entry.key for entry in await nodes.entries(f"{uid}.>")]


async def works(bus: Bus, uid: str) -> tuple[bytes, bytes, bytes]:
    """Write and read a record, watch it, and do a chunk."""
    records, subject = bus.key_value(RUNS_BUCKET), work_subject(uid, "run", 0, 0)
    await records.create(f"{uid}.run.state", b"state")
    got = (await records.get(f"{uid}.run.state")).value or b""
    watched = await anext(aiter(records.watch(f"{uid}.>")))
    await bus.work.put(subject, b"chunk")
    chunk = await bus.work.get(subject)
    await bus.work.drop(subject)
    await bus.work.purge(subject)
    return got, (watched and watched.value) or b"", chunk or b""


async def test_a_subscriber_hears_the_namespaces_that_a_role_binding_grants_and_no_others(
    stand: BusAuthStand,
) -> None:
    publisher = await stand.allow_role("job-controller")
    other = await stand.namespace()
    await stand.account("notifier")
    token = await stand.token("notifier")
    with pytest.raises(nats.errors.Error, match=f"(?i){NOT_ALLOWED}"):
        async with stand.enter("subscriber", token):
            pass

    binding = await stand.allow_facts("notifier", where=stand.home)

    async with (
        stand.enter("subscriber", token) as reader,
        stand.enter("job-controller", publisher) as controller,
    ):
        assert await reader.refused_to_subscribe("pw.evt.>")
        assert await reader.refused_to_subscribe(f"pw.evt.*.*.*.*.{other}.*")
        heard = await reader.client.subscribe(f"pw.evt.jobs.*.*.*.{stand.home}.*")
        await reader.client.flush()
        for namespace in (other, stand.home):
            await controller.client.publish(FACT.format(namespace), b"x")
        await controller.client.flush()
        assert (await heard.next_msg(30)).subject == FACT.format(stand.home)

    for asked in (other, f"{stand.home}.{other}"):
        with pytest.raises(nats.errors.Error, match=f"(?i){NOT_ALLOWED}"):
            async with stand.enter(f"subscriber.{asked}", token):
                pass

    await stand.cluster.delete(ROLE_BINDINGS, binding)
    await stand.in_force("notifier", "watch", "facts", where=stand.home, is_allowed=False)
    with pytest.raises(nats.errors.Error, match=f"(?i){NOT_ALLOWED}"):
        async with stand.enter("subscriber", token):
            pass


async def test_a_member_of_a_team_gets_all_its_facts(stand: BusAuthStand) -> None:
    await stand.account("archive")
    await stand.allow_facts("archive")
    await stand.allow_team("archive")

    async with stand.enter("subscriber", await stand.token("archive")) as reader:
        assert not await reader.refused_to_subscribe("pw.evt.>")
        assert await reader.refused_to_publish(FACT.format("ns"))


async def test_whoever_may_watch_everything_enters_no_team_by_that(stand: BusAuthStand) -> None:
    await stand.account("archive")
    await stand.allow_facts("archive")

    async with stand.enter("subscriber", await stand.token("archive")) as reader:
        assert await reader.refused_to_subscribe("pw.evt.>")
        assert await reader.refused_to_publish("$JS.API.CONSUMER.NAMES.PW_JOBS")


async def test_a_service_has_its_role_and_no_other(stand: BusAuthStand) -> None:
    token = await stand.allow_role("job-controller")

    async with stand.enter("job-controller", token) as controller:
        assert not await controller.refused_to_publish(FACT.format("ns"))
        assert await controller.refused_to_publish("pw.evt.datasets.sampleset.ready.v1.ns.uid")
    with pytest.raises(nats.errors.Error, match=f"(?i){NOT_ALLOWED}"):
        async with stand.enter("dataset-controller", token):
            pass
