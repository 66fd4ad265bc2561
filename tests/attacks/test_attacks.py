"""Every attack is refused, as the real server decides with the chart's configuration."""

from __future__ import annotations

import pytest
from tests.attacks.attacks import ATTACKS, KINDS, Attack, attempt
from tests.attacks.servers import Servers
from tests.attacks.stand import installed, is_harmed

ROWS = [
    pytest.param(
        attack,
        id=attack.name.replace(" ", "-"),
        marks=() if KINDS[attack.run] is attack else pytest.mark.long,
    )
    for attack in ATTACKS
]
"""The short suite has one attack of each kind; the long one has the other roles that try the same."""


@pytest.mark.parametrize("attack", ROWS)
async def test_an_attack_is_refused(attack: Attack, guarded: Servers) -> None:
    async with installed(guarded.with_passwords) as stand:
        harm = await attempt(attack, stand)
        assert not is_harmed(harm), f"{attack.name} SUCCEEDED: {harm}"
