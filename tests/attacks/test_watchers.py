"""Every attack of a subscriber or guest with a token is refused, as the real server decides."""

from __future__ import annotations

import pytest
from tests.attacks.servers import Servers
from tests.attacks.stand import is_harmed
from tests.attacks.watchers import ATTACKS, installed

SLOW = "subscriber of no team fills the server's memory with subscriptions"
"""The server takes 90 s to close this client."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == SLOW else ()) for name in ATTACKS]
)
async def test_an_attack_by_token_is_refused(name: str, guarded: Servers) -> None:
    async with installed(guarded.with_teams) as stand:
        harm = await ATTACKS[name](stand)
        assert not is_harmed(harm), f"{name} SUCCEEDED: {harm}"
