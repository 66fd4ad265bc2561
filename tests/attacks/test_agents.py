"""Every attack of an agent on another tenant is refused, as the real server decides."""

from __future__ import annotations

import pytest
from tests.attacks.agents import ATTACKS, attempt, tenants
from tests.attacks.servers import Servers
from tests.attacks.stand import is_harmed


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_agents_attack_is_refused(name: str, guarded: Servers) -> None:
    async with tenants(guarded.with_tokens) as made:
        harm = await attempt(ATTACKS[name], made)
        assert not is_harmed(harm), f"{name} SUCCEEDED: {harm}"
