"""Every attack is refused, as the real server decides with the chart's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.attacks.attacks import ATTACKS, Attack, attempt
from tests.attacks.stand import installed, is_harmed, server


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name.replace(" ", "-") for attack in ATTACKS])
async def test_an_attack_is_refused(attack: Attack, tmp_path: Path) -> None:
    with server(tmp_path) as bus:
        async with installed(bus) as stand:
            harm = await attempt(attack, stand)
            assert not is_harmed(harm), f"{attack.name} SUCCEEDED: {harm}"
