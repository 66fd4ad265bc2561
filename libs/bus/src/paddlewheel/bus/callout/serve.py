"""Answering: who is let in, with what, and what happens when that cannot be known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from paddlewheel.bus.callout.claims import Asking, Grant, Request, answer_claims, read_request, user_claims
from paddlewheel.bus.callout.hosts import Hosts, Limits
from paddlewheel.bus.callout.keys import ANOTHER_KEY, CalloutKey
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger

SUBJECT: Final = "$SYS.REQ.USER.AUTH"
GROUP: Final = "bus-auth"
"""Queue group: each request is answered by one replica."""
SENDER: Final = "Nats-Server-Xkey"
"""Header with the server's public curve key."""
REFUSAL_INTERVAL_SECONDS: Final = 1.0
"""Seconds until a refusal is sent: a client that tries again at once must not keep everybody busy."""
_ERROR = "error"
LIMITS: Final = Limits()

log = LibraryLogger(__name__)

Authorize = Callable[[Asking], Awaitable[Grant]]
"""Raises Permanent (refused) or Retry (cannot be known now: not let in)."""
Report = Callable[[str], None]
"""Told the outcome of each request: `granted`, or the reason why not."""


class CalloutServer:
    """One replica's work on the requests of all servers."""

    def __init__(
        self, key: CalloutKey, authorize: Authorize, clock: Clock, report: Report, limits: Limits = LIMITS
    ) -> None:
        self._key, self._authorize, self._clock, self._report = key, authorize, clock, report
        self._hosts = Hosts(limits)
        self.met_another_key = False
        """Whether some server has asked with another key than the service's."""

    async def answer(self, sealed: bytes, sender: str) -> bytes | None:
        """The sealed answer to one request; None answers nothing, so that the client tries again."""
        try:
            request = read_request(self._key.open(sealed, sender))
            async with self._hosts.turn(request.asking.host):
                claims = await self._claims(request)
        except Permanent as error:
            log.error("authorization request unusable", reason=error.reason, why=error.message)
            self.met_another_key |= error.reason == ANOTHER_KEY
            self._report(error.reason)
            return None
        except Retry as error:
            self._report(error.reason)
            return None
        return None if claims is None else self._key.seal(self._key.sign(claims).encode(), sender)

    async def _claims(self, request: Request) -> dict[str, Any] | None:
        """None when the server no longer waits, before or after the work."""
        try:
            async with asyncio.timeout(self._left(request)), self._hosts.place():
                if self._is_late(request):
                    return None
                answer = await self._decide(request)
        except TimeoutError:
            raise Retry("TooLate", "the API server has not answered in time") from None
        if _ERROR in answer:
            # The host of the client waits, and no other host.
            await self._clock.sleep(REFUSAL_INTERVAL_SECONDS)
        if self._is_late(request):
            return None
        return answer_claims(request, self._key.public.issuer, answer, self._now())

    def _is_late(self, request: Request) -> bool:
        return self._left(request) <= 0

    def _left(self, request: Request) -> float:
        """Seconds for which the server still waits."""
        return request.expires - self._clock.now().timestamp()

    async def _decide(self, request: Request) -> dict[str, str]:
        asking = request.asking
        try:
            grant = await self._authorize(asking)
        except (Permanent, Retry) as error:
            # What cannot be checked is never allowed.
            self._refused(asking, error)
            return {_ERROR: str(error)}
        self._report("granted")
        log.info("client let in", client=grant.name, role=asking.shown, host=asking.host)
        user = user_claims(request, self._key.public.issuer, grant, self._now())
        return {"jwt": self._key.sign(user)}

    def _refused(self, asking: Asking, error: Permanent | Retry) -> None:
        self._report(error.reason)
        log.warning(
            "client not let in", role=asking.shown, host=asking.host, reason=error.reason, why=error.message
        )

    def _now(self) -> int:
        return int(self._clock.now().timestamp())
