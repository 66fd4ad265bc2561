"""Rights that a token has given are asked for again when the server refuses what they should allow.

During an upgrade a client may be let in by bus-auth of the release before, with that release's rights, which
would last for half an hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from paddlewheel.core.backoff import Backoff

FIRST_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS, JITTER = 10.0, 640.0, 0.25
"""Seconds that rights last in which something is refused, twice as many each time: a renewal costs bus-auth
and the API server several requests, and may bring nothing. Clients that connected together renew apart."""


class Renewal:
    """When a connection is replaced because something was refused."""

    def __init__(self) -> None:
        self._backoff = Backoff[None](FIRST_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS, jitter=JITTER)
        self._since: float | None = None
        self._is_made = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def renewals(self) -> int:
        """Connections in a row in which something was refused."""
        return self._backoff.failures(None)

    def begin(self) -> None:
        """A connection is tried."""
        self._since = asyncio.get_running_loop().time()

    def made(self) -> None:
        """It is made: rights were given."""
        self._is_made = True

    def refused(self, renew: Callable[[], None]) -> None:
        """Have `renew` called once for this connection, as soon as its rights are old enough. What a client
        hears that was replaced already counts for none."""
        if self._timer is None and self._since is not None:
            at = self._since + self._backoff.next(None)
            self._timer = asyncio.get_running_loop().call_at(at, renew)

    def end(self) -> None:
        """The connection is over. An attempt that gave no rights tells nothing of them."""
        if self._timer is not None:
            self._timer.cancel()
        elif self._is_made:
            self._backoff.reset(None)
        self._since, self._is_made, self._timer = None, False, None
