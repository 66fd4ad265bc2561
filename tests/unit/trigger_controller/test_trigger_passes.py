"""A namespace whose calls hang takes no more than two workers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.trigger_controller.test_trigger_settling import SettlingHarness

from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Result
from paddlewheel.operator.reconciler import Reconciler
from trigger_controller.passes import SLOW_PASSES
from trigger_controller.timing import NAMESPACE_TURN_INTERVAL_SECONDS, SLOW_PASS_GRACE_SECONDS


async def test_passes_that_hang_leave_workers_to_other_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = SettlingHarness(monkeypatch)
    answer, begun = asyncio.Event(), []

    async def run_pass(_: Any, key: Key) -> Result:
        begun.append(str(key))
        if key.namespace == "hangs":
            await answer.wait()
        return Result()

    monkeypatch.setattr(Reconciler, "reconcile", run_pass)
    reconcile = harness.reconciler.reconcile
    hanging = [asyncio.ensure_future(reconcile(Key("hangs", f"t-{n}"))) for n in range(SLOW_PASSES)]
    await asyncio.sleep(0)
    await harness.clock.advance(SLOW_PASS_GRACE_SECONDS)
    assert await reconcile(Key("hangs", "more")) == Result(NAMESPACE_TURN_INTERVAL_SECONDS)
    assert await reconcile(Key("works", "t")) == Result()
    answer.set()
    await asyncio.gather(*hanging)
    assert await reconcile(Key("hangs", "more")) == Result()
    assert begun == ["hangs/t-0", "hangs/t-1", "works/t", "hangs/more"]
    harness.offer.cancel()
