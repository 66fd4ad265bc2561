"""The answers to the server's requests: which clients are accepted, and with which rights."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from paddlewheel.bus.callout.claims import Grant, Login, Request, answer_claims, read_request, user_claims
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
"""Seconds before a refusal is sent, so that a client that tries again at once causes little load."""
_ERROR = "error"
LIMITS: Final = Limits()

log = LibraryLogger(__name__)

Authorize = Callable[[Login], Awaitable[Grant]]
"""Raises Permanent (the client is refused) or Retry (it cannot be checked now, so it is refused)."""
Report = Callable[[str], None]
"""Called with the outcome of each request: `granted`, or the reason of the refusal."""


class CalloutServer:
    """Answers the requests of all servers that reach this replica."""

    def __init__(
        self, key: CalloutKey, authorize: Authorize, clock: Clock, report: Report, limits: Limits = LIMITS
    ) -> None:
        self._key, self._authorize, self._clock, self._report = key, authorize, clock, report
        self._hosts = Hosts(limits)
        self.met_another_key = False
        """Whether a server has sent a request that is encrypted for another key."""

    async def answer(self, sealed: bytes, sender: str) -> bytes | None:
        """The sealed answer to one request; None answers nothing, so that the client tries again."""
        try:
            request = read_request(self._key.open(sealed, sender))
            async with self._hosts.turn(request.login.host):
                claims = await self._claims(request)
        except Permanent as error:
            log.error("authorization request cannot be answered", reason=error.reason, why=error.message)
            self.met_another_key |= error.reason == ANOTHER_KEY
            self._report(error.reason)
            return None
        except Retry as error:
            self._report(error.reason)
            return None
        return None if claims is None else self._key.seal(self._key.sign(claims).encode(), sender)

    async def _claims(self, request: Request) -> dict[str, Any] | None:
        """The claims of the answer; None when the server has stopped waiting."""
        try:
            async with asyncio.timeout(self._left(request)), self._hosts.place():
                if self._is_late(request):
                    return None
                answer = await self._decide(request)
        except TimeoutError:
            raise Retry(
                "TooLate", "the API server has not answered before the NATS server stopped waiting"
            ) from None
        if _ERROR in answer:
            # This holds one turn of the client's own host, and no place at the API server.
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
        login = request.login
        try:
            grant = await self._authorize(login)
        except (Permanent, Retry) as error:
            # A client that cannot be checked is refused.
            self._refused(login, error)
            return {_ERROR: str(error)}
        self._report("granted")
        log.info("client accepted", client=grant.name, role=login.shown, host=login.host)
        user = user_claims(request, self._key.public.issuer, grant, self._now())
        return {"jwt": self._key.sign(user)}

    def _refused(self, login: Login, error: Permanent | Retry) -> None:
        self._report(error.reason)
        log.warning(
            "client refused", role=login.shown, host=login.host, reason=error.reason, why=error.message
        )

    def _now(self) -> int:
        return int(self._clock.now().timestamp())
