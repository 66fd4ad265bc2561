"""Each service's real use of the bus works with its certificate and rights, once the installer was there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from job_controller.watch import DATASET_FACTS
from paddlewheel.bus.admin.permissions import FACTS, OURS, ROLES
from paddlewheel.bus.consume.dead_letters import replays
from paddlewheel.bus.dead_letters import DeadLetter
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.nats.durable import durable_config
from paddlewheel.bus.ports import Delivery, Reading, Subscription
from paddlewheel.bus.streams import MEASUREMENTS as MEASUREMENTS_STREAM
from paddlewheel.bus.streams import NODES_BUCKET, RUNS_BUCKET, SERVING, STREAMS, TRIGGERS_BUCKET
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.cache_v1 import RunEnded
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import SampleSetReady
from paddlewheel.contracts.generated.jobs_v1 import JobGated
from paddlewheel.contracts.generated.measurements_v1 import RevisionMeasured
from paddlewheel.contracts.generated.models_v1 import ModelPublished
from paddlewheel.contracts.generated.serving_v1 import CanaryRolledBack, RevisionReady
from paddlewheel.contracts.subjects import command_subject, work_filter, work_subject
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.chart_bus import ChartBus, guest, install, installing
from paddlewheel.testkit.wait import eventually
from serving_controller.measurements import MEASUREMENTS
from serving_controller.models import MODELS
from trigger_controller import watch as trigger_watch

DATASETS = trigger_watch.SUBSCRIPTIONS[1]
CONTROLLERS = ("job-controller", "dataset-controller", "trigger-controller", "serving-controller")


@asynccontextmanager
async def entered(bus: ChartBus, role: str) -> AsyncIterator[NatsBus]:
    """The bus as a service with this role has it."""
    client = NatsBus(bus.access(role), name=role)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def all_streams(bus: ChartBus) -> AsyncIterator[NatsBus]:
    """Everything as the installer makes it; the operator's bus."""
    async with installing(bus), entered(bus, "operator") as operator:
        yield operator


def make_fact(data: WireModel, id_: str = "1") -> Event:
    return make_event(
        data, id=id_, source="test", namespace="ns", uid="uid", time=datetime.now(UTC), traceparent=""
    )


REF = ObjectRef(namespace="ns", name="digits", uid="uid", resource_version="1")
GATED = make_fact(JobGated(job=REF, reason="SampleSetNotReady", message="waits"))
READY = make_fact(SampleSetReady(sample_set=REF, partitions=1))
PUBLISHED = make_fact(ModelPublished(source=REF, name="digits", version="1", uri="s3://m"))
MEASUREMENT = RevisionMeasured(service=REF, revision="digits-1", metrics={"accuracy": 0.97})
MEASURED = make_fact(MEASUREMENT)
ENDED = make_fact(RunEnded(run_id="run", set_namespace="ns", set_name="digits", set_uid="uid"))


@dataclass
class Heard:
    """A handler that notes what came."""

    trouble: Permanent | None = None
    ids: tuple[str, ...] = ()

    async def __call__(self, delivery: Delivery) -> None:
        self.ids += (delivery.event.id,)
        if self.trouble:
            raise self.trouble


@asynccontextmanager
async def running(*work: Awaitable[object]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        await end(*tasks)


async def first(items: AsyncIterator[Delivery]) -> Delivery:
    async with asyncio.timeout(60):
        return await anext(items)


async def test_the_installer_makes_every_stream_and_durable(empty_bus: ChartBus) -> None:
    await install(empty_bus)

    async with entered(empty_bus, "operator") as operator:
        status = await operator.inspect.status()
    assert status.missing == ()
    assert {stream.name: dict(stream.drift) for stream in status.streams} == {s.name: {} for s in STREAMS}
    made = {(d.stream, d.name) for d in status.durables}
    assert made == {(d.stream, d.durable) for d in OURS.durables}
    copies = {(mirror.team, mirror.stream) for mirror in status.mirrors}
    assert copies == {("subscriber", stream.name) for stream in FACTS}


@pytest.mark.parametrize("role", CONTROLLERS)
async def test_a_controller_waits_for_the_installer(empty_bus: ChartBus, role: str) -> None:
    async with entered(empty_bus, role) as bus:
        with pytest.raises(Retry, match=r"no stream .*PW_JOBS.*bus-installer makes it"):
            await bus.check()
        assert not await bus.healthy()
        await install(empty_bus)
        await eventually(bus.healthy)


async def test_a_service_is_not_ready_while_its_durable_is_missing(empty_bus: ChartBus) -> None:
    await install(empty_bus)
    async with guest(empty_bus, "operator") as operator, entered(empty_bus, "trigger-controller") as bus:
        await operator.client.jetstream().delete_consumer(DATASETS.stream, DATASETS.durable)
        async with running(bus.consume(DATASETS, Heard())):
            await eventually(lambda: ill(bus), what="it is not ready")
            with pytest.raises(Retry, match=f"no consumer {DATASETS.durable}: bus-installer makes it"):
                await bus.check()
            await install(empty_bus)
            await eventually(bus.healthy, what="it is ready")


async def ill(bus: NatsBus) -> bool:
    return not await bus.healthy()


@pytest.mark.parametrize(("role", "fact"), [("job-controller", GATED), ("dataset-controller", READY)])
async def test_a_controller_goes_on_when_lost_streams_were_made_again(
    empty_bus: ChartBus, role: str, fact: Event
) -> None:
    """The server says through the account's border too that nobody took the message."""
    await install(empty_bus)
    async with entered(empty_bus, role) as bus:
        await bus.publish(fact)
        await delete_streams(empty_bus)
        with pytest.raises(Retry, match="StreamMissing"):
            await bus.publish(fact)
        await install(empty_bus)

        await bus.publish(fact)

        assert await bus.history.last(fact.subject) is not None


async def delete_streams(bus: ChartBus) -> None:
    async with guest(bus, "operator") as operator:
        for spec in STREAMS:
            await operator.client.jetstream().delete_stream(spec.name)


async def test_every_durable_of_a_service_is_declared() -> None:
    """The installer makes each durable as trigger-controller, the only service with durables, reads it."""
    declared = {
        role.name: [durable_config(each) for each in role.durables] for role in ROLES if role.durables
    }

    assert declared == {"trigger-controller": [durable_config(each) for each in trigger_watch.SUBSCRIPTIONS]}


async def test_trigger_controller_parks_and_takes_replays(empty_bus: ChartBus) -> None:
    failing, well = Heard(Permanent("Broken", "the test wants it")), Heard()
    async with (
        all_streams(empty_bus) as operator,
        entered(empty_bus, "trigger-controller") as bus,
        entered(empty_bus, "dataset-controller") as datasets,
    ):
        await datasets.publish(READY)
        async with running(bus.consume(DATASETS, failing)):
            letter = await eventually(lambda: one_letter(operator), what="the letter is parked")
        assert letter.durable == DATASETS.durable
        await operator.dead_letters.replay(letter.sequence)
        async with running(bus.consume(DATASETS, well)):
            await eventually(lambda: well.ids == (READY.id,), what="the replay came")
            await eventually(lambda: settled(operator, DATASETS), what="both consumers are through")


async def one_letter(operator: NatsBus) -> DeadLetter | None:
    async with aclosing(operator.dead_letters.list()) as letters:
        return await anext(letters, None)


async def settled(operator: NatsBus, *subscriptions: Subscription) -> bool:
    names = {name for each in subscriptions for name in (each.durable, replays(each).durable)}
    durables = (await operator.inspect.status()).durables
    return names <= {d.name for d in durables if d.pending == d.ack_pending == 0}


async def test_job_controller_publishes_and_reads_dataset_facts(empty_bus: ChartBus) -> None:
    async with (
        all_streams(empty_bus),
        entered(empty_bus, "job-controller") as bus,
        entered(empty_bus, "dataset-controller") as datasets,
    ):
        await bus.publish(GATED)
        assert await bus.history.last(GATED.subject) is not None
        await datasets.publish(READY)
        since = datetime.now(UTC) - timedelta(minutes=1)
        async with aclosing(bus.read(Reading((DATASET_FACTS,), since))) as facts:
            assert (await first(facts)).event.id == READY.id


async def test_dataset_controller_keeps_records_and_drops_work(empty_bus: ChartBus) -> None:
    async with (
        all_streams(empty_bus),
        entered(empty_bus, "dataset-controller") as bus,
        entered(empty_bus, "cache-runtime") as agent,
    ):
        runs, nodes = bus.key_value(RUNS_BUCKET), bus.key_value(NODES_BUCKET)
        async with aclosing(runs.watch("s.>")) as watch:
            assert await anext(watch) is None
            await runs.create("s.r.spec", b"1")
            assert (await anext(watch)) is not None
        await agent.key_value(RUNS_BUCKET).create("s.r.state", b"1")
        await agent.key_value(NODES_BUCKET).put("s.0", b"1")
        assert {e.key for e in await runs.entries("s.>")} == {"s.r.spec", "s.r.state"}
        assert [e.key for e in await nodes.entries("s.>")] == ["s.0"]
        await agent.work.put(work_subject("s", "r", 0, 0), b"chunk")
        await bus.work.purge(work_filter("s"))
        for entry in await runs.entries("s.>"):
            await runs.delete(entry.key)
        await nodes.delete("s.0")
        assert await runs.entries(">") == []


async def test_an_agent_does_its_work_but_cannot_ask_for_any(empty_bus: ChartBus) -> None:
    async with (
        all_streams(empty_bus),
        entered(empty_bus, "dataset-controller") as datasets,
        entered(empty_bus, "cache-runtime") as agent,
    ):
        await datasets.key_value(RUNS_BUCKET).create("s.r.spec", b"wanted")
        runs = agent.key_value(RUNS_BUCKET)
        async with aclosing(runs.watch("s.>")) as watch:
            entry = await anext(watch)
        assert entry is not None
        assert entry.value == b"wanted"
        await runs.update("s.r.state", b"2", await runs.create("s.r.state", b"1"))
        subject = work_subject("s", "r", 0, 0)
        await agent.work.put(subject, b"chunk")
        assert await agent.work.get(subject) == b"chunk"
        await agent.work.drop(subject)
        assert await agent.work.get(subject) is None
        await agent.work.purge(work_filter("s", "r"))
        await agent.publish(ENDED)

        with pytest.raises(Retry, match=r"may not publish to \$KV\.pw_cache_runs\.s\.r\.spec"):
            await runs.put("s.r.spec", b"forged")
        with pytest.raises(Retry, match="may not publish"):
            await agent.publish(GATED)
        assert (await runs.get("s.r.spec")).value == b"wanted"


async def test_an_agent_makes_no_streams(empty_bus: ChartBus) -> None:
    async with entered(empty_bus, "cache-runtime") as agent:
        with pytest.raises(Retry):
            await agent.publish(ENDED)

    async with entered(empty_bus, "operator") as operator:
        assert len((await operator.inspect.status()).missing) == len(STREAMS)


async def test_serving_controller_reads_every_model_that_was_published(empty_bus: ChartBus) -> None:
    async with (
        all_streams(empty_bus),
        entered(empty_bus, "job-controller") as jobs,
        entered(empty_bus, "serving-controller") as bus,
    ):
        await jobs.publish(PUBLISHED)
        async with aclosing(bus.read(MODELS)) as read:
            assert (await first(read)).event.id == PUBLISHED.id
        with pytest.raises(Retry):
            await bus.publish(PUBLISHED)


async def test_evaluators_publish_what_serving_controller_reads_and_cannot_say_itself(
    empty_bus: ChartBus,
) -> None:
    async with (
        all_streams(empty_bus),
        entered(empty_bus, "evaluator") as evaluator,
        entered(empty_bus, "serving-controller") as bus,
        entered(empty_bus, "subscriber") as subscriber,
    ):
        await evaluator.publish(MEASURED)
        for reader in (bus, subscriber):
            async with aclosing(reader.read(MEASUREMENTS)) as read:
                assert (await first(read)).event.data == MEASUREMENT
        with pytest.raises(Retry, match="may not publish"):
            await bus.publish(make_fact(MEASUREMENT, "2"))
        for other in (make_fact(RevisionReady(service=REF, revision="digits-1")), PUBLISHED, GATED):
            with pytest.raises(Retry, match="may not publish"):
                await evaluator.publish(other)
        with pytest.raises(Retry):
            await evaluator.history.last(MEASURED.subject)
        # As after an answer that was lost.
        await evaluator.publish(MEASURED)


async def test_an_evaluator_can_neither_suppress_nor_push_out_what_a_controller_says(
    empty_bus: ChartBus,
) -> None:
    fact = make_fact(CanaryRolledBack(service=REF, revision="digits-1"), "uid/CanaryRolledBack/0")
    async with (
        all_streams(empty_bus) as operator,
        entered(empty_bus, "evaluator") as evaluator,
        entered(empty_bus, "serving-controller") as bus,
    ):
        await evaluator.publish(make_fact(MEASUREMENT, fact.id))
        await bus.publish(fact)
        stored = await bus.history.last(fact.subject)
        assert stored is not None
        assert stored.headers["ce-id"] == fact.id

        for number in range(2 * MEASUREMENTS_STREAM.max_msgs_per_subject):
            await evaluator.publish(make_fact(MEASUREMENT, f"{number}"))
        streams = {stream.name: stream for stream in (await operator.inspect.status()).streams}
        assert streams[SERVING.name].messages == 1
        assert streams[MEASUREMENTS_STREAM.name].messages == MEASUREMENTS_STREAM.max_msgs_per_subject
        with pytest.raises(Permanent, match="TooLarge"):
            await evaluator.publish(make_fact(RevisionMeasured(service=REF, revision="r" * 8192)))


async def test_trigger_controller_hears_what_may_start_work_and_remembers_it(empty_bus: ChartBus) -> None:
    heard = Heard()
    async with (
        all_streams(empty_bus) as operator,
        entered(empty_bus, "trigger-controller") as bus,
        entered(empty_bus, "dataset-controller") as datasets,
    ):
        await datasets.publish(READY)
        fired = bus.key_value(TRIGGERS_BUCKET)
        await fired.create("uid.event", b"1")
        assert [e.key for e in await fired.entries(">")] == ["uid.event"]
        async with running(*(bus.consume(each, heard) for each in trigger_watch.SUBSCRIPTIONS)):
            await eventually(lambda: heard.ids == (READY.id,), what="the fact came")
            await eventually(
                lambda: settled(operator, *trigger_watch.SUBSCRIPTIONS), what="it was acknowledged"
            )
        with pytest.raises(NotFound):
            await fired.get("uid.other")


async def test_a_subscriber_follows_facts_and_keeps_its_place(empty_bus: ChartBus) -> None:
    since = datetime.now(UTC) - timedelta(minutes=1)
    async with (
        all_streams(empty_bus),
        entered(empty_bus, "job-controller") as jobs,
        entered(empty_bus, "subscriber") as bus,
    ):
        await jobs.publish(GATED)
        async with aclosing(bus.read(Reading(("pw.evt.>",), since))) as facts:
            assert (await first(facts)).event.id == GATED.id
        reading = Reading(("pw.evt.jobs.>",), since=since, durable="my-service")
        async with aclosing(bus.read(reading)) as facts:
            assert (await first(facts)).event.id == GATED.id
        with pytest.raises(Retry, match="may not publish"):
            await bus.publish(GATED)


def saying(text: bytes) -> Callable[[bytes], Awaitable[bytes]]:
    async def answer(_: bytes) -> bytes:
        return text

    return answer


async def test_operators_command_every_replica_and_subscribers_nobody(empty_bus: ChartBus) -> None:
    subject = command_subject("job-controller", "rebuild")
    async with (
        all_streams(empty_bus) as operator,
        entered(empty_bus, "job-controller") as one,
        entered(empty_bus, "job-controller") as two,
        entered(empty_bus, "subscriber") as subscriber,
        running(one.answer(subject, saying(b"one")), two.answer(subject, saying(b"two"))),
    ):

        async def both() -> bool:
            return sorted(await operator.ask_all(subject, b"", within=0.3)) == [b"one", b"two"]

        await eventually(both, what="both replicas answer")
        assert await operator.ask_all(command_subject("dataset-controller", "rebuild"), b"") == []
        assert await subscriber.ask_all(subject, b"", within=0.3) == []
