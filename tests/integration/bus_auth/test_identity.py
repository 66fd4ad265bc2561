"""What each holder of a token may do on the bus."""

from __future__ import annotations

import nats.errors
import pytest

from paddlewheel.bus import connect
from paddlewheel.bus.admin.rights import agent_inbox
from paddlewheel.bus.admin.set_writes import write_prefix
from paddlewheel.bus.ports import Bus
from paddlewheel.bus.streams import CACHE_PROGRESS, NODES_BUCKET, RUNS_BUCKET
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.bus_auth import ROLE_BINDINGS, BusAuthStand

NOT_ALLOWED = "authorization violation"
FACT = "pw.evt.jobs.job.succeeded.v1.{}.uid"
PROGRESS = "pw.evt.cacheprogress.run.progressed.v1"


def uid_of(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


async def test_an_agent_writes_the_records_work_and_results_of_its_own_data_set_alone(
    stand: BusAuthStand,
) -> None:
    mine, _, token = await stand.agent(stand.home)
    theirs, _, _ = await stand.agent(await stand.namespace())
    me, they = uid_of(mine), uid_of(theirs)

    def stored(uid: str) -> tuple[str, ...]:
        return (
            f"$KV.{RUNS_BUCKET}.{uid}.run.state",
            f"$KV.{NODES_BUCKET}.{uid}.0",
            work_subject(uid, "run", 0, 0),
        )

    def subjects(uid: str, namespace: str) -> tuple[str, ...]:
        asked = (f"{write_prefix(uid)}.{subject}" for subject in stored(uid))
        return (*asked, f"pw.evt.cache.run.ended.v1.{namespace}.{uid}")

    async with stand.enter("cache-runtime", token, prefix=agent_inbox(me)) as agent:
        own = [s for s in subjects(me, stand.home) if await agent.refused_to_publish(s)]
        foreign = [
            s for s in subjects(they, theirs["metadata"]["namespace"]) if await agent.refused_to_publish(s)
        ]
        assert own == []
        assert foreign == list(subjects(they, theirs["metadata"]["namespace"]))
        # In streams of all sets bus-auth alone stores anything, and that of the set that asks.
        for subject in (*stored(me), *(f"{write_prefix(me)}.{subject}" for subject in stored(they))):
            assert await agent.refused_to_publish(subject)
        assert await agent.refused_to_publish(f"pw.evt.cache.run.other.v1.{stand.home}.{me}")
        assert not await agent.refused_to_publish(f"{PROGRESS}.{stand.home}.{me}")
        assert await agent.refused_to_publish(f"{PROGRESS}.{stand.home}.{they}")
        assert await agent.refused_to_publish(f"pw.evt.progress.job.progressed.v1.{stand.home}.{me}")
        assert await agent.refused_to_publish(f"$JS.API.STREAM.INFO.{CACHE_PROGRESS.name}")
        assert await agent.refused_to_subscribe(f"{agent_inbox(they)}.>")
        assert await agent.refused_to_subscribe("_INBOX_cache-runtime.>")
        assert await agent.refused_to_subscribe(f"pw.live.KV_{RUNS_BUCKET}.{they}.>")
        assert await agent.refused_to_publish(f"pw.feeds.purge.v1.{they}")
        assert await agent.refused_to_publish("$JS.API.DIRECT.GET.PW_WORK", b"{}")
        for uid, is_refused in ((me, False), (they, True)):
            read = f"$JS.API.DIRECT.GET.PW_WORK.{work_subject(uid, 'run', 0, 0)}"
            assert await agent.refused_to_publish(read) is is_refused
        assert await agent.refused_to_publish(f"$JS.API.CONSUMER.CREATE.KV_{RUNS_BUCKET}.x", b"{}")


async def test_an_agent_with_a_token_does_all_its_work(stand: BusAuthStand) -> None:
    mine, _, token = await stand.agent(stand.home)
    uid = uid_of(mine)
    access = stand.access("cache-runtime", token).for_set(uid)
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


async def test_an_agent_is_what_its_pod_is_whatever_it_says(stand: BusAuthStand) -> None:
    _, _, token = await stand.agent(stand.home)

    for role in ("job-controller", "operator", "dataset-controller", "evaluator", "subscriber"):
        with pytest.raises(nats.errors.Error, match=f"(?i){NOT_ALLOWED}"):
            async with stand.enter(role, token):
                raise AssertionError(role)


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
