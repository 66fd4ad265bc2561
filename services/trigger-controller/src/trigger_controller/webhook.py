"""`POST /v1/sources/s3/<source>`: object stores' notifications become messages on the bus."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import structlog
from aiohttp import web

from paddlewheel.bus.ports import Publisher
from paddlewheel.contracts.crds.trigger import SOURCE, SOURCE_LENGTH
from paddlewheel.core.bearer import is_bearer
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.operator.concurrency import gather_bounded
from trigger_controller.domain.notifications import read_notifications
from trigger_controller.metrics import Metrics
from trigger_controller.timing import WEBHOOK_RETRY_INTERVAL_SECONDS

ROUTE = "/v1/sources/s3/{source}"
BODY_LIMIT = 1024 * 1024
"""Bytes of a post: aiohttp's own limit."""

log = structlog.get_logger(__name__)


class Webhook:
    """Answers 204 once the bus has stored every change, 4xx naming the field that is wrong, 503 to try again.

    Args:
        tokens: a folder with a file for each source, named as it; each line of it is a bearer token that the
            store may send. Read at each post, so that tokens may change. Nobody else gets in, and no token of
            one source is good for another.
    """

    def __init__(self, bus: Publisher, clock: Clock, metrics: Metrics, tokens: Path) -> None:
        self._bus = bus
        self._clock = clock
        self._metrics = metrics
        self._tokens = tokens

    @property
    def route(self) -> web.RouteDef:
        """For the service's HTTP server."""
        return web.post(ROUTE, self.receive)

    async def receive(self, request: web.Request) -> web.Response:
        """One post of one store. The body is read only for those who may send it."""
        source = request.match_info["source"]
        try:
            if not self._is_allowed(source, request.headers.get("Authorization", "")):
                self._metrics.notified("unauthorized")
                return _answer(401, "Authorization: send a bearer token of this source")
            await self.store(source, await request.read())
        except web.HTTPRequestEntityTooLarge:
            self._metrics.notified("refused")
            return _answer(413, f"body: at most {BODY_LIMIT} bytes; notify of fewer objects at once")
        except Permanent as error:
            self._metrics.notified("refused")
            return _answer(400, error.message)
        except Retry as error:
            self._metrics.notified("unavailable")
            log.warning("notification not stored, the store has to try again", error=str(error))
            return _answer(
                503,
                "not stored, by no fault of the body; try again",
                {"Retry-After": str(WEBHOOK_RETRY_INTERVAL_SECONDS)},
            )
        self._metrics.notified("stored")
        return web.Response(status=204)

    async def store(self, source: str, body: bytes) -> None:
        """Return once the bus holds every change in the body. Raises Permanent, Retry."""
        events = [n.event() for n in read_notifications(source, body, self._clock.now())]
        await gather_bounded(self._bus.publish(event) for event in events)

    def _is_allowed(self, source: str, given: str) -> bool:
        """Raises Retry when the tokens cannot be read, or are not the source's alone: nobody is let in by
        mistake."""
        if len(source) > SOURCE_LENGTH or not re.fullmatch(SOURCE, source):
            return False
        try:
            tokens = _tokens(self._tokens / source)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            raise Retry("TokensUnreadable", f"{self._tokens / source}: {error}") from error
        is_given = any(is_bearer(given, token) for token in tokens)
        if is_given and (others := self._others_with(given, source)):
            fault = f"{self._tokens}: the keys {', '.join(sorted((source, *others)))} hold the same token"
            raise Retry("TokenShared", f"{fault}; give each source its own")
        return is_given

    def _others_with(self, given: str, source: str) -> list[str]:
        """Other sources that the token would let in as well."""
        found = []
        for file in self._tokens.iterdir():
            # One that cannot be read lets nobody in, and is reported when its store notifies.
            with suppress(OSError, ValueError):
                if file.name != source and any(is_bearer(given, token) for token in _tokens(file)):
                    found.append(file.name)
        return found


def _tokens(file: Path) -> list[str]:
    lines = (line.strip() for line in file.read_text().splitlines())
    return [line for line in lines if line]


def _answer(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=headers)
