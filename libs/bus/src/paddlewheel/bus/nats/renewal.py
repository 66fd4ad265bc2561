"""Replaces a connection to renew its rights when the server refuses a request.

During an upgrade, bus-auth of the former release may accept a client with that release's rights, which would
last for half an hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from paddlewheel.core.backoff import Backoff

FIRST_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS, JITTER = 10.0, 640.0, 0.25
"""The first and the longest age of rights at which a refusal renews them; doubled each time, because a
renewal costs bus-auth and the API server several requests. The jitter spreads clients that connected
together."""


class Renewal:
    """Decides when a connection is replaced because a request was refused."""

    def __init__(self) -> None:
        self._backoff = Backoff[None](FIRST_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS, jitter=JITTER)
        self._since: float | None = None
        self._is_made = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def renewals(self) -> int:
        """The number of consecutive connections on which a request was refused."""
        return self._backoff.failures(None)

    def begin(self) -> None:
        """An attempt to connect begins."""
        self._since = asyncio.get_running_loop().time()

    def made(self) -> None:
        """The attempt succeeded: the server gave rights."""
        self._is_made = True

    def refused(self, renew: Callable[[], None]) -> None:
        """Have `renew` called once for this connection, as soon as its rights are old enough. A refusal on a
        connection that was already replaced is ignored."""
        if self._timer is None and self._since is not None:
            at = self._since + self._backoff.next(None)
            self._timer = asyncio.get_running_loop().call_at(at, renew)

    def end(self) -> None:
        """The connection ended. An attempt without rights does not change the number of renewals."""
        if self._timer is not None:
            self._timer.cancel()
        elif self._is_made:
            self._backoff.reset(None)
        self._since, self._is_made, self._timer = None, False, None
