"""Every attack is refused, as the real server decides with the chart's configuration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.attacks.attacks import ATTACKS, KINDS, Attack, attempt
from tests.attacks.servers import Servers
from tests.attacks.stand import installed, is_harmed


def rows() -> Iterator[object]:
    """One attack of each kind is in the short suite; the other roles that try the same are long."""
    for attack in ATTACKS:
        marks = () if KINDS[attack.run] is attack else (pytest.mark.long,)
        yield pytest.param(attack, id=attack.name.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize("attack", rows())
async def test_an_attack_is_refused(attack: Attack, guarded: Servers) -> None:
    async with installed(guarded.with_certificates) as stand:
        harm = await attempt(attack, stand)
        assert not is_harmed(harm), f"{attack.name} SUCCEEDED: {harm}"
