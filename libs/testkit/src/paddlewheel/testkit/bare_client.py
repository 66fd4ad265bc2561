"""nats-py's client as it is, but for its `flush` and its patience."""

from __future__ import annotations

from typing import Any

from nats.aio.client import Client
from nats.js import JetStreamContext
from typing_extensions import override


class BareClient(Client):
    """What a test does on the bus without the product's own client."""

    @override
    async def flush(self, timeout: int = 90) -> None:
        """Return when the server has processed everything that was issued before, subscriptions too.

        nats-py's PING overtakes commands that wait for its flusher; a second one comes behind them.
        """
        for _ in range(2):
            await super().flush(timeout)

    @override
    def jetstream(self, **options: Any) -> JetStreamContext:
        """Its calls wait for a server that stands still for a moment."""
        return super().jetstream(**{"timeout": 90.0, **options})


async def connect(url: str, **options: Any) -> BareClient:
    """Raises what nats-py raises."""
    client = BareClient()
    await client.connect(url, **options)
    return client
