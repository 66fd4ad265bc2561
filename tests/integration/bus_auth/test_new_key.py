"""A new key of bus-auth, as `helm upgrade` or cert-manager brings it: nobody is locked out."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from paddlewheel.testkit.bus_auth import BusAuthStand
from paddlewheel.testkit.chart_bus import renew_key
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long


async def readiness(stand: BusAuthStand) -> tuple[int, str]:
    async with ClientSession() as session, session.get(f"http://127.0.0.1:{stand.port}/readyz") as answer:
        return answer.status, await answer.text()


async def test_a_new_key_takes_effect_when_the_server_has_it_and_locks_nobody_out(
    own_stand: BusAuthStand,
) -> None:
    token = await own_stand.allow_role("evaluator")
    renew_key(own_stand.bus)

    async def says_so() -> bool:
        status, why = await readiness(own_stand)
        return status == 503 and "rollout restart" in why

    await eventually(says_so, within=60, what="it is not ready")
    async with own_stand.enter("evaluator", token) as guest:
        assert guest.client.is_connected

    own_stand.bus.stop()
    own_stand.bus.start()
    service = own_stand.service
    assert service is not None
    await eventually(lambda: service.exit_code is not None, within=60, what="it ends")
    assert "KeyReplaced" in own_stand.log

    await own_stand.start()
    async with own_stand.enter("evaluator", token) as guest:
        assert guest.client.is_connected
