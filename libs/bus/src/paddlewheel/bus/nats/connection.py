"""The connection: made in the background, kept for ever, and never a buffer of stale commands."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nats.js import JetStreamContext

from paddlewheel.bus.access import Access
from paddlewheel.bus.nats.client import SecureClient, load_tls
from paddlewheel.bus.nats.errors import STREAM_MISSING, mapped
from paddlewheel.core.errors import Retry
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.tasks import end

TIMEOUT = 5.0
"""Seconds any one call may take, waiting for the connection included."""

_RECONNECT_WAIT = 0.25
_PING_EVERY = 10
_PINGS_MISSED = 2

log = LibraryLogger(__name__)

Listener = Callable[[], None]

_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')


class Link:
    """One NATS connection. Calls wait for it up to `TIMEOUT` seconds, then raise Retry."""

    def __init__(self, access: Access, name: str) -> None:
        self._access = access
        self._url = _without_password(access.url)
        self._name = name
        self._client: SecureClient | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._closed = False
        self._said = self._trouble = ""
        self._listeners: set[Listener] = set()
        self._stream_missing: Listener = lambda: None
        self.generation = 0
        """Changes with every loss: what was ensured or delivered before may be unknown to the server now."""

    async def client(self) -> SecureClient:
        """The live client. Raises Retry when there is none in time."""
        if self._client is not None and self._client.is_connected:
            return self._client
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._wait_connected()
        except TimeoutError:
            raise Retry("BusUnreachable", f"no connection to {self._url}{self.trouble}") from None

    async def _wait_connected(self) -> SecureClient:
        while self._client is None or not self._client.is_connected:
            self._keep_connecting()
            await self._up.wait()
        return self._client

    async def jetstream(self) -> JetStreamContext:
        """JetStream's API over the live client. Raises Retry."""
        return (await self.client()).jetstream(timeout=TIMEOUT)

    async def request(self, subject: str, data: bytes) -> bytes:
        """The answer to one message, which is repeated while none comes. Raises Retry or Permanent."""
        answer = await (await self.client()).ask(subject, b"", data, TIMEOUT, repeat=True)
        if answer is None:
            raise Retry("BusRefused", f"{subject}: nobody answers there")
        return answer.data

    @asynccontextmanager
    async def calling(self, what: str) -> AsyncIterator[None]:
        """Run NATS calls that end at the latest after `TIMEOUT`, or as soon as the connection breaks.

        Raises:
            Retry: the time is over, the connection is lost, or the server refused for now.
            Permanent: what can never work.
        """
        try:
            with mapped(what):
                async with asyncio.timeout(TIMEOUT) as limit:
                    stop_listening = self.on_lost(lambda: limit.reschedule(0.0))
                    try:
                        yield
                    finally:
                        stop_listening()
        except Retry as error:
            if error.reason == STREAM_MISSING:
                self._stream_missing()
            raise

    async def tell(self, subject: str, data: bytes) -> bool:
        """Send without an answer; False when there is no connection."""
        if self._client is None or not self._client.is_connected:
            return False
        try:
            with mapped(subject):
                await self._client.publish(subject, data)
        except Retry:
            return False
        return True

    def on_lost(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` whenever the connection breaks; returns how to stop that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def on_missing(self, listener: Listener) -> None:
        """Call `listener` whenever a stream turns out to be missing."""
        self._stream_missing = listener

    @property
    def connected(self) -> bool:
        """The socket is up as far as we know."""
        return self._client is not None and self._client.is_connected

    @property
    def trouble(self) -> str:
        """What goes wrong since the last connection, for the end of a message; "" when nothing does."""
        return f": {self._trouble}" if self._trouble else ""

    async def close(self) -> None:
        """End the connection; idempotent."""
        self._closed = True
        await end(self._connecting)
        if self._client is not None:
            await self._client.close()

    def _keep_connecting(self) -> None:
        """nats-py reconnects by itself, but gives up for good on some server errors: then start anew."""
        if self._closed:
            raise Retry("BusClosed", "the bus was closed by its owner")
        self._up.clear()
        given_up = self._client is None or self._client.is_closed
        if given_up and (self._connecting is None or self._connecting.done()):
            self._connecting = asyncio.create_task(self._connect(), name="nats connect")

    async def _connect(self) -> None:
        access = self._access
        client = SecureClient(access.tls_dir, f"role {access.role}" if access.role else self._name)
        try:
            self._check_files()
            await client.connect(**self._options())
            await client.listen()
        except BaseException as error:
            await _discard(client)
            if not isinstance(error, Exception):
                raise
            # nats-py waits for an absent server by itself: this is a bad address or file.
            self._said = self._trouble = f"{type(error).__name__}: {error}"
            log.error("bus cannot connect", url=self._url, error=self._said)
            return
        self._client = client
        self.generation += 1
        self._said = self._trouble = ""
        self._up.set()
        log.info("bus connected", url=self._url)

    def _check_files(self) -> None:
        """They are read only when a server asks; a missing one is a fault in any case."""
        if self._access.creds_file:
            Path(self._access.creds_file).read_bytes()
        if self._access.tls_dir:
            load_tls(self._access.tls_dir)

    def _options(self) -> dict[str, Any]:
        return {
            "servers": self._access.url.split(","),
            "name": self._name,
            "user_credentials": self._access.creds_file or None,
            "tls_hostname": self._access.tls_hostname or None,
            "inbox_prefix": self._access.inbox_prefix or "_INBOX",
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": _RECONNECT_WAIT,
            "connect_timeout": 2,
            "ping_interval": _PING_EVERY,
            "max_outstanding_pings": _PINGS_MISSED,
            # No buffering while disconnected: a write must not land after its caller was told it failed.
            "pending_size": 0,
            "error_cb": self._on_error,
            "disconnected_cb": self._on_down,
            "closed_cb": self._on_down,
            "reconnected_cb": self._on_reconnected,
        }

    async def _on_reconnected(self) -> None:
        self._said = self._trouble = ""
        self._up.set()
        log.info("bus reconnected", url=self._url)

    async def _on_down(self) -> None:
        if self._up.is_set() and not self._closed:
            log.warning("bus connection lost", url=self._url)
        self._up.clear()
        self.generation += 1
        if self._client is not None:
            self._client.lost()
        for listener in tuple(self._listeners):
            listener()

    async def _on_error(self, error: Exception) -> None:
        """The same trouble is said once until the connection is up: it may come several times a second."""
        text = f"{type(error).__name__}: {error}"
        if refusal := _VIOLATION.search(text):
            self._refused(*refusal.groups())
        if not self._trouble or not isinstance(error, OSError):
            # What a server says explains more than the broken connection that follows.
            self._trouble = text
        if text != self._said:
            self._said = text
            log.warning("bus client error", error=text)

    def _refused(self, what: str, subject: str) -> None:
        if self._client is None:
            return
        if what == "publish":
            self._client.refuse_publish(subject)
        else:
            self._client.refuse_subscribe(subject)


def _without_password(url: str) -> str:
    """For logs and messages."""
    return re.sub(r"//[^/@,]*@", "//", url)


async def _discard(client: SecureClient) -> None:
    """Close a client that was never connected; nats-py asserts otherwise."""
    with contextlib.suppress(Exception):
        await client.close()
