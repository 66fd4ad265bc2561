"""What each fault breaks, and how it is repaired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from tests.integration.cache_runtime.fault_matrix.cases import Fault
from tests.integration.cache_runtime.fault_matrix.stand import PARTITIONS, Stand

Breaking = AbstractAsyncContextManager[None]


def broken(stand: Stand) -> Breaking:
    """The fault of the case. It lasts for the block, and is repaired at the end."""
    return _FAULTS[stand.scenario.case.fault](stand)


@asynccontextmanager
async def _without_agent(stand: Stand) -> AsyncIterator[None]:
    async with _killed(stand, 1 - await _leader(stand)):
        yield


@asynccontextmanager
async def _without_master(stand: Stand) -> AsyncIterator[None]:
    async with _killed(stand, await _leader(stand)):
        yield


@asynccontextmanager
async def _killed(stand: Stand, partition: int) -> AsyncIterator[None]:
    runtimes = stand.harness.runtimes
    kill = runtimes.kill_pod if stand.scenario.blow.whole_pod else runtimes.kill
    await asyncio.to_thread(kill, partition)
    try:
        yield
    finally:
        runtimes.start(partition)
        await asyncio.to_thread(runtimes.wait_mounted, partition)


async def _leader(stand: Stand) -> int:
    return int((await stand.harness.state("run")).master[-1])


@asynccontextmanager
async def _without_bus(stand: Stand) -> AsyncIterator[None]:
    stand.nats.kill()
    try:
        yield
    finally:
        await asyncio.to_thread(stand.nats.start)


@asynccontextmanager
async def _without_store(stand: Stand) -> AsyncIterator[None]:
    await stand.link.cut()
    try:
        yield
    finally:
        await stand.link.open()


@asynccontextmanager
async def _without_database(stand: Stand) -> AsyncIterator[None]:
    stand.redis.kill()
    try:
        yield
    finally:
        await asyncio.to_thread(stand.redis.start)


@asynccontextmanager
async def _with_full_disks(stand: Stand) -> AsyncIterator[None]:
    ballast = [stand.harness.runtimes.cache_dir(partition) / "ballast" for partition in PARTITIONS]
    for path in ballast:
        with suppress(OSError), path.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 20)):
                pass
    try:
        yield
    finally:
        for path in ballast:
            path.unlink()


_FAULTS: dict[Fault, Callable[[Stand], Breaking]] = {
    Fault.AGENT: _without_agent,
    Fault.MASTER: _without_master,
    Fault.BUS: _without_bus,
    Fault.STORE: _without_store,
    Fault.METADATA: _without_database,
    Fault.DISK: _with_full_disks,
}
