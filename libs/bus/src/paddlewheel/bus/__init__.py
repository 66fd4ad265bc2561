"""The Bus port and its NATS JetStream adapter."""

from __future__ import annotations

from paddlewheel.bus.access import Access
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.nats.tls import tls_problem
from paddlewheel.bus.ports import Bus

__all__ = ["Access", "connect", "tls_problem"]


async def connect(access: Access | str, *, name: str, wait: bool = True) -> Bus:
    """A bus over NATS. Never fails: while the server is unreachable its calls raise Unavailable.

    Args:
        access: how to connect; a plain URL means `Access(url)`.
        name: the client's name in the server's monitoring.
        wait: wait some seconds for the server; False means that the first call waits.
    """
    bus = NatsBus(access, name=name)
    if wait:
        await bus.start()
    return bus
