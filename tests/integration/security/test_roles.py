"""What each role may and may not do, as the real server decides with the chart's configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from paddlewheel.bus.admin.permissions import ROLES, inbox_prefix
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.streams import RUNS_BUCKET, STREAMS
from paddlewheel.testkit.chart_bus import BUS_ANSWER_TIMEOUT_SECONDS, ChartBus, Guest, guest, install

JOB, DATASET, AGENT, TRIGGER = "job-controller", "dataset-controller", "cache-runtime", "trigger-controller"
SERVING = "serving-controller"
EVALUATOR, SUBSCRIBER, OPERATOR, INSTALLER = "evaluator", "subscriber", "operator", "installer"
EVERYBODY = frozenset(role.name for role in ROLES)
SERVICES = EVERYBODY - {EVALUATOR, SUBSCRIBER, OPERATOR, INSTALLER}
CONTROLLERS = SERVICES - {AGENT}
API = "$JS.API"
FACT = "v1.ns.uid"

PUBLISH: dict[str, set[str]] = {
    f"pw.evt.jobs.job.succeeded.{FACT}": {JOB},
    f"pw.evt.datasets.sampleset.ready.{FACT}": {DATASET},
    f"pw.evt.cache.run.ended.{FACT}": {AGENT},
    f"pw.evt.cacheprogress.run.progressed.{FACT}": {AGENT},
    f"pw.evt.progress.job.progressed.{FACT}": {JOB},
    f"pw.evt.triggers.trigger.fired.{FACT}": {TRIGGER},
    f"pw.evt.models.model.published.{FACT}": {JOB},
    f"pw.evt.serving.canary.promoted.{FACT}": {SERVING},
    f"pw.evt.serving.revision.ready.{FACT}": {SERVING},
    f"pw.evt.measurements.revision.measured.{FACT}": {EVALUATOR},
    "pw.src.s3.images.ns": {TRIGGER},
    "pw.work.cache.set.run.0.0.v1": {AGENT},
    "pw.dlq.trigger-controller-jobs": {TRIGGER},
    "pw.dlq.trigger-controller-datasets": {TRIGGER},
    "pw.dlq.trigger-controller-datasets.again": set(),
    "pw.cmd.job-controller.rebuild.v1": set(),
    "$KV.pw_cache_runs.set.run.spec": {DATASET},
    "$KV.pw_cache_runs.set.run.cancel": {DATASET},
    "$KV.pw_cache_runs.set.run.state": {DATASET, AGENT},
    "$KV.pw_cache_runs.set.run.part-0": {DATASET, AGENT},
    "$KV.pw_cache_nodes.set.0": {DATASET, AGENT},
    "$KV.pw_triggers.uid.event": {TRIGGER},
    "pw.feeds.work.v1.uid": set(),
    "pw.live.KV_pw_cache_runs.x": set(),
    "pw.mirror.subscriber.PW_JOBS": set(),
    "pw.install.subscriber.STREAM.DELETE.PW_JOBS": {INSTALLER},
    "pw.else": set(),
}
"""Subject to the services that may publish it; operators may publish all of these."""

NOWHERE = (
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.ACCOUNT.PADDLEWHEEL.CONNZ",
    "else",
    "_INBOX.x",
    "_INBOX_nobody.x",
)
"""For nobody at all."""

SUBSCRIBE: dict[str, set[str]] = {
    "pw.evt.>": {SUBSCRIBER, OPERATOR},
    f"pw.evt.jobs.job.succeeded.{FACT}": {SUBSCRIBER, OPERATOR},
    "pw.work.>": {OPERATOR},
    "pw.live.KV_pw_cache_runs.>": {DATASET, AGENT, OPERATOR},
    "pw.live.PW_MODELS.>": {SERVING, OPERATOR},
    "pw.feeds.work.v1.uid": {OPERATOR},
    "pw.dlq.>": {OPERATOR},
    "$KV.>": {OPERATOR},
    "pw.>": {OPERATOR},
    ">": set(),
    "$JS.>": set(),
    "$SYS.>": set(),
    "_INBOX.>": {SUBSCRIBER},
    "_INBOX.x": {SUBSCRIBER},
    "*.evt.jobs.>": set(),
    **{f"pw.cmd.{service}.>": {service, OPERATOR} for service in (JOB, DATASET, TRIGGER, SERVING)},
    **{f"{inbox_prefix(role)}.>": {role} for role in sorted(EVERYBODY)},
}
"""Subject to the roles that may hear it."""

CALLS: dict[str, set[str]] = {
    f"{API}.INFO": set(EVERYBODY - {SUBSCRIBER}),
    **{f"{API}.STREAM.CREATE.{spec.name}": {INSTALLER, OPERATOR} for spec in STREAMS},
    **{f"{API}.STREAM.UPDATE.{spec.name}": {INSTALLER, OPERATOR} for spec in STREAMS},
    **{f"{API}.STREAM.DELETE.{spec.name}": {OPERATOR} for spec in STREAMS},
    **{f"{API}.STREAM.MSG.DELETE.{spec.name}": {OPERATOR} for spec in STREAMS},
    **{f"{API}.STREAM.SNAPSHOT.{spec.name}": {OPERATOR} for spec in STREAMS},
    **{
        f"{API}.STREAM.PURGE.{spec.name}": {OPERATOR, *({AGENT, DATASET} if spec.name == "PW_WORK" else ())}
        for spec in STREAMS
    },
    f"{API}.STREAM.CREATE.OTHER": {OPERATOR},
    f"{API}.STREAM.INFO.PW_JOBS": {*CONTROLLERS, INSTALLER, OPERATOR},
    f"{API}.STREAM.INFO.PW_SERVING": {*CONTROLLERS, INSTALLER, OPERATOR},
    f"{API}.STREAM.INFO.PW_WORK": {*CONTROLLERS, INSTALLER, OPERATOR},
    f"{API}.STREAM.MSG.GET.PW_JOBS": {JOB, OPERATOR},
    f"{API}.STREAM.MSG.GET.PW_DATASETS": {DATASET, JOB, OPERATOR},
    f"{API}.STREAM.MSG.GET.PW_SERVING": {SERVING, OPERATOR},
    f"{API}.STREAM.MSG.GET.PW_MEASUREMENTS": {SERVING, OPERATOR},
    f"{API}.STREAM.MSG.GET.PW_DLQ": {OPERATOR},
    f"{API}.DIRECT.GET.PW_CACHE.pw.evt.cache.run.ended.{FACT}": {AGENT, OPERATOR},
    f"{API}.STREAM.MSG.GET.PW_CACHEPROGRESS": {AGENT, OPERATOR},
    f"{API}.STREAM.MSG.GET.PW_PROGRESS": {JOB, OPERATOR},
    f"{API}.DIRECT.GET.KV_pw_cache_runs.$KV.pw_cache_runs.a.b.spec": {DATASET, AGENT, OPERATOR},
    f"{API}.CONSUMER.CREATE.PW_JOBS.look-1": {INSTALLER, OPERATOR},
    f"{API}.CONSUMER.CREATE.PW_DATASETS.look-1": {INSTALLER, OPERATOR},
    f"{API}.CONSUMER.CREATE.PW_CACHE.look-1": {INSTALLER, OPERATOR},
    f"{API}.CONSUMER.CREATE.PW_MODELS.look-1": {INSTALLER, OPERATOR},
    f"{API}.CONSUMER.CREATE.PW_SERVING.look-1": {INSTALLER, OPERATOR},
    f"{API}.CONSUMER.CREATE.PW_MEASUREMENTS.look-1": {INSTALLER, OPERATOR},
    f"{API}.CONSUMER.CREATE.PW_WORK.cache-run-0": {OPERATOR},
    f"{API}.CONSUMER.NAMES.PW_WORK": {OPERATOR},
    f"{API}.DIRECT.GET.PW_WORK.pw.work.cache.set.run.0.0.v1": {AGENT, OPERATOR},
    f"{API}.DIRECT.GET.PW_WORK": {OPERATOR},
    f"{API}.STREAM.MSG.GET.PW_WORK": {OPERATOR},
    f"{API}.CONSUMER.CREATE.PW_DLQ.look-1": {OPERATOR},
    f"{API}.CONSUMER.CREATE.KV_pw_cache_runs.look-1": {OPERATOR},
    f"{API}.CONSUMER.CREATE.KV_pw_triggers.look-1": {OPERATOR},
    f"{API}.CONSUMER.CREATE.PW_DATASETS.trigger-controller-datasets": {INSTALLER, OPERATOR},
    f"{API}.CONSUMER.CREATE.PW_DATASETS.trigger-controller-datasets.pw.evt.>": {INSTALLER, OPERATOR},
    f"{API}.CONSUMER.DURABLE.CREATE.PW_DATASETS.trigger-controller-datasets": {OPERATOR},
    f"{API}.CONSUMER.CREATE.PW_DATASETS": {OPERATOR},
    f"{API}.CONSUMER.MSG.NEXT.PW_DATASETS.trigger-controller-datasets": {TRIGGER, OPERATOR},
    f"{API}.CONSUMER.INFO.PW_DATASETS.trigger-controller-datasets": {TRIGGER, INSTALLER, OPERATOR},
    f"{API}.CONSUMER.DELETE.PW_DATASETS.trigger-controller-datasets": {INSTALLER, OPERATOR},
    f"{API}.CONSUMER.PAUSE.PW_DATASETS.trigger-controller-datasets": {OPERATOR},
    f"{API}.CONSUMER.DELETE.PW_DATASETS.somebodys": {INSTALLER, OPERATOR},
    f"{API}.CONSUMER.CREATE.PW_REPLAY.trigger-controller-datasets-again": {INSTALLER, OPERATOR},
    f"{API}.CONSUMER.CREATE.PW_REPLAY.trigger-controller-jobs-again": {INSTALLER, OPERATOR},
    f"{API}.CONSUMER.MSG.NEXT.PW_REPLAY.trigger-controller-datasets-again": {TRIGGER, OPERATOR},
    f"{API}.CONSUMER.DELETE.PW_REPLAY.trigger-controller-datasets-again": {OPERATOR},
    f"{API}.SERVER.REMOVE": {OPERATOR},
    f"{API}.ACCOUNT.PURGE.PADDLEWHEEL": {OPERATOR},
    "$JS.ACK.PW_DATASETS.trigger-controller-datasets.1.1.1.1.0": {TRIGGER, OPERATOR},
    "$JS.ACK.PW_DATASETS.mine.1.1.1.1.0": {OPERATOR},
    "$JS.ACK.PW_JOBS.trigger-controller-jobs.1.1.1.1.0": {TRIGGER, OPERATOR},
    "$JS.ACK.PW_WORK.cache-run-0.1.1.1.1.0": {OPERATOR},
}
"""JetStream request to the roles whose requests reach the server."""


async def allowed_to_publish(client: Guest, subjects: Iterable[str]) -> set[str]:
    # Not JSON: a request that gets through changes nothing.
    return {subject for subject in subjects if not await client.refused_to_publish(subject, b"?")}


def of_role(table: dict[str, set[str]], role: str) -> set[str]:
    return {subject for subject, roles in table.items() if role in roles}


@pytest.mark.parametrize("role", sorted(EVERYBODY))
async def test_a_role_publishes_its_own_subjects_only(bus: ChartBus, role: str) -> None:
    expected = set(PUBLISH) if role == OPERATOR else of_role(PUBLISH, role)

    async with guest(bus, role) as client:
        assert await allowed_to_publish(client, PUBLISH) == expected
        assert await allowed_to_publish(client, NOWHERE) == set()


@pytest.mark.parametrize("role", sorted(EVERYBODY))
async def test_a_role_hears_its_own_subjects_only(bus: ChartBus, role: str) -> None:
    async with guest(bus, role) as client:
        heard = {subject for subject in SUBSCRIBE if not await client.refused_to_subscribe(subject)}

    assert heard == of_role(SUBSCRIBE, role)


async def test_a_subscriber_reads_and_consumes_what_its_account_has(bus: ChartBus) -> None:
    """An account of copies: it may do there what it likes but change the streams."""
    calls = ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT", "RESTORE")
    refused = [f"{API}.STREAM.{call}.PW_JOBS" for call in calls]
    reads = (
        "STREAM.INFO.PW_JOBS",
        "STREAM.MSG.GET.PW_JOBS",
        "DIRECT.GET.PW_JOBS",
        "CONSUMER.CREATE.PW_JOBS.x",
    )
    async with guest(bus, SUBSCRIBER) as client:
        assert await allowed_to_publish(client, refused) == set()
        allowed = {f"{API}.{read}" for read in reads}
        assert await allowed_to_publish(client, allowed) == allowed


@pytest.mark.parametrize("role", sorted(EVERYBODY - {SUBSCRIBER}))
async def test_a_role_makes_its_own_requests_only(bus: ChartBus, role: str) -> None:
    async with guest(bus, role) as client:
        assert await allowed_to_publish(client, CALLS) == of_role(CALLS, role)


@pytest.mark.parametrize("what", ["all", "sub"])
async def test_an_agent_cannot_remove_what_it_may_not_write(empty_bus: ChartBus, what: str) -> None:
    """A message that may replace others is checked by its own subject only."""
    await install(empty_bus)
    controller = NatsBus(empty_bus.access(DATASET), name=DATASET)
    runs = controller.key_value(RUNS_BUCKET)
    try:
        await runs.put("set.run.spec", b"{}")
        async with guest(empty_bus, AGENT) as agent:
            state = "$KV.pw_cache_runs.a.b.state"
            assert "error" not in await agent.send(state, b"{}")
            answer = await agent.send(state, b"{}", {"Nats-Rollup": what})
            assert answer["error"]["description"] == "rollup not permitted"
        assert [entry.key for entry in await runs.entries("*.*.spec")] == ["set.run.spec"]
    finally:
        await controller.close()


async def test_no_role_reads_what_is_answered_to_another(provided: ChartBus) -> None:
    inbox = inbox_prefix(JOB)
    async with guest(provided, OPERATOR) as operator, guest(provided, SUBSCRIBER) as subscriber:
        for client in (operator, subscriber):
            assert await client.refused_to_subscribe(f"{inbox}.>")
            assert await client.refused_to_subscribe(f"{inbox}.x")
            assert await client.refused_to_subscribe("*.>")


@pytest.mark.parametrize(
    "body",
    [
        {"stream_name": "PW_DATASETS", "config": {"durable_name": "trigger-controller-datasets"}},
        {"stream_name": "PW_DATASETS", "config": {"name": "trigger-controller-datasets"}},
        {"stream_name": "PW_WORK", "config": {"name": "mine"}},
        {"stream_name": "PW_DLQ", "config": {"name": "mine"}},
    ],
)
async def test_a_request_cannot_ask_for_another_consumer_than_its_subject_names(
    provided: ChartBus, body: dict[str, dict[str, object]]
) -> None:
    wanted = {**body, "config": {**body["config"], "ack_policy": "explicit"}}

    async with guest(provided, SUBSCRIBER) as subscriber:
        answer = await subscriber.ask(f"{API}.CONSUMER.CREATE.PW_DATASETS.mine", wanted)

    assert "error" in answer or (answer["stream_name"], answer["name"]) == ("PW_DATASETS", "mine")


async def contents(bus: ChartBus) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Of every stream: how many messages, and the names of its consumers."""
    async with guest(bus, OPERATOR) as operator:
        js = operator.client.jetstream()
        found = {}
        for spec in STREAMS:
            info = await js.stream_info(spec.name)
            consumers = await js.consumers_info(spec.name)
            found[spec.name] = (info.state.last_seq, tuple(sorted(c.name for c in consumers)))
        return found


FORBIDDEN_REPLIES = (
    *(f"{API}.STREAM.DELETE.{spec.name}" for spec in STREAMS),
    *(f"{API}.STREAM.PURGE.{spec.name}" for spec in STREAMS),
    f"{API}.CONSUMER.DELETE.PW_DATASETS.trigger-controller-datasets",
    f"pw.evt.jobs.job.succeeded.{FACT}",
    f"pw.evt.datasets.sampleset.ready.{FACT}",
    "pw.work.cache.set.run.0.v1",
    "pw.cmd.job-controller.rebuild.v1",
    "pw.src.s3.images.ns",
    "$KV.pw_cache_runs.set.run.spec",
    "pw.dlq.trigger-controller-datasets.again",
)


@pytest.mark.parametrize(
    ("role", "stream", "subject"),
    [
        (SUBSCRIBER, "PW_DATASETS", f"pw.evt.datasets.sampleset.ready.{FACT}"),
        (AGENT, "PW_CACHE", f"pw.evt.cache.run.ended.{FACT}"),
        (DATASET, "PW_DATASETS", f"pw.evt.datasets.sampleset.ready.{FACT}"),
        (SERVING, "PW_SERVING", f"pw.evt.serving.canary.promoted.{FACT}"),
    ],
)
async def test_the_servers_answers_cannot_be_sent_where_the_asker_may_not_publish(
    provided: ChartBus, role: str, stream: str, subject: str
) -> None:
    """The server asks nobody for permission when it answers to a reply subject."""
    async with guest(provided, OPERATOR) as operator:
        js = operator.client.jetstream()
        durable = "trigger-controller-datasets"
        await js.add_consumer("PW_DATASETS", name=durable, durable_name=durable, ack_policy="explicit")
        await js.publish(subject, b"{}")
        taken = await js.pull_subscribe_bind(durable, "PW_DATASETS")
        await js.publish(f"pw.evt.datasets.sampleset.ready.{FACT}", b"{}")
        [taken_now] = await taken.fetch(1, timeout=BUS_ANSWER_TIMEOUT_SECONDS)
        pending = (await js.consumer_info("PW_DATASETS", durable)).num_ack_pending
    before = await contents(provided)

    async with guest(provided, role) as client:
        for reply in (*FORBIDDEN_REPLIES, taken_now.reply):
            for question, body in questions(stream, subject):
                await client.client.publish(question, body, reply=reply)
        await client.client.flush()
        # Answered after all of the above.
        assert await client.ask(f"{API}.STREAM.INFO.{stream}")

    assert await contents(provided) == before
    async with guest(provided, OPERATOR) as operator:
        info = await operator.client.jetstream().consumer_info("PW_DATASETS", durable)
        assert info.num_ack_pending == pending


def questions(stream: str, subject: str) -> list[tuple[str, bytes]]:
    """Requests that are answered with a fact, with nothing, and with JSON."""
    return [
        (f"{API}.DIRECT.GET.{stream}.{subject}", b""),
        (f"{API}.DIRECT.GET.{stream}.{subject}.none", b""),
        (f"{API}.STREAM.MSG.GET.{stream}", json.dumps({"last_by_subj": subject}).encode()),
        (f"{API}.STREAM.INFO.{stream}", b""),
    ]


@pytest.mark.parametrize(
    "target", ["pw.evt.jobs.forged", "pw.work.cache.a.b.0.v1", f"{API}.STREAM.DELETE.PW_JOBS"]
)
async def test_a_push_consumer_cannot_be_aimed_at_other_subjects(provided: ChartBus, target: str) -> None:
    async with guest(provided, OPERATOR) as operator:
        await operator.client.jetstream().publish(f"pw.evt.datasets.sampleset.ready.{FACT}", b"{}")
    before = {name: last for name, (last, _) in (await contents(provided)).items()}

    async with guest(provided, SUBSCRIBER) as subscriber:
        config = {"name": "push", "deliver_subject": target, "ack_policy": "none", "deliver_policy": "all"}
        wanted = {"stream_name": "PW_DATASETS", "config": config}
        await subscriber.ask(f"{API}.CONSUMER.CREATE.PW_DATASETS.push", wanted)
        for _ in range(3):
            await subscriber.ask(f"{API}.CONSUMER.INFO.PW_DATASETS.push")
        await subscriber.ask(f"{API}.CONSUMER.DELETE.PW_DATASETS.push")

    assert {name: last for name, (last, _) in (await contents(provided)).items()} == before


async def test_accounts_keep_core_messages_apart(empty_bus: ChartBus) -> None:
    """What a role publishes is heard by those alone who may hear it."""
    await install(empty_bus)
    subject = f"pw.evt.jobs.job.succeeded.{FACT}"
    async with guest(empty_bus, SUBSCRIBER) as subscriber, guest(empty_bus, JOB) as controller:
        heard = await subscriber.client.subscribe("pw.evt.>")
        await subscriber.client.flush()
        await controller.client.jetstream().publish(subject, b"{}")
        assert (await heard.next_msg(BUS_ANSWER_TIMEOUT_SECONDS)).subject == subject

        assert await subscriber.refused_to_publish(subject, b"forged")
        await controller.client.jetstream().publish(subject, b"next")
        assert (await heard.next_msg(BUS_ANSWER_TIMEOUT_SECONDS)).data == b"next"
