"""What an agent tries on other tenants' data sets, where it shows a token: it has the rights of one set."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import nats.errors
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError
from tests.attacks.open_bus import EVERYTHING, authorize_everything
from tests.attacks.stand import API, EFFECT_WITHIN, FACT, VICTIM, Harm, happened

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.accounts import HOME, READER
from paddlewheel.bus.admin.permissions import AGENT, INSTALLER, WORK_PURGES
from paddlewheel.bus.admin.rights import Identity, SetReference, agent_inbox, rights
from paddlewheel.bus.admin.set_reads import read_api
from paddlewheel.bus.admin.set_writes import write_prefix
from paddlewheel.bus.callout.claims import Asking, Grant
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.errors import STORE_FULL
from paddlewheel.bus.nats.set_writer import SetWriter
from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.streams import (
    BUS_FULL,
    CACHE,
    MAX_MESSAGE,
    NODES,
    NODES_BUCKET,
    RUNS,
    RUNS_BUCKET,
    WORK,
    StreamSpec,
    live_subject,
)
from paddlewheel.contracts.subjects import work_filter, work_subject
from paddlewheel.contracts.wire import MESSAGE_ID
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.testkit.bus_auth import answering, bus_auth_access, letting_in
from paddlewheel.testkit.chart_bus import BUS_CA, PATIENCE, ChartBus, Guest, entering, installing, sweep
from paddlewheel.testkit.wait import eventually, patiently

SETS = {"mine": SetReference("team-a", "uid-a"), "theirs": SetReference("team-b", "uid-b")}
"""Data set of each token. Whose a token really is, the API server says in tests/integration/bus_auth."""
MINE, THEIRS = SETS.values()
OWN = write_prefix(MINE.uid)
IN_FLIGHT = 4
"""Writes at a time."""
SMALLEST = 500
"""Bytes of what is written last, when nothing larger is taken."""
BAD_REQUEST = 10003
"""JetStream's error code."""
FLOOD, FLOODING = 2000, 4
"""Writes that are asked for at any time, more than bus-auth keeps of a set, and over how many connections."""
AHEAD = FLOOD // 4
"""Of these, those that another set's write may wait for at most. Where sets have turns it is some dozens."""
MADE_UP = 100
"""Facts that nobody knows, several times as many as a stream holds if it keeps 1,024 of each."""
ACKNOWLEDGED = 1000
"""Of so many facts one."""
OBSERVER = "observer"
"""Whom the tests let into every account, to see what gets there."""
LEARNT = "learnt"
"""A run of which the attacker has seen a chunk, with its id."""


@dataclass
class Tenants:
    """A server with tokens, and two tenants on it.

    Args:
        is_open: it guards nothing, and agents read and write without bus-auth.
    """

    bus: ChartBus
    ends: AsyncExitStack
    is_open: bool = False

    @property
    def api(self) -> str:
        """Where the attacker asks for reads of its own."""
        return API if self.is_open else read_api(MINE.uid)

    async def enter(self, role: str, token: str, inbox: str) -> Guest:
        """A client that shows a token, until the attack is over."""
        folder = self.bus.folder / BUS_CA
        client = entering(self.bus, folder, prefix=inbox, user=role, password=token)
        return await self.ends.enter_async_context(client)

    async def agent(self, of: str) -> Guest:
        """Of one of `SETS`."""
        return await self.enter(AGENT, of, agent_inbox(SETS[of].uid))

    def agent_access(self, of: str) -> Access:
        """As the settings of an agent of one of `SETS` give it."""
        token = self.bus.folder / f"token-{of}"
        token.write_text(of)
        folder = str(self.bus.folder / BUS_CA)
        access = self.bus.access(AGENT, tls_dir=folder, token_file=str(token))
        return access if self.is_open else access.for_set(SETS[of].uid)

    async def operator(self) -> Guest:
        """Sees everything."""
        return await self.enter("operator", "", "_INBOX_operator")

    async def observer(self, account: str) -> Guest:
        """Hears everything in an account of the server."""
        return await self.enter(OBSERVER, account, "_INBOX_observer")

    async def jetstream(self) -> JetStreamContext:
        """An operator's."""
        return (await self.operator()).client.jetstream(timeout=PATIENCE)

    async def stored(self, subject: str) -> bool:
        """Whether some stream holds a message on the subject."""
        return await self.content(subject) is not None

    async def content(self, subject: str) -> bytes | None:
        """Of the last message on the subject in any stream."""
        js = await self.jetstream()
        for stream in await js.streams_info():
            with suppress(JetStreamError):
                return (await js.get_last_msg(stream.config.name or "", subject)).data or b""
        return None


Run = Callable[[Tenants, Guest], Awaitable[Harm]]


def storing(*subjects: str) -> Run:
    """Publish on subjects that are not the agent's, in the ways there are."""

    async def run(tenants: Tenants, mine: Guest) -> Harm:
        for subject in subjects:
            for owner in SETS.values():
                await mine.send(f"{write_prefix(owner.uid)}.{subject}", b"forged")
            for headers in (None, {"Nats-Rollup": "sub"}):
                with suppress(nats.errors.Error):
                    await mine.client.publish(subject, b"forged", headers=headers)
            # By a request whose answer goes there.
            with suppress(nats.errors.Error):
                await mine.client.publish("$JS.API.INFO", b"", reply=subject)
        await mine.client.flush()
        return {subject: await tenants.stored(subject) for subject in subjects}

    return run


async def oversized(tenants: Tenants, mine: Guest) -> Harm:
    """Store much more than a report about a node has."""
    own = f"$KV.{NODES_BUCKET}.{SETS['mine'].uid}.0"
    for subject in (own, f"{OWN}.{own}"):
        await mine.send(subject, b"x" * 500_000)
    return await tenants.stored(own)


def with_headers(*refused: Mapping[str, str]) -> Run:
    """Write a record or a chunk of one's own with headers by which it would be something else."""

    async def run(tenants: Tenants, mine: Guest) -> Harm:
        harm = {}
        for number, headers in enumerate(refused):
            subjects = (own_record(number), work_subject(MINE.uid, f"run-{number}", 0, 0))
            for subject in subjects:
                for body in (b"", b"forged"):
                    await mine.send(f"{OWN}.{subject}", body, headers)
                    with suppress(nats.errors.Error):
                        await mine.client.publish(subject, body, headers=dict(headers))
                await mine.client.flush()
            harm[str(headers)] = any([await tenants.stored(subject) for subject in subjects])
        return harm

    return run


def filling(stream: StreamSpec, key: Callable[[int], str], size: int) -> Run:
    """Store so much of one's own that another set's agent finds the stream full."""

    async def run(tenants: Tenants, mine: Guest) -> Harm:
        prefix = stream.subjects[0].removesuffix(">")
        numbers, left = count(), size
        first = await mine.send(f"{prefix}{key(next(numbers))}", bytes(size))
        # As agents with certificates, if that is possible.
        asked = prefix if "seq" in first else f"{OWN}.{prefix}"
        while left > SMALLEST:
            subjects = [f"{asked}{key(next(numbers))}" for _ in range(IN_FLIGHT)]
            if await is_full(mine, subjects, left):
                left //= 16
        return await is_kept_out(tenants, f"{prefix}{key(0)}".replace(MINE.uid, THEIRS.uid))

    return run


async def is_full(mine: Guest, subjects: Sequence[str], size: int) -> bool:
    """Whether no more is taken, or no further key. Raises AssertionError for any other refusal."""
    found = await asyncio.gather(
        *(mine.client.request(subject, bytes(size), PATIENCE) for subject in subjects)
    )
    codes = {json.loads(each.data).get("error", {}).get("err_code") for each in found}
    assert codes <= {None, STORE_FULL, BAD_REQUEST}, [each.data for each in found]
    return codes != {None}


async def is_kept_out(tenants: Tenants, theirs: str) -> bool:
    """Whether another set's agent finds no room for a message."""
    bus = NatsBus(tenants.agent_access("theirs"))
    try:
        await bus.publish_raw(RawMessage(theirs, bytes(8 * SMALLEST)))
    except Retry as error:
        if error.reason != BUS_FULL:
            raise
        return True
    finally:
        await bus.close()
    return False


async def drowning(tenants: Tenants, mine: Guest) -> Harm:
    """Always ask for so many writes that another set's agent cannot write, or only after them."""
    js = await tenants.jetstream()
    async with flooding([mine, *[await tenants.agent("mine") for _ in range(FLOODING - 1)]]):
        bus = NatsBus(tenants.agent_access("theirs"))
        try:
            return any([await is_held_up(js, bus, f"run-{number}") for number in range(3)])
        finally:
            await bus.close()


async def is_held_up(js: JetStreamContext, bus: NatsBus, run: str) -> bool:
    """Whether a write of the other set, tried again as agents do, waits for very many of the attacker's.

    How long it takes tells of the machine.
    """
    before = (await js.stream_info(RUNS.name)).state.last_seq
    write = partial(bus.key_value(RUNS_BUCKET).put, f"{THEIRS.uid}.{run}.state", b"theirs")
    return await patiently(write, within=60) - before > AHEAD


@asynccontextmanager
async def flooding(attackers: Sequence[Guest]) -> AsyncIterator[None]:
    """Each asks for the next write as soon as one is answered, while the block runs."""
    numbers, is_over = count(), asyncio.Event()

    async def write(attacker: Guest, inbox: str, _: object = None) -> None:
        if not is_over.is_set():
            subject = f"{OWN}.$KV.{RUNS_BUCKET}.{MINE.uid}.run.part-{next(numbers) % 1000}"
            await attacker.client.publish(subject, bytes(2048), reply=inbox)

    for attacker in attackers:
        inbox = attacker.client.new_inbox()
        await attacker.client.subscribe(inbox, cb=partial(write, attacker, inbox))
        for _ in range(FLOOD // len(attackers)):
            await write(attacker, inbox)
    try:
        yield
    finally:
        is_over.set()


async def commanding(tenants: Tenants, _: Guest) -> Harm:
    """As bus-auth, should it be led to: write what dataset-controller alone writes."""
    connection = Connection(bus_auth_access(tenants.bus), "misled")
    try:
        client = await connection.client()
        records = {name: f"$KV.{RUNS_BUCKET}.{THEIRS.uid}.run.{name}" for name in ("spec", "cancel", "state")}
        for subject in records.values():
            await client.publish(subject, b"forged")
        await client.flush()
    finally:
        await connection.close()
    assert await tenants.stored(records["state"]), "bus-auth cannot write what it may"
    return {name: await tenants.stored(records[name]) for name in ("spec", "cancel")}


async def pushing_out(tenants: Tenants, mine: Guest) -> Harm:
    """Tell so many facts that the stream drops another set's."""
    theirs = f"pw.evt.cache.run.ended.v1.{THEIRS.namespace}.{THEIRS.uid}"
    own = f"{MINE.namespace}.{MINE.uid}"
    await (await tenants.jetstream()).publish(theirs, b"{}")
    for size in (MAX_MESSAGE - 1024, 4 * 1024 - 100):
        # On one subject, and on as many as one likes.
        for number in range(CACHE.max_bytes // size + 1):
            for fact in (f"x{number % MADE_UP}", "ended"):
                await mine.client.publish(f"pw.evt.cache.run.{fact}.v1.{own}", bytes(size))
            if number % ACKNOWLEDGED == 0:
                # The server drops what it has not stored when there is too much of it.
                await mine.client.request(f"pw.evt.cache.run.ended.v1.{own}", bytes(SMALLEST), PATIENCE)
    assert await tenants.stored(f"pw.evt.cache.run.ended.v1.{own}"), "the attacker cannot tell its own facts"
    return not await tenants.stored(theirs)


async def listening(tenants: Tenants, mine: Guest) -> Harm:
    """Hear what another set's agent is answered, asks for, writes or tells, and what it is told."""
    patterns = (
        f"{agent_inbox(THEIRS.uid)}.>",
        "_INBOX_cache-runtime.>",
        "$KV.>",
        "pw.evt.>",
        "pw.work.>",
        "pw.live.>",
        f"pw.live.*.{THEIRS.uid}.>",
        "$JS.>",
        ">",
    )
    heard: dict[str, list[str]] = {pattern: [] for pattern in patterns}
    for pattern in patterns:

        async def note(msg: Any, pattern: str = pattern) -> None:
            heard[pattern].append(msg.subject)

        await mine.client.subscribe(pattern, cb=note)
    await mine.client.flush()
    await being_heard(tenants)
    # What the server has for it comes before the answer to this.
    await mine.client.flush()

    async def overheard() -> Harm:
        return {pattern: bool(subjects) for pattern, subjects in heard.items()}

    return await happened(overheard)


async def being_heard(tenants: Tenants) -> None:
    """Another set's agent does all that agents do, over its client and over a bare connection."""
    fact = f"pw.evt.cache.run.ended.v1.{THEIRS.namespace}.{THEIRS.uid}"
    theirs = await tenants.agent("theirs")
    assert await theirs.ask("$JS.API.INFO"), "the other agent has no working connection"
    await theirs.client.request(fact, b"{}", PATIENCE)
    bus = NatsBus(tenants.agent_access("theirs"))
    chunk = work_subject(THEIRS.uid, "run", 0, 0)
    try:
        await bus.work.put(chunk, b"theirs")
        assert await bus.work.get(chunk) == b"theirs"
        records = bus.key_value(RUNS_BUCKET)
        await records.create(f"{THEIRS.uid}.run.state", b"theirs")
        assert (await records.get(f"{THEIRS.uid}.run.state")).value == b"theirs"
    finally:
        await bus.close()


async def removing(tenants: Tenants, mine: Guest) -> bool:
    """Remove another set's work: oneself, and by asking the installer, who removes one's own."""
    chunk, own = (work_subject(each.uid, "run", 0, 0) for each in (THEIRS, SETS["mine"]))
    operator = (await tenants.operator()).client
    for subject in (chunk, own):
        await operator.jetstream(timeout=PATIENCE).publish(subject, b"chunk")
    theirs, ours = (WORK_PURGES.replace("*", each.uid) for each in (THEIRS, SETS["mine"]))
    for body in ({"filter": chunk}, {}):
        await mine.ask("$JS.API.STREAM.PURGE.PW_WORK", body)
    for asked in (theirs, ours):
        for subject in (chunk, work_filter(THEIRS.uid), "pw.work.cache.*.*.*.*.v1", "pw.work.>"):
            await mine.ask(asked, {"subject": subject})
    harmed = not await tenants.stored(chunk)
    await mine.ask(ours, {"subject": own})
    assert not await tenants.stored(own), "the installer removes nothing at all"
    return harmed


async def taking(tenants: Tenants, mine: Guest) -> bool:
    """Read another set's chunk, in every way in which the stream gives messages, or acknowledge it."""
    work = f"$JS.API.DIRECT.GET.{WORK.name}"
    theirs, own = (work_subject(each.uid, "run", 0, 0) for each in (THEIRS, SETS["mine"]))
    operator = (await tenants.operator()).client
    for subject in (theirs, own):
        await operator.jetstream(timeout=PATIENCE).publish(subject, f'{{"of": "{subject}"}}'.encode())
    assert await mine.ask(f"{work}.{own}") == {"of": own}, "the attacker cannot read its own work"
    consumer = {"durable_name": "x", "filter_subject": theirs, "ack_policy": "explicit"}
    answers = [
        await mine.ask(f"{work}.{theirs}"),
        await mine.ask(f"{work}.pw.work.>"),
        await mine.ask(f"{work}.{own}", {"last_by_subj": theirs}),
        await mine.ask(work, {"last_by_subj": theirs}),
        await mine.ask(work, {"seq": 1}),
        await mine.ask(f"$JS.API.STREAM.MSG.GET.{WORK.name}", {"last_by_subj": theirs}),
        await mine.ask(
            f"$JS.API.CONSUMER.CREATE.{WORK.name}.x", {"stream_name": WORK.name, "config": consumer}
        ),
        await mine.ask(f"$JS.API.CONSUMER.MSG.NEXT.{WORK.name}.x", {"batch": 1}),
    ]
    for subject in (f"$JS.ACK.{WORK.name}.x.1.1.1.1.0", f"$JS.API.STREAM.MSG.DELETE.{WORK.name}"):
        await mine.ask(subject, {"seq": 1})
    return any(theirs in str(answer) for answer in answers) or not await tenants.stored(theirs)


async def reading(tenants: Tenants, mine: Guest) -> bool:
    """Read another set's records and facts, in every way in which their streams give messages."""
    owned = {whose: records_of(each) for whose, each in SETS.items()}
    operator = (await tenants.operator()).client
    for subject in (each for records in owned.values() for each in records.values()):
        await operator.jetstream(timeout=PATIENCE).publish(subject, f'{{"of": "{subject}"}}'.encode())
    answers = []
    for stream, theirs in owned["theirs"].items():
        for api in ("$JS.API", *(read_api(each.uid) for each in SETS.values())):
            answers += await asked(mine, api, stream, theirs, owned["mine"][stream])
    harmed = any(THEIRS.uid in str(answer) or THEIRS.uid in decoded(answer) for answer in answers)
    own = {
        stream: decoded(await asked_for(mine, stream, {"last_by_subj": subject}))
        for stream, subject in owned["mine"].items()
    }
    assert harmed or own == {s: f'{{"of": "{subject}"}}' for s, subject in owned["mine"].items()}
    return harmed


def records_of(owner: SetReference) -> dict[str, str]:
    """A message of the set's in each stream: its subject."""
    return {
        RUNS.name: f"$KV.{RUNS_BUCKET}.{owner.uid}.run.spec",
        NODES.name: f"$KV.{NODES_BUCKET}.{owner.uid}.0",
        CACHE.name: f"pw.evt.cache.run.ended.v1.{owner.namespace}.{owner.uid}",
    }


async def asked(mine: Guest, api: str, stream: str, theirs: str, own: str) -> list[dict[str, Any]]:
    """What is answered to requests for a message of another's."""
    single, batch = f"{api}.STREAM.MSG.GET.{stream}", f"{api}.DIRECT.GET.{stream}"
    everybodys = theirs.replace(THEIRS.uid, "*")
    bodies: list[dict[str, object]] = [
        {"last_by_subj": own, "LAST_BY_SUBJ": theirs},
        {"next_by_subj": own, "seq": 1, "Next_By_Subj": theirs},
    ]
    for each in (theirs, everybodys, ">"):
        bodies += [{"last_by_subj": each}, {"next_by_subj": each, "seq": 1}]
    for sequence in range(1, 7):
        bodies += [{"seq": sequence}, {"seq": sequence, "last_by_subj": own}]
    batches: list[dict[str, object]] = [
        *({"batch": 9, "next_by_subj": each, "seq": 1} for each in (theirs, everybodys, ">")),
        {"multi_last": [theirs]},
        {"multi_last": [own, theirs], "batch": 9},
        {"batch": 9, "seq": 1},
    ]
    return [
        *[await mine.ask(single, body) for body in bodies],
        *[await mine.ask(batch, body) for body in (*bodies, *batches)],
        await mine.ask(f"{batch}.{theirs}"),
    ]


async def asked_for(mine: Guest, stream: str, body: object) -> dict[str, Any]:
    """The answer of bus-auth."""
    return await mine.ask(f"{read_api(SETS['mine'].uid)}.STREAM.MSG.GET.{stream}", body)


def decoded(answer: dict[str, Any]) -> str:
    """The message that the leader answers with."""
    return b64decode(answer.get("message", {}).get("data", "")).decode()


async def listing(tenants: Tenants, mine: Guest) -> bool:
    """Find the keys of another set's records and work, or how many there are."""
    operator = (await tenants.operator()).client
    subjects = {**records_of(THEIRS), WORK.name: work_subject(THEIRS.uid, "run", 0, 0)}
    for subject in subjects.values():
        await operator.jetstream(timeout=PATIENCE).publish(subject, b"{}")
    answers = [
        await mine.ask(f"{api}.STREAM.INFO.{stream}", body)
        for stream in subjects
        for api in ("$JS.API", *(read_api(each.uid) for each in SETS.values()))
        for body in (None, {}, {"subjects_filter": ">"}, {"subjects_filter": subjects[stream]})
    ]
    told = [answer.get("state", {}) for answer in answers]
    assert any(told), "the attacker has no working connection"
    return any(set(state) - {"first_seq", "last_seq"} for state in told) or THEIRS.uid in str(answers)


@dataclass(frozen=True)
class Reply:
    """A subject that an agent names for the answer to a read of its own.

    Args:
        body: of the record that it reads, which is the answer's.
        shows: whether the answer came there.
    """

    subject: str
    body: bytes
    shows: Callable[[], Awaitable[bool]]


async def answered_elsewhere(tenants: Tenants, mine: Guest) -> Harm:
    """Have the answers to reads of one's own sent where one may not publish."""
    replies = await replies_of_others(tenants)
    operator = await tenants.jetstream()
    for number, reply in enumerate(replies.values()):
        await operator.publish(own_record(number), reply.body)
    before = await contents(operator)
    for number, reply in enumerate(replies.values()):
        await read_to(mine, tenants.api, own_record(number), reply.subject)
    # Answered after all of the above.
    assert await mine.ask(f"{tenants.api}.STREAM.INFO.{RUNS.name}")

    async def arrived() -> dict[str, bool]:
        return {name: await reply.shows() for name, reply in replies.items()}

    await happened(arrived)
    return {**await arrived(), "anything at all": await contents(operator) != before}


def own_record(number: int) -> str:
    """Of the attacker's set."""
    return f"$KV.{RUNS_BUCKET}.{MINE.uid}.run-{number}.state"


async def read_to(mine: Guest, api: str, record: str, reply: str) -> None:
    """Read a record in every way, for somebody else."""
    for call, body in (
        ("DIRECT.GET", {"batch": 9, "next_by_subj": record, "seq": 1}),
        ("DIRECT.GET", {"last_by_subj": record}),
        ("STREAM.MSG.GET", {"last_by_subj": record}),
        ("STREAM.MSG.GET", {"last_by_subj": f"{record}.none"}),
        ("STREAM.MSG.GET", {"seq": 1}),
        ("DIRECT.GET", {}),
    ):
        with suppress(nats.errors.Error):
            data = json.dumps(body).encode()
            await mine.client.publish(f"{api}.{call}.{RUNS.name}", data, reply=reply)
    await mine.client.flush()


async def replies_of_others(tenants: Tenants) -> dict[str, Reply]:
    """What an answer would do there, with everything in place that it would do it to."""
    operator = await tenants.jetstream()
    written, removed, purged = (work_subject(THEIRS.uid, "run", 0, chunk) for chunk in range(3))
    for chunk in (written, removed, purged):
        await operator.publish(chunk, b"chunk")
    held = await holding(operator)
    record = f"$KV.{RUNS_BUCKET}.{THEIRS.uid}.run.state"
    fact = f"pw.evt.cache.run.ended.v1.{THEIRS.namespace}.{THEIRS.uid}"
    asked, answer = f"{read_api(THEIRS.uid)}.STREAM.INFO.{RUNS.name}", "_R_.x.y"
    heard = await overheard_at(tenants, asked, answer)

    def is_stored(subject: str) -> Callable[[], Awaitable[bool]]:
        return partial(tenants.stored, subject)

    def is_gone(subject: str) -> Callable[[], Awaitable[bool]]:
        return partial(differs, tenants, subject, b"chunk")

    return {
        "record": Reply(record, b"forged", is_stored(record)),
        "chunk": Reply(written, b"forged", is_gone(written)),
        "fact": Reply(fact, b"forged", is_stored(fact)),
        "acknowledgement": Reply(held, b"+TERM", partial(is_settled, operator)),
        "read": Reply(asked, b"", partial(is_heard, heard, asked)),
        "answer": Reply(answer, b"forged", partial(is_heard, heard, answer)),
        "removal": Reply(
            WORK_PURGES.replace("*", THEIRS.uid),
            json.dumps({"subject": removed}).encode(),
            is_gone(removed),
        ),
        "purge": Reply(
            f"{API}.STREAM.PURGE.{WORK.name}", json.dumps({"filter": purged}).encode(), is_gone(purged)
        ),
        "deletion": Reply(f"{API}.STREAM.DELETE.PW_JOBS", b"", partial(is_deleted, operator, "PW_JOBS")),
    }


async def holding(operator: JetStreamContext) -> str:
    """Where a delivery is acknowledged that trigger-controller holds."""
    await operator.publish(FACT, b"{}")
    taken = await operator.pull_subscribe_bind(VICTIM[1], VICTIM[0])
    [message] = await taken.fetch(1)
    return str(message.reply)


async def overheard_at(tenants: Tenants, *subjects: str) -> list[str]:
    """What arrives on these subjects from now on, in the accounts where they mean something."""
    heard: list[str] = []

    async def note(msg: Any) -> None:
        heard.append(msg.subject)

    for account in {HOME} if tenants.is_open else {HOME, READER}:
        observer = await tenants.observer(account)
        for subject in subjects:
            await observer.client.subscribe(subject, cb=note)
        await observer.client.flush()
    return heard


async def is_heard(heard: Sequence[str], subject: str) -> bool:
    return subject in heard


async def differs(tenants: Tenants, subject: str, before: bytes) -> bool:
    return await tenants.content(subject) != before


async def is_settled(operator: JetStreamContext) -> bool:
    return not (await operator.consumer_info(*VICTIM)).num_ack_pending


async def is_deleted(operator: JetStreamContext, stream: str) -> bool:
    return stream not in await contents(operator)


async def deafening(tenants: Tenants, mine: Guest) -> bool:
    """Have the answers to one's own requests delivered to another set's agent as signals that something was
    stored: the server checks no reply subjects, and agents share an account."""
    own, work = records_of(SETS["mine"])[RUNS.name], work_subject(SETS["mine"].uid, "run", 0, 0)
    for subject in (own, *5 * [work]):
        await mine.client.publish(subject, b"{}")
    signal = live_subject(RUNS, records_of(THEIRS)[RUNS.name])
    api = read_api(SETS["mine"].uid)
    batch = json.dumps({"batch": 1, "next_by_subj": own, "seq": 1}).encode()
    questions = {
        f"{api}.DIRECT.GET.{RUNS.name}": batch,
        f"{api}.STREAM.INFO.{RUNS.name}": b"",
        f"$JS.API.DIRECT.GET.{WORK.name}.{work}": b"",
        "$JS.API.INFO": b"",
    }

    async def forge() -> None:
        while True:
            for subject, body in questions.items():
                await mine.client.publish(subject, body, reply=signal)
            await asyncio.sleep(0.005)

    specs = [f"{THEIRS.uid}.{run}.spec" for run in ("first", "second")]
    operator = (await tenants.operator()).client.jetstream(timeout=PATIENCE)
    async with following(tenants.agent_access("theirs"), THEIRS.uid) as heard:
        await eventually(lambda: None in heard, what="the other agent follows its records")
        forging = asyncio.create_task(forge())
        try:
            for spec in specs:
                await asyncio.sleep(EFFECT_WITHIN)
                await operator.publish(f"$KV.{RUNS_BUCKET}.{spec}", b"{}")
                await eventually(partial(heard.__contains__, spec))
        except AssertionError:
            return True
        finally:
            await end(forging)
        # What was listed anew was heard again.
        return heard != [None, *specs]


@asynccontextmanager
async def following(access: Access, uid: str) -> AsyncIterator[list[str | None]]:
    """Keys of the set's runs as an agent hears of them; None when all that were there are listed."""
    bus, heard = NatsBus(access), list[str | None]()

    async def follow() -> None:
        async with aclosing(bus.key_value(RUNS_BUCKET).watch(f"{uid}.*.*")) as entries:
            async for entry in entries:
                heard.append(entry.key if entry else None)

    task = asyncio.create_task(follow())
    try:
        yield heard
    finally:
        await end(task)
        await bus.close()


async def contents(operator: JetStreamContext) -> dict[str, tuple[int, int]]:
    """Of every stream: its last sequence, and how many messages it holds."""
    found = await operator.streams_info()
    return {str(info.config.name): (info.state.last_seq, info.state.messages) for info in found}


Put = Callable[[NatsBus, str, bytes], Awaitable[None]]


async def put(bus: NatsBus, chunk: str, data: bytes) -> None:
    """As agents publish work."""
    await bus.work.put(chunk, data)


def swallowing(put: Put) -> Run:
    """Use the id that another set's chunk will have: a stream stores an id once, on whatever subject.

    Args:
        put: how agents publish work.
    """

    async def run(tenants: Tenants, mine: Guest) -> Harm:
        chunk, own = (work_subject(each.uid, "run", 0, 0) for each in (THEIRS, MINE))
        bus = NatsBus(tenants.agent_access("theirs"))
        try:
            await put(bus, work_subject(THEIRS.uid, LEARNT, 0, 0), b"theirs")
            for taken in await ids_of_work(tenants):
                for subject in (own, f"{OWN}.{own}"):
                    await mine.send(subject, b"mine", {MESSAGE_ID: taken})
            for subject in (own, f"{OWN}.{own}"):
                await mine.send(subject, b"mine")
            assert await tenants.stored(own), "the attacker has no working connection"
            await put(bus, chunk, b"theirs")
        finally:
            await bus.close()
        return not await tenants.stored(chunk)

    return run


async def ids_of_work(tenants: Tenants) -> set[str]:
    """Which the next chunk may have, by the one before; and those that chunks once had."""
    last = await (await tenants.jetstream()).get_last_msg(WORK.name, work_filter(THEIRS.uid))
    seen = (last.headers or {}).get(MESSAGE_ID, "")
    return {"run/0/0", work_subject(THEIRS.uid, "run", 0, 0), seen.replace(LEARNT, "run")} - {""}


HEADERS: tuple[dict[str, str], ...] = (
    {"Nats-TTL": "never"},
    {"Nats-TTL": "10m"},
    {"Nats-Rollup": "all"},
    {"Nats-Rollup": "sub"},
    {"Nats-Rollup": "sub", "Nats-Expected-Last-Subject-Sequence": "0"},
    {"Nats-Msg-Id": "run/0/0"},
    {"Nats-Expected-Stream": RUNS.name},
    {"Nats-Expected-Last-Sequence": "0"},
    {"Nats-Expected-Last-Msg-Id": "x"},
    {"Nats-Expected-Last-Subject-Sequence": "0", "Nats-Expected-Last-Subject-Sequence-Subject": "$KV.>"},
    {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": records_of(THEIRS)[RUNS.name]},
    {"Nats-Batch-Id": "x", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"},
    {"Nats-Incr": "+1"},
    {"Nats-Marker-Reason": "MaxAge"},
    {"KV-Operation": "PURGE"},
    {"KV-Operation": "DEL"},
    {"Nats-TTL": "1s", "X": "x" * 800},
)
"""None of which is one that a record or a chunk has."""

ATTACKS: dict[str, Run] = {
    "agent ends a run of another tenant's set": storing(f"$KV.{RUNS_BUCKET}.{THEIRS.uid}.run.state"),
    "agent reports progress of another tenant's set": storing(f"$KV.{RUNS_BUCKET}.{THEIRS.uid}.run.part-0"),
    "agent starts a run of its own set": storing(f"$KV.{RUNS_BUCKET}.{SETS['mine'].uid}.run.spec"),
    "agent reports a node of another tenant's set": storing(f"$KV.{NODES_BUCKET}.{THEIRS.uid}.0"),
    "agent stores records of its own set that nobody has": storing(
        f"$KV.{RUNS_BUCKET}.{SETS['mine'].uid}.run.part-0.more",
        f"$KV.{RUNS_BUCKET}.{SETS['mine'].uid}.more",
        f"$KV.{NODES_BUCKET}.{SETS['mine'].uid}.0.more",
    ),
    "agent fills the bucket of nodes with one record": oversized,
    "agent fills the bucket of runs": filling(RUNS, lambda n: f"{MINE.uid}.run-{n}.state", 600 * 1024),
    "agent fills the bucket of nodes": filling(NODES, lambda n: f"{MINE.uid}.{n}", 16 * 1024 - 200),
    "agent fills the stream of work": filling(WORK, lambda n: f"cache.{MINE.uid}.run.0.{n}.v1", 950 * 1024),
    "agent keeps another tenant's set from writing by a flood of writes": drowning,
    "agent pushes out another tenant's fact": pushing_out,
    "bus-auth is led to start or cancel a run": commanding,
    "agent cancels or changes a run of its own set": storing(
        *(
            f"$KV.{RUNS_BUCKET}.{MINE.uid}.run.{record}"
            for record in ("spec", "cancel", "part-00", "part-1000")
        ),
        f"$KV.{NODES_BUCKET}.{MINE.uid}.00",
        f"$KV.pw_triggers.{MINE.uid}.event",
        f"pw.work.cache.{MINE.uid}.run.0.0.v2",
        f"pw.work.cache.{MINE.uid}.run.0.x.v1",
        f"pw.work.{MINE.uid}",
    ),
    "agent stores what lasts, repeats, takes ids or removes by a header": with_headers(*HEADERS),
    "agent puts a chunk into a removal of another tenant's set": storing(
        work_subject(THEIRS.uid, "run", 0, 0)
    ),
    "agent tells the end of a run of another tenant's set": storing(
        f"pw.evt.cache.run.ended.v1.{THEIRS.namespace}.{THEIRS.uid}"
    ),
    "agent tells the progress of a run of another tenant's set": storing(
        f"pw.evt.cacheprogress.run.progressed.v1.{THEIRS.namespace}.{THEIRS.uid}"
    ),
    "agent tells facts of its own uid in another namespace": storing(
        f"pw.evt.cache.run.ended.v1.{THEIRS.namespace}.{SETS['mine'].uid}"
    ),
    "agent hears what another tenant's agent is answered": listening,
    "agent has a chunk of another tenant's set swallowed by its id": swallowing(put),
    "agent removes the work of another tenant's set": removing,
    "agent reads or acknowledges the work of another tenant's set": taking,
    "agent reads the records or facts of another tenant's set": reading,
    "agent counts or lists the records or work of other tenants' sets": listing,
    "agent keeps another tenant's agent from learning of its runs by forged signals": deafening,
    "agent has what it reads sent where it may not publish": answered_elsewhere,
}


async def authorize(asking: Asking) -> Grant:
    """Agents by their token, observers where they like, everybody else as what he asks for."""
    end = int(time.time()) + 600
    if asking.role == OBSERVER:
        return Grant(OBSERVER, asking.token, EVERYTHING, end)
    own = SETS[asking.token] if asking.role == AGENT else None
    return Grant(asking.role, *rights(Identity(asking.role, set=own)), end)


@asynccontextmanager
async def tenants(bus: ChartBus, writer: type[SetWriter] = SetWriter) -> AsyncIterator[Tenants]:
    """Every stream without messages, bus-auth with its own writer or another, and bus-installer."""
    async with answering(bus, authorize, writer=writer), AsyncExitStack() as ends:
        made = Tenants(bus, ends)
        await sweep((await made.operator()).client, bus.teams)
        await ends.enter_async_context(installing(bus, **as_holder(bus.folder)))
        yield made


@asynccontextmanager
async def unguarded(bus: ChartBus) -> AsyncIterator[Tenants]:
    """The same on a server that guards nothing."""
    async with letting_in(bus, authorize_everything), AsyncExitStack() as ends:
        made = Tenants(bus, ends, is_open=True)
        await sweep((await made.operator()).client)
        await ends.enter_async_context(installing(bus, teams=(), **as_holder(bus.folder)))
        yield made


def as_holder(folder: Path) -> dict[str, str]:
    """How bus-installer enters: what its token says, `authorize` does not ask.

    Args:
        folder: of the server.
    """
    (folder / "token").write_text(INSTALLER)
    return {"tls_dir": str(folder / BUS_CA), "token_file": str(folder / "token")}


async def attempt(run: Run, made: Tenants) -> Harm:
    """What harm it did. Raises AssertionError when the attacker cannot even do its own work."""
    mine = await made.agent("mine")
    harm = await run(made, mine)
    own = f"$KV.{NODES_BUCKET}.{MINE.uid}.0"

    async def writes() -> bool:
        await mine.send(own if made.is_open else f"{OWN}.{own}", b"own")
        return await made.stored(own)

    # After its own flood bus-auth is busy for it.
    await eventually(writes, what="the attacker has a working connection")
    return harm
