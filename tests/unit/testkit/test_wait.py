"""What a wait takes for "not there yet"."""

from __future__ import annotations

import pytest

from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.wait import eventually


@pytest.mark.parametrize("error", [AssertionError("no"), LookupError("none"), Retry("Away")])
async def test_a_probe_may_fail_while_it_is_not_there(error: Exception) -> None:
    errors = [error]

    async def probe() -> str:
        if errors:
            raise errors.pop()
        return "there"

    assert await eventually(probe, every=0) == "there"


async def test_the_last_error_is_named_at_the_end() -> None:
    async def probe() -> None:
        raise Retry("Away", "nobody answers")

    with pytest.raises(AssertionError, match="nobody answers"):
        await eventually(probe, within=0)


async def test_any_other_error_ends_the_wait() -> None:
    async def probe() -> None:
        raise Permanent("Refused", "field a: is wrong")

    with pytest.raises(Permanent):
        await eventually(probe)
