"""The bus of one command: NATS_URL, or the bus of the user's cluster or of an embedded one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from paddlewheel.bus import Access, connect
from paddlewheel.bus.admin.permissions import OPERATOR
from paddlewheel.bus.ports import Bus
from paddlewheel.cli.bus_access import bus_access, uses_own_bus
from paddlewheel.cli.target import target
from paddlewheel.core.errors import Retry

OPEN_WITHIN = 5.0
"""Seconds to wait for a bus that does not answer."""


@asynccontextmanager
async def open_access(name: str, role: str) -> AsyncIterator[Access]:
    """Yield the access to the bus of the environment or of the cluster `name`.

    Raises:
        Permanent: no such cluster is running, or it has no certificate for the role.
        Retry: the bus is unreachable; the message gives a remedy.
    """
    try:
        async with bus_access(None if uses_own_bus() else target(name), role=role) as access:
            yield access
    except Retry as error:
        if error.reason != "BusUnreachable":
            raise
        remedy = "set NATS_URL to a running server" if uses_own_bus() else "see `paddlewheel cluster status`"
        raise Retry(error.reason, f"{error.message}; {remedy}") from error


@asynccontextmanager
async def connected(access: Access) -> AsyncIterator[Bus]:
    """Yield a bus that answers. Raises Retry if it does not within a few seconds."""
    bus = await connect(access, name="paddlewheel-cli")
    try:
        if not await bus.healthy():
            raise Retry("BusUnreachable", f"no answer from {access.url}")
        yield bus
    finally:
        await bus.close()


@asynccontextmanager
async def operated(name: str) -> AsyncIterator[Bus]:
    """Yield a bus with an operator's rights. Raises as `open_access`."""
    async with open_access(name, OPERATOR) as access, connected(access) as bus:
        yield bus
