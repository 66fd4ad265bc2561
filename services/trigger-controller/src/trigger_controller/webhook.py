"""`POST /v1/sources/s3/<source>`: object stores' notifications become messages on the bus."""

from __future__ import annotations

import asyncio
import hmac
from pathlib import Path

import structlog
from aiohttp import web

from paddlewheel.bus.ports import Publisher
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from trigger_controller.domain.notifications import read_notifications
from trigger_controller.metrics import Metrics

ROUTE = "/v1/sources/s3/{source}"
BODY_LIMIT = 1024 * 1024
"""Bytes of a post: aiohttp's own limit."""
RETRY_AFTER = 2
"""Seconds after which a store may try again."""

log = structlog.get_logger(__name__)


class Webhook:
    """Answers 204 once the bus has stored every change, 4xx naming the field that is wrong, 503 to try again.

    Args:
        token_file: holds the bearer token that stores must send; read at each post, so that it may change.
            None lets everybody in.
    """

    def __init__(self, bus: Publisher, clock: Clock, metrics: Metrics, token_file: Path | None) -> None:
        self._bus = bus
        self._clock = clock
        self._metrics = metrics
        self._token_file = token_file

    @property
    def route(self) -> web.RouteDef:
        """For the service's HTTP server."""
        return web.post(ROUTE, self.receive)

    async def receive(self, request: web.Request) -> web.Response:
        """One post of one store."""
        try:
            if not self._is_allowed(request.headers.get("Authorization", "")):
                self._metrics.notified("unauthorized")
                return _answer(401, "Authorization: send the bearer token of this webhook")
            await self.store(request.match_info["source"], await request.read())
        except web.HTTPRequestEntityTooLarge:
            self._metrics.notified("refused")
            return _answer(413, f"body: at most {BODY_LIMIT} bytes; notify of fewer objects at once")
        except Permanent as error:
            self._metrics.notified("refused")
            return _answer(400, error.message)
        except Retry as error:
            self._metrics.notified("unavailable")
            log.warning("notification not stored, the store has to try again", error=str(error))
            return _answer(503, "the bus is unreachable; try again", {"Retry-After": str(RETRY_AFTER)})
        self._metrics.notified("stored")
        return web.Response(status=204)

    async def store(self, source: str, body: bytes) -> None:
        """Return once the bus holds every change in the body. Raises Permanent, Retry."""
        events = [n.event() for n in read_notifications(source, body, self._clock.now())]
        await asyncio.gather(*(self._bus.publish(event) for event in events))

    def _is_allowed(self, given: str) -> bool:
        """Raises Retry when the token cannot be read: nobody is let in by mistake."""
        if self._token_file is None:
            return True
        try:
            token = self._token_file.read_text().strip()
        except OSError as error:
            raise Retry("TokenUnreadable", f"{self._token_file}: {error}") from error
        return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())


def _answer(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=headers)
