"""The connection. While the bus is open, a lost one is replaced in the background by a new client."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from nats.js import JetStreamContext

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.permissions import EVALUATOR
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.nats.errors import STREAM_MISSING, mapped
from paddlewheel.bus.nats.renewal import Renewal
from paddlewheel.bus.nats.tls import WrongCertificateError, explain, load_tls
from paddlewheel.core.errors import Permanent, Retry, Unavailable
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.tasks import end

CALL_TIMEOUT_SECONDS = 5.0
"""Seconds that any call may take, including the wait for the connection."""

_RECONNECT_INTERVAL_SECONDS = 0.25
_PING_INTERVAL_SECONDS = 10
_PINGS_MISSED = 2

log = LibraryLogger(__name__)

Listener = Callable[[], None]


class Connection:
    """One NATS connection. Calls wait for it up to `CALL_TIMEOUT_SECONDS` seconds, then raise Unavailable."""

    def __init__(self, access: Access, name: str) -> None:
        self._access = access
        self._url = _without_password(access.url)
        self._name = name
        self._client: Client | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._up, self._down = asyncio.Event(), asyncio.Event()
        self._closed = False
        self._trouble = ""
        self._was_connected = False
        self._is_over = False
        self._logged: dict[str, str] = {}
        self._listeners: set[Listener] = set()
        self._stream_missing: Listener = lambda: None
        self._renewal = Renewal()
        self.generation = 0
        """Changes with every lost connection. The server may have lost streams and deliveries."""

    async def client(self) -> Client:
        """The live client.

        Raises:
            Unavailable: there is no connection in time.
            Permanent: the server's certificate is wrong, and `Access.ends_with_wrong_certificate` is set.
        """
        if self._client is not None and self._client.is_connected:
            return self._client
        try:
            async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
                return await self._wait_connected()
        except TimeoutError:
            raise Unavailable("BusUnreachable", f"no connection to {self._url}{self.trouble}") from None

    async def jetstream(self) -> JetStreamContext:
        """JetStream's API over the live client. Raises Retry."""
        return (await self.client()).jetstream(timeout=CALL_TIMEOUT_SECONDS)

    @property
    def reads_nothing(self) -> bool:
        """Whether its role has no right to read. A refused request would have the rights renewed."""
        return self._access.role == EVALUATOR

    async def request(self, subject: str, data: bytes) -> bytes:
        """The answer to one message, which is repeated while no answer arrives. Raises Retry or Permanent."""
        answer = await (await self.client()).ask(subject, data, CALL_TIMEOUT_SECONDS, repeat=True)
        if answer is None:
            raise Retry("BusRefused", f"{subject}: no responders")
        return answer.data

    @asynccontextmanager
    async def calling(self, what: str) -> AsyncIterator[None]:
        """Run NATS calls that end after at most `CALL_TIMEOUT_SECONDS`, or as soon as the connection breaks.

        Raises:
            Unavailable: the time is over, or the connection is lost.
            Retry: the server refused for now.
            Permanent: the call can never succeed.
        """
        try:
            with mapped(what):
                async with asyncio.timeout(CALL_TIMEOUT_SECONDS) as limit:
                    stop_listening = self.on_lost(lambda: limit.reschedule(0.0))
                    try:
                        yield
                    finally:
                        stop_listening()
        except Retry as error:
            if error.reason == STREAM_MISSING:
                self._stream_missing()
            raise

    async def send(self, subject: str, data: bytes) -> bool:
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
        """Call `listener` whenever the connection breaks; returns a function that ends this."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def on_missing(self, listener: Listener) -> None:
        """Call `listener` whenever a stream turns out to be missing."""
        self._stream_missing = listener

    def suspect(self) -> None:
        """Ping the server because an answer is late; replace the connection when no pong arrives."""
        if self._client is not None:
            self._client.suspect()

    @property
    def connected(self) -> bool:
        """Whether the connection is up, as far as the client knows."""
        return self._client is not None and self._client.is_connected

    @property
    def cause(self) -> str:
        """The last error since the connection was lost; "" when there is none."""
        return self._trouble

    @property
    def trouble(self) -> str:
        """The cause in a form for the end of a message."""
        return f": {self.cause}" if self.cause else ""

    async def close(self) -> None:
        """End the connection; idempotent."""
        self._closed = True
        await end(self._keeper)

    async def _wait_connected(self) -> Client:
        while self._client is None or not self._client.is_connected:
            if self._closed:
                raise Retry("BusClosed", "the bus was closed by its owner")
            if self._is_over:
                raise Permanent("BusCertificateWrong", f"{self._url}{self.trouble}")
            if self._client is not None:
                self._lose(self._client)
            if self._keeper is None:
                self._keeper = asyncio.create_task(self._keep_connected(), name="nats connection")
            await self._up.wait()
        return self._client

    async def _keep_connected(self) -> None:
        while True:
            client = self._new_client()
            try:
                await self._connect(client)
                await self._down.wait()
            except Exception as error:
                # nats-py waits for a missing server. This one refused, or a file or address is wrong.
                self._trouble = _text_of(error)
                self._log_once(log.error, "bus cannot connect")
                if isinstance(error, WrongCertificateError) and self._ends_with_wrong_certificate:
                    self._is_over = True
                    self._up.set()
                    return
                await asyncio.sleep(_RECONNECT_INTERVAL_SECONDS)
            finally:
                self._renewal.end()
                self._lose(client)
                await client.discard()

    @property
    def _ends_with_wrong_certificate(self) -> bool:
        """Only before the first connection. Later, the authority's files may be half renewed."""
        return self._access.ends_with_wrong_certificate and not self._was_connected

    def _new_client(self) -> Client:
        access = self._access
        who = f"role {access.role}" if access.role else self._name
        client = Client(access.tls_dir, who, lambda: self._lose(client), makes_requests=not access.namespaces)
        return client

    async def _connect(self, client: Client) -> None:
        self._check_files()

        async def lost() -> None:
            self._lose(client)

        async def failed(error: Exception) -> None:
            if client.refused(error) and self._access.token_file:
                self._renewal.refused(partial(self._renew, client))
            self._note(error)

        self._renewal.begin()
        callbacks = {"disconnected_cb": lost, "closed_cb": lost, "error_cb": failed}
        servers = self._access.url.split(",")
        try:
            await client.open(servers, {**self._options(), **callbacks})
        except ssl.SSLCertVerificationError as error:
            why = await explain(error, servers[0], self._access.tls_dir, self._access.tls_hostname)
            raise WrongCertificateError(why) from error
        self._renewal.made()
        self._down.clear()
        self._client = client
        self._was_connected = True
        self._trouble = ""
        self._logged.clear()
        self._up.set()
        log.info("bus connected", url=self._url)
        if not client.is_connected:
            # The connection was lost before `self._client` was set, so `lost` did nothing.
            self._lose(client)

    def _lose(self, client: Client) -> None:
        """Replace a lost client; idempotent. A client that was never in use is ignored."""
        if client is not self._client:
            return
        self._client = None
        self._up.clear()
        self.generation += 1
        if not self._closed:
            log.warning("bus connection lost", url=self._url)
        client.lost()
        for listener in tuple(self._listeners):
            listener()
        self._down.set()

    def _renew(self, client: Client) -> None:
        log.warning(
            "connection is replaced to renew its rights: the server has refused a request", url=self._url
        )
        self._lose(client)

    def _check_files(self) -> None:
        """Raise for a missing or invalid file, which a server would otherwise not always reveal."""
        if self._access.creds_file:
            Path(self._access.creds_file).read_bytes()
        if self._access.tls_dir:
            load_tls(self._access.tls_dir)

    def _credentials(self) -> dict[str, str]:
        """The credentials, read again for every connection. Raises OSError."""
        if self._access.nkey_seed:
            return {"nkeys_seed_str": self._access.nkey_seed}
        if self._access.creds_file:
            return _file_credentials(Path(self._access.creds_file))
        if self._access.token_file:
            token = Path(self._access.token_file).read_text().strip()
            return {"user": self._access.role, "password": token}
        return {}

    def _options(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "tls_hostname": self._access.tls_hostname or None,
            "inbox_prefix": self._access.inbox_prefix or "_INBOX",
            "reconnect_time_wait": _RECONNECT_INTERVAL_SECONDS,
            "connect_timeout": 2,
            "ping_interval": _PING_INTERVAL_SECONDS,
            "max_outstanding_pings": _PINGS_MISSED,
            **self._credentials(),
            # No buffering while disconnected: a write must not be stored after its caller received an error.
            "pending_size": 0,
        }

    def _note(self, error: Exception) -> None:
        if isinstance(error, ssl.SSLCertVerificationError):
            # This error ends the attempt; `_connect` explains it.
            return
        if not self._trouble or not isinstance(error, OSError):
            # What a server reports explains more than the broken connection that follows.
            self._trouble = _text_of(error)
        self._log_once(log.warning, "bus client error", _text_of(error))

    def _log_once(self, write: Callable[..., None], event: str, error: str = "") -> None:
        """Log an error once until it changes or the connection is up: it may occur several times a second."""
        error = error or self._trouble
        if self._logged.get(event) != error:
            self._logged[event] = error
            write(event, url=self._url, error=error)


def _file_credentials(file: Path) -> dict[str, str]:
    """Options of nats-py for a credentials file, or for a file with only the seed of an nkey."""
    text = file.read_text().strip()
    return {"nkeys_seed_str": text} if text.startswith("S") else {"user_credentials": str(file)}


def _text_of(error: Exception) -> str:
    return str(error) if isinstance(error, WrongCertificateError) else f"{type(error).__name__}: {error}"


def _without_password(url: str) -> str:
    """The URL without credentials, for logs and messages."""
    return re.sub(r"//[^/@,]*@", "//", url)
