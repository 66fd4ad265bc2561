"""The webhook `POST /v1/sources/s3/<source>`, which publishes the notifications of object stores on the
bus."""

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
"""Bytes of a post, at most; aiohttp's default."""

log = structlog.get_logger(__name__)


class Webhook:
    """Stores notifications on the bus.

    It answers 204 when the bus has stored all changes, 4xx with the name of the invalid field, and 503 if the
    store must try again.

    Args:
        bus: publishes the changes.
        clock: the time of changes for which the store reports none.
        metrics: counts the answers.
        tokens: a folder with a file for each source, with the source's name. Each line is a bearer token that
            the store may send. The file is read at each post, so tokens may change. Requests without such a
            token are refused, and a token is valid for one source only.
    """

    def __init__(self, bus: Publisher, clock: Clock, metrics: Metrics, tokens: Path) -> None:
        self._bus = bus
        self._clock = clock
        self._metrics = metrics
        self._tokens = tokens

    @property
    def route(self) -> web.RouteDef:
        """The route for the service's HTTP server."""
        return web.post(ROUTE, self.receive)

    async def receive(self, request: web.Request) -> web.Response:
        """Handle a post. The body is read only after the token was checked."""
        source = request.match_info["source"]
        try:
            if not self._is_allowed(source, request.headers.get("Authorization", "")):
                self._metrics.notified("unauthorized")
                return _answer(401, "Authorization: send a bearer token of this source")
            await self.store(source, await request.read())
        except web.HTTPRequestEntityTooLarge:
            self._metrics.notified("refused")
            return _answer(413, f"body: at most {BODY_LIMIT} bytes; send fewer objects in one notification")
        except Permanent as error:
            self._metrics.notified("refused")
            return _answer(400, error.message)
        except Retry as error:
            self._metrics.notified("unavailable")
            log.warning("notification not stored, the store has to try again", error=str(error))
            return _answer(
                503,
                "not stored, for a reason outside of the request; try again",
                {"Retry-After": str(WEBHOOK_RETRY_INTERVAL_SECONDS)},
            )
        self._metrics.notified("stored")
        return web.Response(status=204)

    async def store(self, source: str, body: bytes) -> None:
        """Publish all changes in a body.

        Raises Permanent if the body is invalid, Retry if the bus is unavailable.
        """
        events = [n.event() for n in read_notifications(source, body, self._clock.now())]
        await gather_bounded(self._bus.publish(event) for event in events)

    def _is_allowed(self, source: str, given: str) -> bool:
        """Whether the request has a token of the source.

        Raises:
            Retry: the tokens cannot be read, or another source has the same token. Such requests are not
                accepted.
        """
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
            fault = f"{self._tokens}: the keys {', '.join(sorted((source, *others)))} have the same token"
            raise Retry("TokenShared", f"{fault}; give each source its own token")
        return is_given

    def _others_with(self, given: str, source: str) -> list[str]:
        """The other sources that have the token, too."""
        found = []
        for file in self._tokens.iterdir():
            # A file that cannot be read is reported when its own store sends a notification.
            with suppress(OSError, ValueError):
                if file.name != source and any(is_bearer(given, token) for token in _tokens(file)):
                    found.append(file.name)
        return found


def _tokens(file: Path) -> list[str]:
    lines = (line.strip() for line in file.read_text().splitlines())
    return [line for line in lines if line]


def _answer(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=headers)
