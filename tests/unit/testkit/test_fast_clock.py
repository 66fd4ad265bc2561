"""Services under test wait shorter, and their Leases do not."""

from __future__ import annotations

import time
from typing import cast

from paddlewheel.bus.ports import Bus
from paddlewheel.core.clock import SystemClock
from paddlewheel.operator.serve import Host, Operator
from paddlewheel.operator.settings import OperatorSettings
from paddlewheel.operator.watch import Watch
from paddlewheel.testkit.fast_clock import SPEED, FastClock
from paddlewheel.testkit.memory_cluster import MemoryCluster


async def test_sleeps_are_short_and_look_long() -> None:
    clock, began = FastClock(), time.monotonic()
    before = clock.monotonic()
    await clock.sleep(0.2 * SPEED)
    lasted, looked = time.monotonic() - began, clock.monotonic() - before
    assert lasted >= 0.2
    assert looked >= 0.2 * SPEED
    assert abs((clock.now() - SystemClock().now()).total_seconds()) < 60


def test_leases_keep_the_time_of_the_system() -> None:
    """Replicas with clocks of different speeds would expire each other's."""
    fast, system = FastClock(), SystemClock()
    host = Host(MemoryCluster(), cast(Bus, None), fast, lease_clock=system)
    operator = Operator("jobs", OperatorSettings(), host, watch=cast(Watch, None))
    assert (operator.clock, operator._membership._clock) == (fast, system)
