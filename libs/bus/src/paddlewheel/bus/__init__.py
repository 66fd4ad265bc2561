"""The Bus port with its NATS JetStream and memory adapters."""

from __future__ import annotations

from paddlewheel.bus.access import Access
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Bus

__all__ = ["Access", "connect"]


async def connect(access: Access | str, *, name: str) -> Bus:
    """A bus over NATS. Never fails: while the server is away its calls raise Retry and `healthy()` is False.

    Args:
        access: the way in; a plain URL stands for `Access(url)`.
        name: of the client, shown in the server's monitoring.
    """
    bus = NatsBus(access, name=name)
    await bus.start()
    return bus
