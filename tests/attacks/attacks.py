"""The attacks: what each role tries on others, and how the harm would show."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.attacks.stand import API, FACT, REBUILD, VICTIM, Stand, happened

from paddlewheel.bus.admin.permissions import ROLES, SUBSCRIBER, WORK_PURGES
from paddlewheel.bus.streams import STREAMS
from paddlewheel.testkit.chart_bus import Guest

AGENT, JOB, DATASET, TRIGGER = "cache-runtime", "job-controller", "dataset-controller", "trigger-controller"
EVALUATOR = "evaluator"
INSIDERS = frozenset({"operator", "installer"})
"""Roles that may do everything with the streams: nobody attacks as them."""
SERVICE = "notebooks"
"""A service of others, beside which there is another."""
OUTSIDERS = (*(role.name for role in ROLES if role.name not in INSIDERS), SERVICE)
SWALLOW = f"{API}.CONSUMER.MSG.NEXT.{VICTIM[0]}.{VICTIM[1]}"
FIRED = "pw.evt.triggers.trigger.fired.v1.ns.uid"
FORGED = "pw.evt.jobs.job.succeeded.v1.ns.uid"

Run = Callable[[Stand, Guest], Awaitable[bool]]


@dataclass(frozen=True)
class Attack:
    """`run` tells whether `role` did harm: by the harm itself, never by an answer that it got."""

    name: str
    role: str
    run: Run


async def push(client: Guest, stream: str, to: str, **more: object) -> dict[str, Any]:
    """Ask for a push consumer, in each of the ways there are; the last answer."""
    # Acknowledged, so that a delivery has a reply subject, without which nothing is pulled.
    config = {"deliver_subject": to, "ack_policy": "explicit", "deliver_policy": "all", **more}
    answer: dict[str, Any] = {}
    for subject, named in (
        (f"{API}.CONSUMER.CREATE.{stream}.evil", {"name": "evil"}),
        (f"{API}.CONSUMER.CREATE.{stream}.evil.>", {"name": "evil", "filter_subject": ">"}),
        (f"{API}.CONSUMER.CREATE.{stream}", {}),
        (f"{API}.CONSUMER.DURABLE.CREATE.{stream}.evil", {"durable_name": "evil"}),
    ):
        answer = await client.ask(subject, {"stream_name": stream, "config": {**config, **named}}) or answer
    return answer


async def tell(client: Guest, subject: str, body: object = None) -> None:
    """A request whose answer, if there is one, does not matter."""
    data = b"" if body is None else json.dumps(body).encode()
    await client.refused_to_publish(subject, data, client.client.new_inbox())


async def commands_by_delivery(stand: Stand, client: Guest) -> bool:
    """A consumer whose deliveries are commands."""
    heard = await stand.hear(JOB, REBUILD)
    await stand.publish(DATASET, FACT)
    await push(client, "PW_DATASETS", REBUILD)

    async def commanded() -> bool:
        return bool(heard)

    return await happened(commanded)


async def swallows_by_delivery(stand: Stand, client: Guest) -> bool:
    """A consumer whose deliveries are pulls from somebody else's durable."""
    for number in range(3):
        await stand.publish(DATASET, f"{FACT}{number}")
    await push(client, "PW_DATASETS", SWALLOW)

    async def swallowed() -> bool:
        return await stand.delivered(*VICTIM) > 0

    return await happened(swallowed)


async def swallows_by_one_put(stand: Stand, client: Guest) -> bool:
    """A pull request as the value of a key."""
    await stand.publish(DATASET, FACT)
    await push(client, "KV_pw_cache_runs", SWALLOW, deliver_policy="new")
    await client.refused_to_publish("$KV.pw_cache_runs.s.r.state", b'{"batch": 100}')

    async def swallowed() -> bool:
        return await stand.delivered(*VICTIM) > 0

    return await happened(swallowed)


async def swallows_by_work(stand: Stand, client: Guest) -> bool:
    """A pull request as a chunk of work."""
    await stand.publish(DATASET, FACT)
    await push(client, "PW_WORK", SWALLOW)
    await client.refused_to_publish("pw.work.cache.s.r.0.0.v1", b'{"batch": 100}')

    async def swallowed() -> bool:
        return await stand.delivered(*VICTIM) > 0

    return await happened(swallowed)


async def update(client: Guest, stream: str, **changes: object) -> None:
    """Change one's own stream, whatever its configuration is: read, amended, written back."""
    info = await client.ask(f"{API}.STREAM.INFO.{stream}")
    config = {**info.get("config", {"name": stream}), **changes}
    for call in ("UPDATE", "CREATE"):
        await client.ask(f"{API}.STREAM.{call}.{stream}", config)


async def forges_by_republish(stand: Stand, client: Guest) -> bool:
    """A stream of one's own that publishes what it stores as somebody else's fact."""
    await update(client, "PW_TRIGGERS", republish={"src": FIRED, "dest": FORGED})
    await client.refused_to_publish(FIRED, b'{"forged": true}')

    async def forged() -> bool:
        return await stand.stored("PW_JOBS") > 0

    return await happened(forged)


async def deletes_by_republish(stand: Stand, client: Guest) -> bool:
    """A stream of one's own that publishes what it stores as a request to delete another."""
    await update(client, "PW_TRIGGERS", republish={"src": FIRED, "dest": f"{API}.STREAM.DELETE.PW_CACHE"})
    await client.refused_to_publish(FIRED, b"")

    async def deleted() -> bool:
        return await stand.stored("PW_CACHE") < 0

    return await happened(deleted)


async def takes_subjects(stand: Stand, client: Guest) -> bool:
    """A stream that takes the facts of another in, by subject, mirror or source."""
    for more in (
        {"subjects": ["pw.cmd.>"]},
        {"subjects": ["$JS.ACK.>"]},
        {"mirror": {"name": "PW_WORK"}},
        {"sources": [{"name": "PW_WORK"}]},
    ):
        config = {"name": "PW_EVIL", "storage": "memory", "retention": "limits", "discard": "old", **more}
        await client.ask(f"{API}.STREAM.CREATE.PW_EVIL", config)
    await update(client, "PW_TRIGGERS", subjects=["pw.evt.triggers.>", "pw.evil.>"])
    await update(client, "PW_TRIGGERS", sources=[{"name": "PW_WORK"}])
    streams = {info.config.name: info.config for info in await stand.js.streams_info()}
    changed = streams["PW_TRIGGERS"]
    return "PW_EVIL" in streams or bool(changed.sources) or changed.subjects != ["pw.evt.triggers.>"]


async def changes_streams(stand: Stand, client: Guest) -> bool:
    """Delete, purge, empty or shrink any stream."""
    before = {}
    for spec in STREAMS:
        await stand.js.publish(spec.subjects[0].replace(">", "a.b.c").replace("*", "a"), b"{}")
        before[spec.name] = await stand.stored(spec.name)
    for spec in STREAMS:
        await update(client, spec.name, max_age=100_000_000, duplicate_window=100_000_000)
        for call, body in (
            ("MSG.DELETE", {"seq": 1}),
            ("PURGE", {}),
            ("DELETE", None),
            ("SNAPSHOT", {"deliver_subject": "pw.evt.x"}),
            ("RESTORE", {}),
            ("PEER.REMOVE", {"peer": "x"}),
            ("LEADER.STEPDOWN", {}),
        ):
            await tell(client, f"{API}.STREAM.{call}.{spec.name}", body)

    async def harmed() -> bool:
        found = {info.config.name: info for info in await stand.js.streams_info()}
        return any(
            name not in found or found[name].state.messages < stored or found[name].config.max_age == 0.1
            for name, stored in before.items()
        )

    return await happened(harmed)


async def changes_durables(stand: Stand, client: Guest) -> bool:
    """Delete, pause, unpin, reset or redirect a durable of a service."""
    await stand.publish(DATASET, FACT)
    name = ".".join(VICTIM)
    # A position that a reset would take back.
    taken = await stand.js.pull_subscribe_bind(VICTIM[1], VICTIM[0])
    [message] = await taken.fetch(1)
    await message.ack_sync()
    before = await stand.js.consumer_info(*VICTIM)
    for call, body in (
        ("PAUSE", {"pause_until": "2100-01-01T00:00:00Z"}),
        ("UNPIN", {"group": "g"}),
        ("RESET", {"seq": 1}),
        ("LEADER.STEPDOWN", {}),
        ("DELETE", None),
    ):
        await tell(client, f"{API}.CONSUMER.{call}.{name}", body)
    config = {"name": VICTIM[1], "durable_name": VICTIM[1], "ack_policy": "explicit"}
    for subject in (
        f"CONSUMER.CREATE.{name}",
        f"CONSUMER.DURABLE.CREATE.{name}",
        "CONSUMER.CREATE.PW_DATASETS",
    ):
        await tell(
            client,
            f"{API}.{subject}",
            {"stream_name": VICTIM[0], "config": {**config, "filter_subject": "pw.evt.datasets.none"}},
        )
    if VICTIM[1] not in await stand.consumers(VICTIM[0]):
        return True
    after = await stand.js.consumer_info(*VICTIM)
    moved = (after.delivered, after.ack_floor) != (before.delivered, before.ack_floor)
    return moved or after.config != before.config or bool(after.pause_remaining)


async def forges_acknowledgements(stand: Stand, client: Guest) -> bool:
    """Settle a delivery that somebody else holds."""
    await stand.publish(DATASET, FACT)
    taken = await stand.js.pull_subscribe_bind(VICTIM[1], VICTIM[0])
    [message] = await taken.fetch(1)
    for end in (b"+ACK", b"+TERM"):
        await client.refused_to_publish(message.reply, end)
        inner = f"{API}.STREAM.INFO.PW_DATASETS"
        await client.client.publish(inner, b"", reply=message.reply)
    await client.client.flush()

    async def settled() -> bool:
        return not (await stand.js.consumer_info(*VICTIM)).num_ack_pending

    return await happened(settled)


async def pulls_from_others(stand: Stand, client: Guest) -> bool:
    """Deliveries of the durables of others, those of services of others included."""
    await stand.publish(DATASET, FACT)
    await stand.publish(SERVICE, "pw.evt.notebooks.notebook.started.v1.ns.uid")
    victims = (VICTIM, ("PW_NOTEBOOKS", "reports-notebooks"))
    for stream, durable in victims:
        for subject in (f"{API}.CONSUMER.MSG.NEXT.{stream}.{durable}", f"{API}.CONSUMER.MSG.NEXT.{stream}.*"):
            await tell(client, subject, {"batch": 100, "expires": 1_000_000_000})

    async def pulled() -> bool:
        return any([await stand.delivered(*victim) > 0 for victim in victims])

    return await happened(pulled)


async def changes_its_own(stand: Stand, client: Guest) -> bool:
    """Change or delete what the installer made for it: its stream and its durable."""
    durable, stream = ("PW_JOBS", "notebooks-jobs"), "PW_NOTEBOOKS"
    before = await stand.js.consumer_info(*durable)
    name = ".".join(durable)
    config = {
        "name": durable[1],
        "durable_name": durable[1],
        "deliver_subject": REBUILD,
        "ack_policy": "none",
    }
    body = {"stream_name": durable[0], "config": config}
    for call in (
        f"CREATE.{name}",
        f"CREATE.{name}.>",
        f"DURABLE.CREATE.{name}",
        f"DELETE.{name}",
        f"PAUSE.{name}",
    ):
        await tell(client, f"{API}.CONSUMER.{call}", body)
    await update(client, stream, subjects=["pw.evt.notebooks.>", "pw.evil.>"], max_bytes=2**30)
    await tell(client, f"{API}.STREAM.DELETE.{stream}")
    if durable[1] not in await stand.consumers(durable[0]) or await stand.stored(stream) < 0:
        return True
    config_now = (await stand.js.stream_info(stream)).config
    changed = config_now.subjects != ["pw.evt.notebooks.>"] or config_now.max_bytes != 64 * 1024**2
    return changed or (await stand.js.consumer_info(*durable)).config != before.config


async def makes_consumers(stand: Stand, client: Guest) -> bool:
    """Any consumer at all on any stream of the services: with one, deliveries go where its maker likes."""
    before = {spec.name: await stand.consumers(spec.name) for spec in STREAMS}
    for spec in STREAMS:
        await push(client, spec.name, "pw.evil")
        pull = {"name": "pull", "ack_policy": "explicit"}
        await client.ask(
            f"{API}.CONSUMER.CREATE.{spec.name}.pull", {"stream_name": spec.name, "config": pull}
        )
    after = {name: await stand.consumers(name) for name in before}
    return after != before


async def empties_the_queue(stand: Stand, client: Guest) -> bool:
    """Ask the installer to remove more work than that of one data set."""
    await stand.js.publish("pw.work.cache.other.r.0.0.v1", b"{}")
    before = await stand.stored("PW_WORK")
    own = WORK_PURGES.replace("*", "s")
    for subject in (
        ">",
        "pw.work.>",
        "pw.work.*.*.*.*.*.v1",
        "pw.work.cache.*.*.*.*.v1",
        "pw.work.cache.other.r.0.0.v1",
    ):
        await client.ask(own, {"subject": subject})
    for body in (
        {},
        {"filter": "pw.work.cache.s.r.0.0.v1"},
        {"subject": "pw.work.cache.s.*.*.*.v1", "keep": 0},
    ):
        await client.ask(own, body)

    async def harmed() -> bool:
        return await stand.stored("PW_WORK") < before

    return await happened(harmed)


async def answers_elsewhere(stand: Stand, client: Guest) -> bool:
    """Name a subject for the answer on which the server's word is a command, a fact or a request."""
    heard = await stand.hear(JOB, REBUILD)
    await stand.publish(DATASET, FACT)
    stored = await stand.stored("PW_JOBS")
    questions = [f"{API}.INFO", f"{API}.STREAM.INFO.PW_DATASETS", f"{API}.STREAM.NAMES"]
    questions += [f"{API}.DIRECT.GET.PW_DATASETS.{FACT}", f"{API}.CONSUMER.CREATE.PW_DATASETS.e"]
    for question in questions:
        for reply in (REBUILD, FORGED, SWALLOW, f"{API}.STREAM.DELETE.PW_CACHE"):
            await client.client.publish(question, b"", reply=reply)
    await client.client.flush()

    async def harmed() -> bool:
        deleted = await stand.stored("PW_CACHE") < 0
        forged = await stand.stored("PW_JOBS") != stored
        return bool(heard) or deleted or forged or await stand.delivered(*VICTIM) > 0

    return await happened(harmed)


async def speaks_for_others(stand: Stand, client: Guest) -> bool:
    """Facts, commands and replays that only others may publish."""
    heard = await stand.hear(JOB, REBUILD)
    for subject in (REBUILD, "pw.dlq.job-controller-datasets.again", "pw.evt.else.a.b.v1.ns.uid"):
        await client.refused_to_publish(subject, b"{}")
    facts = {
        "PW_JOBS": FORGED,
        "PW_DATASETS": FACT,
        "PW_CACHE": "pw.evt.cache.run.ended.v1.ns.uid",
        "PW_NOTEBOOKS": "pw.evt.notebooks.notebook.started.v1.ns.uid",
        "PW_REPORTS": "pw.evt.reports.report.made.v1.ns.uid",
    }
    mine = {JOB: "PW_JOBS", DATASET: "PW_DATASETS", AGENT: "PW_CACHE", SERVICE: "PW_NOTEBOOKS"}.get(
        client_role(client)
    )
    others = {stream: subject for stream, subject in facts.items() if stream != mine}
    for subject in others.values():
        await client.refused_to_publish(subject, b"{}")

    async def harmed() -> bool:
        forged = [await stand.stored(stream) for stream in (*others, "PW_REPLAY")]
        return bool(heard) or any(forged)

    return await happened(harmed)


async def listens_to_others(stand: Stand, client: Guest) -> bool:
    """Commands, work, records and other roles' answers."""
    heard = []

    async def note(msg: Any) -> None:
        heard.append(msg.subject)

    for subject in (">", "pw.cmd.>", "pw.work.>", "$JS.>", "_INBOX_operator.>", "_R_.>", "pw.dlq.>"):
        if not await client.refused_to_subscribe(subject):
            await client.client.subscribe(subject, cb=note)
    await stand.operator.client.publish("pw.cmd.serving-controller.rebuild.v1", b"{}")
    await stand.operator.client.publish("pw.work.cache.s.r.0.0.v1", b"{}")
    await stand.js.stream_info("PW_JOBS")

    async def overheard() -> bool:
        return any(subject.startswith(("pw.cmd.serving", "pw.work", "_INBOX_operator")) for subject in heard)

    return client_role(client) != "serving-controller" and await happened(overheard)


async def exhausts_consumers(stand: Stand, client: Guest) -> bool:
    """So many consumers that the services get none: one more must still be possible where they live."""
    for number in range(600):
        config = {"name": f"c{number}", "durable_name": f"c{number}", "ack_policy": "none"}
        body = json.dumps({"stream_name": "PW_JOBS", "config": config}).encode()
        subject = f"{API}.CONSUMER.CREATE.PW_JOBS.c{number}"
        await client.client.publish(subject, body, reply=client.client.new_inbox())
    await client.client.flush()

    async def exhausted() -> bool:
        return (await stand.js.stream_info("PW_JOBS")).state.consumer_count > 100

    return await happened(exhausted)


def client_role(client: Guest) -> str:
    """By its inbox, which nobody else may have."""
    inbox: str = client.client.new_inbox()
    return inbox.partition(".")[0].removeprefix("_INBOX_")


def _named(name: str, role: str, run: Run) -> Attack:
    return Attack(f"{role} {name}", role, run)


TABLE = (
    _named("commands a service by a delivery subject", SUBSCRIBER, commands_by_delivery),
    _named("swallows the deliveries of a durable", SUBSCRIBER, swallows_by_delivery),
    _named("swallows the deliveries of a durable by one put", AGENT, swallows_by_one_put),
    _named("stores a forged fact by republishing", TRIGGER, forges_by_republish),
    _named("deletes a stream by republishing", TRIGGER, deletes_by_republish),
)
"""The first four rows of the table of issue 11."""

NEAR = (
    _named("swallows the deliveries of a durable by a chunk", AGENT, swallows_by_work),
    *(
        _named(name, role, run)
        for name, run in (
            ("makes a consumer where the services live", makes_consumers),
            ("takes the subjects of others into a stream", takes_subjects),
            ("changes, empties or deletes a stream", changes_streams),
            ("changes, pauses or deletes a durable", changes_durables),
            ("acknowledges what another holds", forges_acknowledgements),
            ("has answers sent to where it may not publish", answers_elsewhere),
            ("publishes what is another's", speaks_for_others),
            ("hears what is not for it", listens_to_others),
        )
        for role in OUTSIDERS
        # Its own durable.
        if (run, role) not in ((forges_acknowledgements, JOB), (answers_elsewhere, JOB))
    ),
    *(_named("has the installer empty the work queue", role, empties_the_queue) for role in OUTSIDERS),
    _named("uses up the consumers", SUBSCRIBER, exhausts_consumers),
    _named("pulls from another's durable", SERVICE, pulls_from_others),
    _named("changes its own stream or durable", SERVICE, changes_its_own),
)
"""Attacks of the same kinds."""

ATTACKS = (*TABLE, *NEAR)


async def attempt(attack: Attack, stand: Stand) -> bool:
    """Whether it did harm. Raises AssertionError when the attacker has no connection: nothing is proved."""
    client = await stand.enter(attack.role)
    succeeded = await attack.run(stand, client)
    answer = await client.ask(f"{API}.INFO")
    assert "memory" in answer or "error" in answer, f"{attack.role} has no working connection: {answer}"
    return succeeded


BY_NAME = {attack.name: attack for attack in ATTACKS}
