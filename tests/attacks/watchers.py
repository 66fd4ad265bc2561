"""What subscribers and guests with tokens try on teams and on each other, where RBAC says who belongs where.

The server is the chart's, bus-auth's decisions are real; a table stands for the API server.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import nats.errors
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError
from tests.attacks.open_bus import authorize_everything
from tests.attacks.stand import Harm, happened

from bus_auth.authorize import Authorizer, Policy
from bus_auth.domain.model import Account, ResourceAttributes, TokenClaims
from bus_auth.domain.names import FACTS, ROLES, TEAMS, USE, WATCH
from paddlewheel.bus.admin.permissions import INSTALLER, OPERATOR
from paddlewheel.bus.admin.services import declared_with
from paddlewheel.bus.callout.claims import Grant, Login
from paddlewheel.contracts.bus_tokens import AUDIENCE
from paddlewheel.core.clock import SystemClock
from paddlewheel.testkit.bus_auth import letting_in
from paddlewheel.testkit.chart_bus import (
    BUS_ANSWER_TIMEOUT_SECONDS,
    BUS_CA,
    ChartBus,
    Guest,
    entering,
    install,
    sweep,
)
from paddlewheel.testkit.wait import eventually

HOME, TEAM, SHARED, FOREIGN = "paddle-system", "vision", "team-a", "team-b"
CONNECTIONS = 3
"""Of each kind of client."""
CONFIGURED = (
    "nats.subscribers[0].name=subscriber",
    f"nats.subscribers[1].name={TEAM}",
    f"nats.subscribers[1].namespaces={{{SHARED}}}",
    f"nats.subscriberLimits.connections={CONNECTIONS}",
    f"nats.roleLimits.evaluators={CONNECTIONS}",
    "nats.roleLimits.watchers=100",
    "nats.jetstream.maxFileStore=4Gi",
    "nats.services[0].name=notebooks",
    "nats.services[0].publishes[0].context=notebooks",
    "nats.services[0].follows={jobs}",
)
FACT = f"pw.evt.jobs.job.succeeded.v1.{SHARED}.{{}}"
HEARD = f"pw.evt.*.*.*.*.{SHARED}.*"
SUBSCRIBER, EVALUATOR, PUBLISHER = "subscriber", "evaluator", "job-controller"
SERVICE = "notebooks"

_API = "$JS.API"
_WATCHES = ResourceAttributes(WATCH, FACTS, SHARED)
_EVERYWHERE = ResourceAttributes(WATCH, FACTS, "")
ALLOWED: dict[str, frozenset[ResourceAttributes]] = {
    "member": frozenset({_WATCHES, ResourceAttributes(USE, TEAMS, HOME, TEAM)}),
    "watcher": frozenset({_WATCHES, _EVERYWHERE}),
    "victim": frozenset({_WATCHES}),
    "rival": frozenset({_EVERYWHERE, ResourceAttributes(USE, TEAMS, HOME, "subscriber")}),
    **{
        role: frozenset({ResourceAttributes(USE, ROLES, HOME, role)})
        for role in (EVALUATOR, PUBLISHER, INSTALLER, OPERATOR, SERVICE)
    },
}
"""What RBAC allows the service account of each name, all of them in the namespace that they share."""


class Table:
    """The API server's word: a token is the account's whose name it carries."""

    async def review(self, token: str, claims: TokenClaims) -> Account:
        name = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["sub"]
        return Account(f"system:serviceaccount:{SHARED}:{name}", claims.expires)

    async def allows(self, account: Account, attributes: ResourceAttributes) -> bool:
        return attributes in ALLOWED[account.user.rpartition(":")[2]]


def make_token(name: str) -> str:
    """Of the account of that name."""
    body = json.dumps({"aud": [AUDIENCE], "exp": int(time.time()) + 3600, "sub": name}).encode()
    return f"head.{base64.urlsafe_b64encode(body).decode().rstrip('=')}.signature"


@dataclass
class Stand:
    """A server with two teams, and everything installed."""

    bus: ChartBus
    ends: AsyncExitStack = field(repr=False)

    async def enter(self, account: str, user: str) -> Guest:
        """A client that shows the account's token, until the attack is over."""
        prefix = f"_INBOX_{user}" if account in (EVALUATOR, PUBLISHER) else f"_INBOX.{account}"
        folder = self.bus.folder / BUS_CA
        client = entering(self.bus, folder, prefix=prefix, user=user, password=make_token(account))
        return await self.ends.enter_async_context(client)

    async def tries(self, account: str, user: str) -> Guest | None:
        """None when it is not let in."""
        with suppress(nats.errors.Error):
            return await self.enter(account, user)
        return None

    async def publish(self, *facts: str) -> None:
        """Of the shared namespace, as job-controller."""
        await self.publish_on(*(FACT.format(name) for name in facts))

    async def publish_on(self, *subjects: str) -> None:
        """As job-controller."""
        publisher = (await self.enter(PUBLISHER, PUBLISHER)).client.jetstream(
            timeout=BUS_ANSWER_TIMEOUT_SECONDS
        )
        for subject in subjects:
            await publisher.publish(subject, b"{}")


Run = Callable[[Stand], Awaitable[Harm]]
Client = tuple[str, str]
"""Account and user."""
SUBSCRIPTIONS = 600
MANY = 40
"""Facts, so that two that share them both get some."""


async def takes_deliveries(stand: Stand) -> bool:
    """Pull from a team's durable, and delete it, under every name that may lead into its account."""
    member = (await stand.enter("member", TEAM)).client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
    await member.pull_subscribe(HEARD, durable="work", stream="PW_JOBS")
    await stand.publish("one")
    await _has_copies(member)
    for user in (TEAM, f"{TEAM}.{SHARED}", SUBSCRIBER, f"{SUBSCRIBER}.{SHARED}"):
        if attacker := await stand.tries("watcher", user):
            js = attacker.client.jetstream(timeout=1)
            with suppress(nats.errors.Error, JetStreamError):
                await (await js.pull_subscribe_bind("work", "PW_JOBS")).fetch(1, 1)
            with suppress(nats.errors.Error, JetStreamError):
                await js.delete_consumer("PW_JOBS", "work")
    try:
        return int((await member.consumer_info("PW_JOBS", "work")).delivered.consumer_seq) > 0
    except JetStreamError:
        return True


def takes_live_facts(victim: Client, attacker: Client) -> Run:
    """Join the queue group in which another's replicas share what they hear."""

    async def run(stand: Stand) -> bool:
        heard: list[str] = []

        async def note(msg: Any) -> None:
            heard.append(msg.subject)

        async def swallow(_: Any) -> None:
            pass

        sharing, joining = await stand.enter(*victim), await stand.enter(*attacker)
        group = await _group_of(sharing)
        shared = await sharing.client.subscribe(HEARD, group, cb=note)
        for subject in (HEARD, "pw.evt.>", ">"):
            await joining.client.subscribe(subject, group, cb=swallow)
        for guest in (sharing, joining):
            await guest.client.flush()
        await stand.publish(*(f"fact-{number}" for number in range(MANY)))
        # The server has handed out the facts before it answers to this.
        await sharing.client.flush()
        await eventually(lambda: not shared.pending_msgs, what="the victim has handled its facts")
        assert heard, "the victim hears nothing at all"
        return len(heard) < MANY

    return run


async def _group_of(guest: Guest) -> str:
    """The first group that it may join, of those that people would take."""
    for group in ("workers", f"team.{SUBSCRIBER}", f"team.{TEAM}", f"watch.{SHARED}.victim.workers"):
        subscription = await guest.client.subscribe(HEARD, group)
        if not await guest.was_refused("subscription", HEARD):
            await subscription.unsubscribe()
            return group
    raise AssertionError("no queue group is left to it")


async def goes_beyond_its_service(stand: Stand) -> Harm:
    """A service of others: facts of others, a durable of others, and a consumer where the services live."""
    service = await stand.enter(SERVICE, SERVICE)
    own = "pw.evt.notebooks.notebook.started.v1.team-a.u"
    await service.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS).publish(own, b"{}")
    await stand.publish("one")
    # The server hands nothing to an inbox at which nobody listens.
    inbox = service.client.new_inbox()
    await service.client.subscribe(inbox)
    config = {"name": "evil", "durable_name": "evil", "ack_policy": "explicit"}
    for subject, body in (
        (f"{_API}.CONSUMER.MSG.NEXT.PW_JOBS.trigger-controller-jobs", {"batch": 9}),
        (f"{_API}.CONSUMER.CREATE.PW_JOBS.evil", {"stream_name": "PW_JOBS", "config": config}),
        (FACT.format("forged"), {}),
    ):
        await service.refused_to_publish(subject, json.dumps(body).encode(), inbox)
    member = (await stand.enter("member", TEAM)).client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
    await _has_copies(member)
    installer = await _as(INSTALLER, stand)
    jobs = f"{_API}.CONSUMER.INFO.PW_JOBS"

    async def harmed() -> Harm:
        pulled = (await installer.ask(f"{jobs}.trigger-controller-jobs"))["delivered"]["consumer_seq"]
        stored = (await installer.ask(f"{_API}.STREAM.INFO.PW_JOBS"))["state"]["messages"]
        made = "error" not in await installer.ask(f"{jobs}.evil")
        return {"pulled": pulled > 0, "forged": stored > 1, "consumer made": made}

    return await happened(harmed)


async def reads_other_namespaces(stand: Stand) -> Harm:
    """A team: facts of namespaces that are not its own, live and stored."""
    member = await stand.enter("member", TEAM)
    js, heard = member.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS), list[str]()

    async def note(msg: Any) -> None:
        heard.append(msg.subject)

    theirs = FACT.format("theirs").replace(SHARED, FOREIGN)
    for subject in (">", "pw.>", "pw.evt.>", theirs):
        await member.client.subscribe(subject, cb=note)
    await member.client.flush()
    await stand.publish_on(theirs)
    await stand.publish("own")
    await _has_copies(js)
    await eventually(lambda: FACT.format("own") in heard, what="the team hears its own facts")
    subjects = (await member.ask(f"{_API}.STREAM.INFO.PW_JOBS", {"subjects_filter": ">"}))["state"][
        "subjects"
    ]
    return {"live": theirs in heard, "stored": theirs in subjects}


async def connects_as_a_service(stand: Stand) -> bool:
    """A subscriber that RBAC does not let be the service."""
    assert await stand.tries(SERVICE, SERVICE), "the service itself is not let in"
    return await stand.tries("watcher", SERVICE) is not None


async def _as(role: str, stand: Stand) -> Guest:
    folder = stand.bus.folder / BUS_CA
    client = entering(stand.bus, folder, prefix=f"_INBOX_{role}", user=role, password=make_token(role))
    return await stand.ends.enter_async_context(client)


async def uses_up_connections_of_a_team(stand: Stand) -> bool:
    """Connect as often as the team may."""
    users = (f"{TEAM}.{SHARED}", TEAM, f"{SUBSCRIBER}.{SHARED}")
    entered = [await stand.tries("watcher", user) for user in users for _ in range(CONNECTIONS + 1)]
    assert any(entered), "a watcher cannot connect at all"
    return await stand.tries("member", TEAM) is None


async def uses_up_connections_of_the_server(stand: Stand) -> bool:
    """Connect more often than a role may."""
    entered = [await stand.tries(EVALUATOR, EVALUATOR) for _ in range(CONNECTIONS + 2)]
    assert entered[0], "an evaluator cannot connect at all"
    assert await stand.tries(PUBLISHER, PUBLISHER), "a service is kept out"
    return sum(1 for each in entered if each) > CONNECTIONS


async def fills_the_server_with_subscriptions(stand: Stand) -> bool:
    """Subscribe to the same again and again: each takes memory of the server."""
    watcher = await stand.enter("watcher", f"{SUBSCRIBER}.{SHARED}")
    with suppress(nats.errors.Error):
        for _ in range(SUBSCRIPTIONS):
            await watcher.client.subscribe(HEARD)
        await watcher.client.flush()
    return "maximum subscriptions exceeded" not in str(watcher.client.last_error).lower()


ATTACKS: dict[str, Run] = {
    "subscriber of no team fills the server's memory with subscriptions": fills_the_server_with_subscriptions,
    "subscriber of no team takes a team's deliveries": takes_deliveries,
    "subscriber of no team takes another's live facts by its queue group": takes_live_facts(
        ("victim", SUBSCRIBER), ("watcher", SUBSCRIBER)
    ),
    "subscriber of no team takes a team's live facts by its queue group": takes_live_facts(
        ("member", TEAM), ("watcher", SUBSCRIBER)
    ),
    "team takes another team's live facts by its queue group": takes_live_facts(
        ("member", TEAM), ("rival", SUBSCRIBER)
    ),
    "team reads facts of namespaces that are not its own": reads_other_namespaces,
    "subscriber of no team uses up a team's connections": uses_up_connections_of_a_team,
    "service of others goes beyond its own facts and durables": goes_beyond_its_service,
    "subscriber of no team connects as a service of others": connects_as_a_service,
    "evaluator uses up the server's connections": uses_up_connections_of_the_server,
}


async def _has_copies(js: JetStreamContext) -> None:
    """Wait until the team's copy of the jobs' facts has one."""

    async def has() -> bool:
        return bool((await js.stream_info("PW_JOBS")).state.messages)

    await eventually(has, what="the team has copies")


def authorizer(bus: ChartBus) -> Authorizer:
    """bus-auth's own, over the table."""
    declared = declared_with(bus.services)
    policy = Policy(HOME, 600, bus.teams, spread=lambda: 0.0, declared=declared)
    return Authorizer(Table(), policy, SystemClock())


@asynccontextmanager
async def installed(bus: ChartBus, shift: Callable[[Grant], Grant] | None = None) -> AsyncIterator[Stand]:
    """Every stream and the teams' copies, without messages.

    Args:
        shift: changes the rights that bus-auth grants.
    """
    decide = authorizer(bus).authorize

    async def authorize(asking: Login) -> Grant:
        grant = await decide(asking)
        return shift(grant) if shift else grant

    async with letting_in(bus, authorize), AsyncExitStack() as ends:
        stand = Stand(bus, ends)
        await sweep((await _as(OPERATOR, stand)).client, bus.teams)
        await install(bus, **_as_holder(bus))
        yield stand


@asynccontextmanager
async def unguarded(bus: ChartBus) -> AsyncIterator[Stand]:
    """The same on a server that guards nothing: everybody is in one account, so that there are no copies."""
    async with letting_in(bus, authorize_everything), AsyncExitStack() as ends:
        stand = Stand(bus, ends)
        await sweep((await _as(OPERATOR, stand)).client)
        await install(bus, teams=(), **_as_holder(bus))
        yield stand


def _as_holder(bus: ChartBus) -> dict[str, str]:
    """How bus-installer enters."""
    token = bus.folder / "installer-token"
    token.write_text(make_token(INSTALLER))
    return {"tls_dir": str(bus.folder / BUS_CA), "token_file": str(token)}
