"""Every attack of an agent on another tenant is refused, as the real server decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.attacks.agents import ATTACKS, attempt, tenants


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_agents_attack_is_refused(name: str, tmp_path: Path) -> None:
    async with tenants(tmp_path) as made:
        assert not await attempt(ATTACKS[name], made), f"{name} SUCCEEDED"
