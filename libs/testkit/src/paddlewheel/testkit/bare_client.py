"""nats-py's client with a complete `flush` and long timeouts."""

from __future__ import annotations

from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from typing_extensions import override


class BareClient(Client):
    """A client for tests that use the bus without the product's own client."""

    @override
    async def flush(self, timeout: int = 90) -> None:
        """Return when the server has processed everything that was issued before, subscriptions too.

        nats-py's PING overtakes commands that wait for its flusher; a second one comes behind them.
        """
        for _ in range(2):
            await super().flush(timeout)

    @override
    async def request(self, subject: str, payload: bytes = b"", timeout: float = 90, **options: Any) -> Msg:  # type: ignore[override]
        """Send a request and wait for a slow server."""
        return await super().request(subject, payload, timeout, **options)

    @override
    def jetstream(self, **options: Any) -> JetStreamContext:
        """Calls wait for a slow server."""
        return super().jetstream(**{"timeout": 90.0, **options})


async def connect(url: str, **options: Any) -> BareClient:
    """Raises what nats-py raises."""
    client = BareClient()
    await client.connect(url, **options)
    return client
