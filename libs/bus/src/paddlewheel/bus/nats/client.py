"""nats-py's client for one connection, with requests that end in time and TLS that cannot be skipped.

nats-py is used through its public API, with two exceptions (docs/decisions/0014): `_process_msg` is
overridden, and `discard` ends the tasks of `CLIENT_TASKS` and `SUBSCRIPTION_TASK`. A client is never
reconnected: `bus.nats.connection` replaces it, so that no state of a lost connection is used again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

import nats.aio.client
import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from typing_extensions import override

from paddlewheel.bus.nats.answers import Answers
from paddlewheel.bus.nats.errors import translated
from paddlewheel.bus.nats.tls import load_tls
from paddlewheel.core.errors import Retry, Unavailable
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.tasks import end

log = LibraryLogger(__name__)

_REPEATABLE = re.compile(
    r"\$JS\.API\.(INFO$|DIRECT\.GET\b|STREAM\.MSG\.GET\b|(STREAM|CONSUMER)\.(INFO|NAMES|LIST|CREATE)\b)"
)
"""Requests of JetStream's API that may be sent twice."""
_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')
_PROBE_TIMEOUT_SECONDS = 3
"""Seconds in which the server must answer a ping when a connection may be dead."""
_CLOSE_TIMEOUT_SECONDS = 1.0

NOT_PERMITTED = "NotPermitted"
"""Reason of the Retry when the server's permissions forbid a request."""
CLIENT_TASKS = ("_reading_task", "_flusher_task", "_ping_interval_task")
SUBSCRIPTION_TASK = "_wait_for_msgs_task"
"""Private attributes of nats-py's client and subscription that hold their tasks."""
UNREADABLE = "unreadable-headers"
"""The header that holds a block of unreadable headers, in base64."""


class Client(nats.aio.client.Client):
    """One connection to the server.

    Args:
        tls_dir: folder with `ca.crt`; TLS is required unless it is "".
        who: name of the client in messages about missing permissions.
        on_dead: called when the server no longer answers over this connection.
        makes_requests: subscribe to an inbox for answers.
    """

    def __init__(
        self, tls_dir: str, who: str, on_dead: Callable[[], None], *, makes_requests: bool = True
    ) -> None:
        super().__init__()
        self._tls_dir = tls_dir
        self._who = who
        self._on_dead = on_dead
        self._is_secured = False
        self._answers = Answers(self.suspect)
        self._inbox = ""
        self._no_answers = "" if makes_requests else f"{who} makes no requests"
        """Why no answer can arrive; "" when answers arrive."""
        self.forbidden: set[str] = set()
        """Subjects, in lower case, that the server's permissions forbid to subscribe to."""
        self._probing: asyncio.Task[None] | None = None
        self._subscribed: WeakSet[Subscription] = WeakSet()
        self._flushing: set[asyncio.Task[None]] = set()

    async def open(self, servers: list[str], options: dict[str, Any]) -> None:
        """Connect once, wait for a server that is away, and subscribe to the inbox.

        Raises:
            nats.errors.Error, OSError: the server refused, the connection broke, or it has no TLS.
        """
        if self._tls_dir:
            options = {**options, **self._guarded_credentials(servers[0], options)}
        await self.connect(servers, allow_reconnect=False, max_reconnect_attempts=-1, **options)
        if not self.is_connected:
            # A server with TLS does this when it does not accept the client's certificate.
            raise nats.errors.Error("the server closed the connection")
        self._inbox = self.new_inbox()
        if self._no_answers:
            return
        await self.subscribe(f"{self._inbox}.*", cb=self._on_answer)

    async def discard(self) -> None:
        """Close the connection and end its tasks, without waiting for a server that does not answer."""
        await end(self._probing, *self._flushing)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
                await self.close()
        except Exception as error:
            # nats-py's `close` fails in many ways for a client that was never connected.
            log.info("nats-py could not close its client", error=repr(error))
        finally:
            left = self._left_behind()
            for task in left:
                task.add_done_callback(_retrieve_error)
            await end(*left)

    @override
    async def subscribe(self, *args: Any, **options: Any) -> Subscription:
        """Subscribe, and remember the subscription so that `discard` ends its task."""
        subscription = await super().subscribe(*args, **options)
        self._subscribed.add(subscription)
        return subscription

    def _left_behind(self) -> list[asyncio.Task[None]]:
        """The running tasks of nats-py, which has no public way to end them.

        When the connection breaks while commands wait to be sent, nats-py's `close` fails half-way: the error
        of the read loop is never read, and subscriptions wait forever.
        """
        tasks = [getattr(self, name, None) for name in CLIENT_TASKS]
        tasks += [getattr(subscription, SUBSCRIPTION_TASK, None) for subscription in self._subscribed]
        return [task for task in tasks if isinstance(task, asyncio.Task)]

    @property
    @override
    def ssl_context(self) -> ssl.SSLContext:
        """Read by nats-py when the handshake begins. Raises nats.errors.Error."""
        if not self._tls_dir:
            return super().ssl_context
        context = load_tls(self._tls_dir)
        self._is_secured = True
        return context

    async def ask(
        self,
        subject: str,
        data: bytes,
        within: float,
        *,
        headers: dict[str, str] | None = None,
        repeat: bool = False,
    ) -> Msg | None:
        """The answer to one message; None when the subject has no subscriber.

        Args:
            repeat: send it again while no answer arrives; the server must recognize a repetition.

        Raises:
            Unavailable: no answer within `within` seconds, or the connection broke.
            Retry: `NotPermitted`.
            Permanent: a malformed subject or header.
        """
        if self._no_answers:
            raise Retry(NOT_PERMITTED, f"{subject}: {self._no_answers}")
        token, answer = self._answers.expect(subject, within)
        send = partial(self._send, subject, data, f"{self._inbox}.{token}", headers)
        try:
            await send()
            if repeat:
                self._answers.repeat(token, send)
            return await answer
        finally:
            self._answers.forget(token)

    @override
    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,
        old_style: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        """`ask` for nats-py's JetStream API. Raises NoRespondersError without a subscriber."""
        repeat = bool(_REPEATABLE.match(subject))
        answer = await self.ask(subject, payload, timeout, headers=headers, repeat=repeat)
        if answer is None:
            raise nats.errors.NoRespondersError
        return answer

    @override
    async def flush(self, timeout: int = 10) -> None:
        """Return when the server has processed all earlier commands. A connection without an answer is dead.

        A cancelled caller leaves the flush running: the PONG of a cancelled flush would end nats-py's read
        loop.
        """
        flush = asyncio.create_task(self._flush_twice(timeout), name="nats flush")
        self._flushing.add(flush)
        flush.add_done_callback(self._flushing.discard)
        flush.add_done_callback(_retrieve_error)
        await asyncio.wait((flush,))
        if flush.cancelled():
            # `discard` has cancelled the flush, not the caller.
            raise nats.errors.ConnectionClosedError
        flush.result()

    @property
    def waiting(self) -> int:
        """The number of requests without an answer."""
        return len(self._answers)

    def suspect(self) -> None:
        """Ping the server because an answer is late; report the connection as dead when no pong arrives.
        nats-py's read loop may end without an event, and the connection then still counts as connected."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(), name="nats probe")

    def refused(self, error: Exception) -> bool:
        """Whether an error of the server is a missing permission. Requests that need it then fail."""
        violation = _VIOLATION.search(str(error))
        if violation is None:
            return False
        what, subject = violation.groups()
        if what == "publish":
            self._answers.fail(self._not_permitted, subject)
        else:
            self._forbid(subject)
        return True

    def _forbid(self, subject: str) -> None:
        self.forbidden.add(subject)
        if subject == f"{self._inbox}.*".lower():
            self._no_answers = f"{self._who} may not subscribe to its inbox {subject}"
            self._answers.fail(lambda asked: Retry(NOT_PERMITTED, f"{asked}: {self._no_answers}"))

    def lost(self) -> None:
        """Fail all requests, because the connection broke."""
        self._answers.fail(lambda asked: Unavailable("BusUnreachable", f"{asked}: the connection broke"))

    async def _send(self, subject: str, data: bytes, reply: str, headers: dict[str, str] | None) -> None:
        """Publish; faster than with `mapped`. Raises Retry or Permanent."""
        try:
            await self.publish(subject, data, reply, headers)
        except (nats.errors.Error, OSError) as error:
            raise translated(subject, error) from error

    def _not_permitted(self, subject: str) -> Retry:
        """A Retry: the permission may be granted later, and no fact must be lost until then."""
        return Retry(
            NOT_PERMITTED, f"{self._who} may not publish to {subject}: the server's permissions forbid it"
        )

    async def _flush_twice(self, timeout: int) -> None:
        """Flush twice: nats-py's first PING overtakes commands that wait for its flusher."""
        try:
            await super().flush(timeout)
            await super().flush(timeout)
        except nats.errors.FlushTimeoutError:
            self._on_dead()
            raise

    async def _probe(self) -> None:
        try:
            await self.rtt(_PROBE_TIMEOUT_SECONDS)
        except Exception:
            self._on_dead()

    async def _on_answer(self, msg: Msg) -> None:
        self._answers.take(msg.subject.rpartition(".")[2], msg)

    def _guarded_credentials(self, server: str, options: dict[str, Any]) -> dict[str, Callable[[], str]]:
        """The credentials of the options, else of the URL, as functions that fail without TLS. nats-py calls
        them before it sends its first command. An empty token means no credentials."""

        def guarded(value: str) -> Callable[[], str]:
            def reveal() -> str:
                if not self._is_secured:
                    raise nats.errors.Error("the server offers no TLS, but nats_tls_dir requires it")
                return value

            return reveal

        if "password" in options:
            return {name: guarded(options[name]) for name in ("user", "password")}
        url = urlsplit(server)
        name, password = unquote(url.username or ""), url.password
        if password is None:
            return {"token": guarded(name)}
        return {"user": guarded(name), "password": guarded(unquote(password))}

    @override
    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """Deliver also messages that nats-py cannot read.

        The server stores any bytes as headers, and subjects that are not UTF-8. Either ends nats-py's read
        loop at every redelivery, so a consumer would never get past the message.
        """
        try:
            await super()._process_msg(sid, subject, reply, data, headers)
        except (IndexError, ValueError):
            text = bytes(subject).decode(errors="backslashreplace").encode()
            for block in (headers, _escaped(headers)):
                with contextlib.suppress(IndexError, ValueError):
                    return await super()._process_msg(sid, text, reply, data, block)


def _retrieve_error(task: asyncio.Task[None]) -> None:
    """Read the error of a task; otherwise asyncio logs it when the task is collected."""
    _ = task.cancelled() or task.exception()


def _escaped(block: bytes | None) -> bytes:
    return b"NATS/1.0\r\n%b: %b\r\n\r\n" % (UNREADABLE.encode(), base64.b64encode(block or b""))
