"""The attacks: what each role tries on others, and how the harm would show."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.attacks.stand import API, FACT, REBUILD, VICTIM, Harm, Stand, happened

from paddlewheel.bus.admin.permissions import MEASURED, ROLES, SUBSCRIBER
from paddlewheel.bus.streams import STREAMS, matches, stream_of
from paddlewheel.contracts.generated.registry import EVENTS
from paddlewheel.contracts.subjects import event_subject
from paddlewheel.testkit.chart_bus import BUS_ANSWER_TIMEOUT_SECONDS, Guest

AGENT, JOB, DATASET, TRIGGER = "cache-runtime", "job-controller", "dataset-controller", "trigger-controller"
EVALUATOR, SERVING = "evaluator", "serving-controller"
INSIDERS = frozenset({"operator", "installer"})
"""Roles that may do everything with the streams: nobody attacks as them."""
SERVICE = "notebooks"
"""A service of others, beside which there is another."""
OUTSIDERS = (*(role.name for role in ROLES if role.name not in INSIDERS), SERVICE)
SWALLOW = f"{API}.CONSUMER.MSG.NEXT.{VICTIM[0]}.{VICTIM[1]}"
FIRED = "pw.evt.triggers.trigger.fired.v1.ns.uid"
FORGED = "pw.evt.jobs.job.succeeded.v1.ns.uid"

STARTED = "pw.evt.notebooks.notebook.started.v1.ns.uid"
REPORTED = "pw.evt.reports.report.made.v1.ns.uid"
PULLED = {
    TRIGGER: (VICTIM, DATASET, FACT),
    "reports": (("PW_NOTEBOOKS", "reports-notebooks"), SERVICE, STARTED),
}
"""Of each owner a durable, and a fact for it: who publishes it, and its subject."""

PURGED = dict.fromkeys((DATASET, AGENT), "PW_WORK")
"""The stream that each of these roles may empty."""

Run = Callable[[Stand, Guest], Awaitable[Harm]]


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


async def commands_by_delivery(stand: Stand, client: Guest) -> Harm:
    """A consumer whose deliveries are commands."""
    heard = await stand.hear(JOB, REBUILD)
    await stand.publish(DATASET, FACT)
    await push(client, "PW_DATASETS", REBUILD)

    async def commanded() -> bool:
        return bool(heard)

    return await happened(commanded)


async def swallows_by_delivery(stand: Stand, client: Guest) -> Harm:
    """A consumer whose deliveries are pulls from somebody else's durable."""
    for number in range(3):
        await stand.publish(DATASET, f"{FACT}{number}")
    await push(client, "PW_DATASETS", SWALLOW)

    async def swallowed() -> bool:
        return await stand.delivered(*VICTIM) > 0

    return await happened(swallowed)


async def swallows_by_one_put(stand: Stand, client: Guest) -> Harm:
    """A pull request as the value of a key."""
    await stand.publish(DATASET, FACT)
    await push(client, "KV_pw_cache_runs", SWALLOW, deliver_policy="new")
    await client.refused_to_publish("$KV.pw_cache_runs.s.r.state", b'{"batch": 100}')

    async def swallowed() -> bool:
        return await stand.delivered(*VICTIM) > 0

    return await happened(swallowed)


async def swallows_by_work(stand: Stand, client: Guest) -> Harm:
    """A pull request as a chunk of work."""
    await stand.publish(DATASET, FACT)
    await push(client, "PW_WORK", SWALLOW)
    await client.refused_to_publish("pw.work.cache.s.r.0.0.v1", b'{"batch": 100}')

    async def swallowed() -> bool:
        return await stand.delivered(*VICTIM) > 0

    return await happened(swallowed)


async def update(stand: Stand, client: Guest, stream: str, **changes: object) -> None:
    """Change a stream, whose configuration everybody knows."""
    config = (await stand.operator.ask(f"{API}.STREAM.INFO.{stream}"))["config"]
    for call in ("UPDATE", "CREATE"):
        await client.ask(f"{API}.STREAM.{call}.{stream}", {**config, **changes})


async def forges_by_republish(stand: Stand, client: Guest) -> Harm:
    """A stream of one's own that publishes what it stores as somebody else's fact."""
    await update(stand, client, "PW_TRIGGERS", republish={"src": FIRED, "dest": FORGED})
    await client.refused_to_publish(FIRED, b'{"forged": true}')

    async def forged() -> bool:
        return await stand.stored("PW_JOBS") > 0

    return await happened(forged)


async def deletes_by_republish(stand: Stand, client: Guest) -> Harm:
    """A stream of one's own that publishes what it stores as a request to delete another."""
    await update(
        stand, client, "PW_TRIGGERS", republish={"src": FIRED, "dest": f"{API}.STREAM.DELETE.PW_CACHE"}
    )
    await client.refused_to_publish(FIRED, b"")

    async def deleted() -> bool:
        return await stand.stored("PW_CACHE") < 0

    return await happened(deleted)


async def takes_subjects(stand: Stand, client: Guest) -> Harm:
    """A stream that takes the facts of another in, by subject, mirror or source."""
    taking: dict[str, dict[str, object]] = {
        "PW_EVIL_SUBJECTS": {"subjects": ["pw.cmd.>"]},
        "PW_EVIL_MIRROR": {"mirror": {"name": "PW_WORK"}},
        "PW_EVIL_SOURCES": {"sources": [{"name": "PW_WORK"}]},
    }
    for name, more in taking.items():
        config = {"name": name, "storage": "memory", "retention": "limits", "discard": "old", **more}
        await client.ask(f"{API}.STREAM.CREATE.{name}", config)
    await update(stand, client, "PW_TRIGGERS", subjects=["pw.evt.triggers.>", "pw.evil.>"])
    await update(stand, client, "PW_TRIGGERS", sources=[{"name": "PW_WORK"}])
    streams = {info.config.name: info.config for info in await stand.js.streams_info()}
    changed = streams["PW_TRIGGERS"]
    return {
        **{name: name in streams for name in taking},
        "subjects of a stream": changed.subjects != ["pw.evt.triggers.>"],
        "sources of a stream": bool(changed.sources),
    }


async def changes_streams(stand: Stand, client: Guest) -> Harm:
    """Copy, empty, shrink, delete or restore any stream.

    One server cannot show that a leader steps down or a peer is removed, for it has no others: there what
    counts is that the request is not refused.
    """
    for spec in STREAMS:
        for token in ("a", "b"):
            subject = spec.subjects[0].replace(">", f"{token}.b.c").replace("*", token)
            await stand.js.publish(subject, b"{}")
    copied = await copies(client)
    harm = {
        "copied": copied,
        "message deleted": await loses(stand, client, "MSG.DELETE", {"seq": 1}),
        "purged": await loses(stand, client, "PURGE", {}, spared=PURGED.get(client_role(client), "")),
        "leader stepped down": await is_taken(client, "LEADER.STEPDOWN", {}),
        "peer removed": await is_taken(client, "PEER.REMOVE", {"peer": "x"}),
        "shrunk": await shrinks(stand, client),
        "deleted": await loses(stand, client, "DELETE", None),
    }
    return {**harm, "restored": await restores(stand, client)}


async def copies(client: Guest) -> bool:
    """Whether what some stream holds arrives at the attacker."""
    chunks: list[bytes] = []

    async def note(msg: Any) -> None:
        chunks.append(msg.data)

    inbox = client.client.new_inbox()
    await client.client.subscribe(inbox, cb=note)
    for spec in STREAMS:
        await client.ask(f"{API}.STREAM.SNAPSHOT.{spec.name}", {"deliver_subject": inbox})

    async def arrived() -> bool:
        return any(chunks)

    return bool(await happened(arrived))


async def loses(stand: Stand, client: Guest, call: str, body: object, *, spared: str = "") -> bool:
    """Whether a stream other than `spared` has fewer messages after it, or is gone."""
    before = {spec.name: await stand.stored(spec.name) for spec in STREAMS if spec.name != spared}
    for name in before:
        await client.ask(f"{API}.STREAM.{call}.{name}", body)
    return any([await stand.stored(name) < stored for name, stored in before.items()])


async def is_taken(client: Guest, call: str, body: object) -> bool:
    """Whether the server takes such a request about some stream."""
    subjects = [f"{API}.STREAM.{call}.{spec.name}" for spec in STREAMS]
    data, inbox = json.dumps(body).encode(), client.client.new_inbox()
    return not all([await client.refused_to_publish(subject, data, inbox) for subject in subjects])


async def shrinks(stand: Stand, client: Guest) -> bool:
    """Whether some stream keeps less than it did."""
    for spec in STREAMS:
        await update(stand, client, spec.name, max_msgs=1)
    return any(info.config.max_msgs == 1 for info in await stand.js.streams_info())


async def restores(stand: Stand, client: Guest) -> bool:
    """Whether a stream that an operator deleted is there again, with what it had once."""
    name = "PW_EVIL"
    await stand.js.add_stream(name=name, subjects=["pw.evil.>"])
    await stand.js.publish("pw.evil.x", b"{}")
    chunks = await snapshot(stand, name)
    info = await stand.operator.ask(f"{API}.STREAM.INFO.{name}")
    await stand.js.delete_stream(name)
    wanted = {"config": info["config"], "state": info["state"]}
    answer = await client.ask(f"{API}.STREAM.RESTORE.{name}", wanted)
    if "deliver_subject" in answer:
        for chunk in (*chunks, b""):
            await client.client.request(answer["deliver_subject"], chunk)
    return await stand.stored(name) > 0


async def snapshot(stand: Stand, stream: str) -> list[bytes]:
    """What a stream holds, as an operator gets it."""
    operator = stand.operator.client
    inbox, chunks = operator.new_inbox(), list[bytes]()
    arriving = await operator.subscribe(inbox)
    await stand.operator.ask(f"{API}.STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox})
    while chunk := await arriving.next_msg(BUS_ANSWER_TIMEOUT_SECONDS):
        if not chunk.data:
            return chunks
        chunks.append(chunk.data)
        if chunk.reply:
            await chunk.respond(b"")
    raise AssertionError("a snapshot ends with an empty chunk")


async def changes_durables(stand: Stand, client: Guest) -> Harm:
    """Pause, reset, redirect or delete a durable of a service.

    One server cannot show that its leader steps down; that is asked for, and not judged.
    """
    await stand.publish(DATASET, FACT)
    name = ".".join(VICTIM)
    # A position that a reset would take back.
    taken = await stand.js.pull_subscribe_bind(VICTIM[1], VICTIM[0])
    [message] = await taken.fetch(1, BUS_ANSWER_TIMEOUT_SECONDS)
    await message.ack_sync(BUS_ANSWER_TIMEOUT_SECONDS)
    before = await stand.js.consumer_info(*VICTIM)
    # In a subscriber's account there is no such durable, and to this nobody answers.
    await tell(client, f"{API}.CONSUMER.RESET.{name}", {"seq": 1})
    await client.ask(f"{API}.CONSUMER.PAUSE.{name}", {"pause_until": "2100-01-01T00:00:00Z"})
    for subject in (f"CREATE.{name}", f"DURABLE.CREATE.{name}", "CREATE.PW_DATASETS"):
        config = {"name": VICTIM[1], "durable_name": VICTIM[1], "ack_policy": "explicit"}
        body = {"stream_name": VICTIM[0], "config": {**config, "filter_subject": "pw.evt.datasets.none"}}
        await client.ask(f"{API}.CONSUMER.{subject}", body)
    await tell(client, f"{API}.CONSUMER.LEADER.STEPDOWN.{name}")
    after = await stand.js.consumer_info(*VICTIM)
    harm = {
        "paused": bool(after.pause_remaining),
        "reset": (after.delivered, after.ack_floor) != (before.delivered, before.ack_floor),
        "redirected": after.config.filter_subject != before.config.filter_subject,
    }
    await client.ask(f"{API}.CONSUMER.DELETE.{name}")
    return {**harm, "deleted": VICTIM[1] not in await stand.consumers(VICTIM[0])}


async def forges_acknowledgements(stand: Stand, client: Guest) -> Harm:
    """Settle a delivery that somebody else holds."""
    await stand.publish(DATASET, FACT)
    taken = await stand.js.pull_subscribe_bind(VICTIM[1], VICTIM[0])
    [message] = await taken.fetch(1, BUS_ANSWER_TIMEOUT_SECONDS)
    for end in (b"+ACK", b"+TERM"):
        await client.refused_to_publish(message.reply, end)
        inner = f"{API}.STREAM.INFO.PW_DATASETS"
        await client.client.publish(inner, b"", reply=message.reply)
    await client.client.flush()

    async def settled() -> bool:
        return not (await stand.js.consumer_info(*VICTIM)).num_ack_pending

    return await happened(settled)


async def pulls_from_others(stand: Stand, client: Guest) -> Harm:
    """Deliveries of the durables of others, those of services of others included."""
    victims = [pulled for owner, pulled in PULLED.items() if owner != client_role(client)]
    # The server hands nothing to an inbox at which nobody listens.
    inbox = client.client.new_inbox()
    await client.client.subscribe(inbox)
    for (stream, durable), publisher, fact in victims:
        await stand.publish(publisher, fact)
        await pull(client, stream, durable, inbox)

    async def pulled() -> Harm:
        return {durable: await stand.delivered(stream, durable) > 0 for (stream, durable), _, _ in victims}

    return await happened(pulled)


async def pull(client: Guest, stream: str, durable: str, inbox: str) -> None:
    """Ask for what a durable has."""
    body = json.dumps({"batch": 100, "expires": 1_000_000_000}).encode()
    await client.refused_to_publish(f"{API}.CONSUMER.MSG.NEXT.{stream}.{durable}", body, inbox)


async def changes_its_own(stand: Stand, client: Guest) -> Harm:
    """Change or delete what the installer made for it: its stream and its durable."""
    durable, stream = ("PW_JOBS", "notebooks-jobs"), "PW_NOTEBOOKS"
    before = await stand.js.consumer_info(*durable)
    name = ".".join(durable)
    config = {"name": durable[1], "durable_name": durable[1], "ack_policy": "explicit"}
    body = {"stream_name": durable[0], "config": {**config, "filter_subject": "pw.evt.jobs.none"}}
    for call in (f"CREATE.{name}", f"CREATE.{name}.pw.evt.jobs.none", f"DURABLE.CREATE.{name}"):
        await client.ask(f"{API}.CONSUMER.{call}", body)
    await client.ask(f"{API}.CONSUMER.PAUSE.{name}", {"pause_until": "2100-01-01T00:00:00Z"})
    await update(stand, client, stream, subjects=["pw.evt.notebooks.>", "pw.evil.>"], max_bytes=2**30)
    changed, after = (await stand.js.stream_info(stream)).config, await stand.js.consumer_info(*durable)
    harm = {
        "durable changed": after.config.filter_subject != before.config.filter_subject,
        "durable paused": bool(after.pause_remaining),
        "stream changed": (changed.subjects, changed.max_bytes) != (["pw.evt.notebooks.>"], 64 * 1024**2),
    }
    await client.ask(f"{API}.CONSUMER.DELETE.{name}")
    harm["durable deleted"] = durable[1] not in await stand.consumers(durable[0])
    await client.ask(f"{API}.STREAM.DELETE.{stream}")
    return {**harm, "stream deleted": await stand.stored(stream) < 0}


async def makes_consumers(stand: Stand, client: Guest) -> Harm:
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


async def answers_elsewhere(stand: Stand, client: Guest) -> Harm:
    """Name a subject for the answer on which the server's word is a command, a fact or a request.

    It never is a pull: an answer has no reply subject, and without one nothing is pulled. Deliveries have.
    """
    heard = await stand.hear(JOB, REBUILD)
    await stand.publish(DATASET, FACT)
    await stand.publish(AGENT, "pw.evt.cache.run.ended.v1.ns.uid")
    stored = await stand.stored("PW_JOBS")
    questions = [f"{API}.INFO", f"{API}.STREAM.INFO.PW_DATASETS", f"{API}.STREAM.NAMES"]
    questions += [f"{API}.DIRECT.GET.PW_DATASETS.{FACT}", f"{API}.CONSUMER.CREATE.PW_DATASETS.e"]
    harm = {}
    for call in ("PURGE", "DELETE"):
        for question in questions:
            for reply in (REBUILD, FORGED, f"{API}.STREAM.{call}.PW_CACHE"):
                await client.client.publish(question, b"", reply=reply)
        await client.client.flush()

        async def emptied(missing: int) -> bool:
            return await stand.stored("PW_CACHE") <= missing

        harm[call] = bool(await happened(partial(emptied, 0 if call == "PURGE" else -1)))
    forged = await stand.stored("PW_JOBS") != stored
    return {**harm, "commanded": bool(heard), "forged": forged}


async def speaks_for_others(stand: Stand, client: Guest) -> Harm:
    """Facts, commands and replays that only others may publish."""
    heard = await stand.hear(JOB, REBUILD)
    own = owned_by(client_role(client))
    facts = {event_subject(fact, "ns", "uid") for fact in EVENTS} | {STARTED, REPORTED}
    others = {fact for fact in facts if not any(matches(each, fact) for each in own)}
    replay = "pw.dlq.trigger-controller-datasets.again"
    for subject in (REBUILD, replay, "pw.evt.else.a.b.v1.ns.uid", *others):
        await client.client.publish(subject, b"{}")
    await client.client.flush()
    held: Mapping[str, str] = {subject: holder_of(subject) for subject in (replay, *others)}

    async def harmed() -> Harm:
        forged = {subject: await stand.holds(stream, subject) for subject, stream in held.items()}
        return {"commanded": bool(heard), **forged}

    return await happened(harmed)


def owned_by(role: str) -> tuple[str, ...]:
    """The facts that a role publishes: subjects."""
    declared = [
        subject for each in ROLES if each.name == role for s in each.publishes for subject in s.subjects
    ]
    return (*declared, *{EVALUATOR: [MEASURED], SERVICE: ["pw.evt.notebooks.>"]}.get(role, []))


def holder_of(subject: str) -> str:
    """The stream of a subject, be it of services of others."""
    return {STARTED: "PW_NOTEBOOKS", REPORTED: "PW_REPORTS"}.get(subject) or stream_of(subject).name


async def listens_to_others(stand: Stand, client: Guest) -> Harm:
    """Commands, work, dead letters, requests, and other roles' answers."""
    role = client_role(client)
    commanded = SERVING if role != SERVING else JOB
    told = {
        f"pw.cmd.{commanded}.rebuild.v1": "pw.cmd.>",
        "pw.work.cache.s.r.0.0.v1": "pw.work.>",
        "pw.dlq.trigger-controller-datasets": "pw.dlq.>",
        # Where the server has the answers to what other accounts ask.
        "_R_.asked.x": "_R_.>",
    }
    asked = {f"{API}.STREAM.INFO.PW_JOBS": "$JS.>", "_INBOX_operator.": "_INBOX_operator.>"}
    heard: dict[str, list[str]] = defaultdict(list)
    for pattern in (">", *told.values(), *asked.values()):

        async def note(msg: Any, pattern: str = pattern) -> None:
            heard[pattern].append(msg.subject)

        await client.client.subscribe(pattern, cb=note)
    await client.client.flush()
    for subject in told:
        await stand.operator.client.publish(subject, b"{}")
    await stand.js.stream_info("PW_JOBS")
    await stand.publish(DATASET, FACT)
    # What the server has for it comes before the answer to this.
    await client.client.flush()
    everything = {**told, **asked}

    async def overheard() -> Harm:
        found = {
            pattern: any(subject.startswith(begin) for subject in heard[pattern])
            for begin, pattern in everything.items()
        }
        return {**found, ">": any(subject.startswith(tuple(everything)) for subject in heard[">"])}

    return await happened(overheard)


async def exhausts_consumers(stand: Stand, client: Guest) -> Harm:
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
            ("pulls from another's durable", pulls_from_others),
            ("has answers sent to where it may not publish", answers_elsewhere),
            ("publishes what is another's", speaks_for_others),
            ("hears what is not for it", listens_to_others),
        )
        for role in OUTSIDERS
        # The durable is trigger-controller's own, and the forged fact is job-controller's own.
        if (run, role) not in ((forges_acknowledgements, TRIGGER), (answers_elsewhere, JOB))
    ),
    _named("uses up the consumers", SUBSCRIBER, exhausts_consumers),
    _named("changes its own stream or durable", SERVICE, changes_its_own),
)
"""Attacks of the same kinds."""

ATTACKS = (*TABLE, *NEAR)
KINDS = {attack.run: attack for attack in sorted(ATTACKS, key=lambda attack: attack.role == AGENT)}
"""One attack of each kind; an agent's where agents try it, because agents run on every node."""


async def attempt(attack: Attack, stand: Stand) -> Harm:
    """Whether it did harm. Raises AssertionError when the attacker has no connection: nothing is proved."""
    client = await stand.enter(attack.role)
    succeeded = await attack.run(stand, client)
    answer = await client.ask(f"{API}.INFO")
    assert "memory" in answer or "error" in answer, f"{attack.role} has no working connection: {answer}"
    return succeeded


BY_NAME = {attack.name: attack for attack in ATTACKS}
