"""Each attack can succeed: on a server that guards nothing it does, in all parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.attacks import attacks, stand, watchers
from tests.attacks.attacks import KINDS, Attack
from tests.attacks.servers import Servers
from tests.attacks.stand import unharmed

from paddlewheel.bus.admin.accounts import WATCHERS
from paddlewheel.bus.callout.claims import Grant

CONNECTIONS = "subscriber of no team uses up a team's connections"
"""It does not succeed on the open server, because its guard is that a team has an account: it succeeds when
others are let into that account."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not show is waited for only where it is to show, so a slow machine may take its time."""
    monkeypatch.setattr(stand, "EFFECT_WITHIN", 15.0)


@pytest.mark.parametrize("attack", KINDS.values(), ids=[run.__name__ for run in KINDS])
async def test_an_attack_succeeds(attack: Attack, unguarded: Servers) -> None:
    """Where nothing is refused roles do not differ."""
    async with stand.unguarded(unguarded.with_passwords) as made:
        assert unharmed(await attacks.attempt(attack, made)) == []


@pytest.mark.parametrize("name", [name for name in watchers.ATTACKS if name != CONNECTIONS])
async def test_an_attack_by_token_succeeds(name: str, unguarded: Servers) -> None:
    async with watchers.unguarded(unguarded.with_teams) as made:
        assert unharmed(await watchers.ATTACKS[name](made)) == []


async def test_a_teams_connections_are_used_up_by_whoever_is_let_into_it(guarded: Servers) -> None:
    async with watchers.installed(guarded.with_teams, into_the_team) as made:
        assert await watchers.ATTACKS[CONNECTIONS](made)


def into_the_team(grant: Grant) -> Grant:
    """Watchers are where the team is."""
    return replace(grant, account=watchers.TEAM) if grant.account == WATCHERS else grant
