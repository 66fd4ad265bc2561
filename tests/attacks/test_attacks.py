"""Every attack is refused, as the real server decides with the chart's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.attacks.attacks import ATTACKS, Attack, attempt
from tests.attacks.stand import installed, server

OPEN = frozenset(
    (
        "cache-runtime swallows the deliveries of a durable by one put",
        "cache-runtime swallows the deliveries of a durable by a chunk",
        "job-controller makes a consumer where the services live",
        "dataset-controller makes a consumer where the services live",
        "trigger-controller makes a consumer where the services live",
        "serving-controller makes a consumer where the services live",
        "cache-runtime makes a consumer where the services live",
    )
)
"""Still succeed; each is to be refused, and then this list is too long, which fails too."""


def expected(attack: Attack) -> object:
    """A row of the tests."""
    marks = [pytest.mark.xfail(reason="open", strict=True)] if attack.name in OPEN else []
    return pytest.param(attack, id=attack.name.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize("attack", [expected(each) for each in ATTACKS])
async def test_an_attack_is_refused(attack: Attack, tmp_path: Path) -> None:
    with server(tmp_path) as bus:
        async with installed(bus) as stand:
            assert not await attempt(attack, stand), f"{attack.name} SUCCEEDED"
