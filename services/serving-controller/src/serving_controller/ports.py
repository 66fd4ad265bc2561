"""What this service needs beside the cluster and the bus."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from paddlewheel.contracts.keys import Key
from serving_controller.domain.judge import Counts


class Figures(Protocol):
    """What the gateway counts."""

    async def read(self, service: Key, revisions: Collection[str], window: str) -> Mapping[str, Counts]:
        """Requests by revision since this window of the service was asked for first, by this process, as far
        as the gateway was read last. Does not wait for the gateway.

        Args:
            window: name of a stretch of time; another name begins another one.

        Raises:
            Retry: they cannot be read now; says why.
        """
        ...

    def forget(self, service: Key) -> None:
        """The service is gone, or is measured no more."""
        ...
