"""The Bus port with its NATS JetStream and memory adapters."""

from __future__ import annotations

from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.ports import Bus


async def connect(
    url: str, creds_file: str | None = None, *, name: str = "paddlewheel", replicas: int = 1
) -> Bus:
    """A bus over NATS. Never fails: while the server is away its calls raise Retry and `healthy()` is False.

    Args:
        url: `nats://host:port` or `tls://...`; several joined by commas.
        creds_file: path of a NATS credentials file, None = none.
        name: of the service, shown in the server's monitoring.
        replicas: of streams that have to be created.
    """
    bus = NatsBus(url, creds_file, name=name, replicas=replicas)
    await bus.start()
    return bus
