"""Each attack can succeed: on a server that guards nothing it does, in all parts, but for what is named here.

What is guarded by a program is tried with that program broken.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.attacks import agents, attacks, stand, watchers
from tests.attacks.attacks import KINDS, Attack
from tests.attacks.servers import Servers
from tests.attacks.stand import Stand, unharmed

from paddlewheel.bus.admin.accounts import WATCHERS
from paddlewheel.bus.admin.permissions import WORK_PURGES
from paddlewheel.bus.callout.claims import Grant
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.nats.set_writer import WRITES, SetWriter
from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.streams import NODES
from paddlewheel.bus.turns import Limits
from paddlewheel.contracts.wire import MESSAGE_ID

PURGES = attacks.empties_the_queue
FLOOD = "agent keeps another tenant's set from writing by a flood of writes"
IDS = "agent has a chunk of another tenant's set swallowed by its id"
LARGE = "agent fills the bucket of nodes with one record"
SIGNALS = "agent keeps another tenant's agent from learning of its runs by forged signals"
CONNECTIONS = "subscriber of no team uses up a team's connections"
HEADERS = "agent stores what lasts, repeats, takes ids or removes by a header"
ANSWERS = "agent has what it reads sent where it may not publish"

ELSEWHERE = {
    FLOOD: "the guard is bus-auth's turns; it succeeds without their limits",
    IDS: "the guard is the agent's client, which gives work no ids; it succeeds with one that does",
    LARGE: "the guard is the limit of the stream; it succeeds without",
    CONNECTIONS: "the guard is that a team has an account; it succeeds when others are let into it",
}
"""What does not succeed on the open server, and why; each has a test of its own."""
NOWHERE = {
    SIGNALS: "the guard is the agent's client, which believes no signal",
}
"""What succeeds on no system that is tried here."""
PARTS = {
    ANSWERS: {
        "acknowledgement": "the server takes no reply subject that begins with $JS.ACK",
        "answer": "the server takes no reply subject that begins with _R_",
    },
    HEADERS: {
        str(headers): "the streams take no such header from anybody"
        for headers in agents.HEADERS
        if {"Nats-Rollup", "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Msg-Id"} & headers.keys()
        or {"Nats-Schedule", "Nats-Batch-Id", "Nats-Incr"} & headers.keys()
    },
}
"""Parts of attacks that show nowhere, and why."""
SLOW = {
    ANSWERS: "it waits for the parts that show nowhere",
    "agent pushes out another tenant's fact": "it fills a stream",
    "agent fills the bucket of runs": "it fills a stream",
    "agent fills the bucket of nodes": "it fills a stream",
}
"""These succeed in the long suite alone, and why; one of those that fill a stream is in both."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not show is waited for only where it is to show, so a slow machine may take its time."""
    monkeypatch.setattr(stand, "EFFECT_WITHIN", 15.0)


@pytest.mark.parametrize("attack", KINDS.values(), ids=[run.__name__ for run in KINDS])
async def test_an_attack_succeeds(attack: Attack, unguarded: Servers) -> None:
    """Where nothing is refused roles do not differ."""
    async with stand.unguarded(unguarded.with_certificates) as made:
        if attack.run is PURGES:
            await purge_what_is_asked_for(made)
        assert unharmed(await attacks.attempt(attack, made)) == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name in SLOW else ())
        for name in agents.ATTACKS
        if name not in {**ELSEWHERE, **NOWHERE}
    ],
)
async def test_an_agents_attack_succeeds(name: str, unguarded: Servers) -> None:
    async with agents.unguarded(unguarded.with_tokens) as made:
        missing = unharmed(await agents.attempt(agents.ATTACKS[name], made))
    assert sorted(missing) == sorted(PARTS.get(name, {}))


@pytest.mark.parametrize("name", [name for name in watchers.ATTACKS if name not in ELSEWHERE])
async def test_an_attack_by_token_succeeds(name: str, unguarded: Servers) -> None:
    async with watchers.unguarded(unguarded.with_teams) as made:
        assert unharmed(await watchers.ATTACKS[name](made)) == []


async def test_it_is_known_where_each_attack_succeeds() -> None:
    assert {*ELSEWHERE, *NOWHERE, *PARTS, *SLOW} <= {*agents.ATTACKS, *watchers.ATTACKS}


async def test_a_flood_succeeds_without_limits(guarded: Servers) -> None:
    async with agents.tenants(guarded.with_tokens, Unlimited) as made:
        assert await agents.attempt(agents.ATTACKS[FLOOD], made)


async def test_an_id_is_taken_where_work_has_ids(unguarded: Servers) -> None:
    async with agents.unguarded(unguarded.with_tokens) as made:
        assert await agents.attempt(agents.swallowing(put_with_id), made)


async def test_a_large_record_is_stored_without_a_limit(unguarded: Servers) -> None:
    async with agents.unguarded(unguarded.with_tokens) as made:
        js = await made.jetstream()
        config = (await js.stream_info(NODES.name)).config
        await js.update_stream(replace(config, max_msg_size=-1))
        assert await agents.attempt(agents.ATTACKS[LARGE], made)


async def test_a_teams_connections_are_used_up_by_whoever_is_let_into_it(guarded: Servers) -> None:
    async with watchers.installed(guarded.with_teams, into_the_team) as made:
        assert await watchers.ATTACKS[CONNECTIONS](made)


class Unlimited(SetWriter):
    """Works on whatever comes."""

    kind = replace(WRITES, limits=Limits(*6 * [1 << 40]), heard=1 << 40)


async def put_with_id(bus: NatsBus, chunk: str, data: bytes) -> None:
    """As agents published work once."""
    *_, run, partition, number, _ = chunk.split(".")
    await bus.publish_raw(RawMessage(chunk, data, {MESSAGE_ID: f"{run}/{partition}/{number}"}))


def into_the_team(grant: Grant) -> Grant:
    """Watchers are where the team is."""
    return replace(grant, account=watchers.TEAM) if grant.account == WATCHERS else grant


async def purge_what_is_asked_for(made: Stand) -> None:
    """As bus-installer, should it not look at what it is asked."""

    async def purge(msg: Any) -> None:
        wanted = {"filter": json.loads(msg.data).get("subject", ">")}
        await made.operator.client.publish("$JS.API.STREAM.PURGE.PW_WORK", json.dumps(wanted).encode())

    await made.operator.client.subscribe(WORK_PURGES, cb=purge)
    await made.operator.client.flush()
