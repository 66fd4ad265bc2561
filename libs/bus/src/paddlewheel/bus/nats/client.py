"""nats-py's client for one connection: requests that end in time, and TLS that is never left out.

nats-py is used through its public API, with two exceptions (docs/decisions/0014): `_process_msg` is
overridden, and `discard` ends the tasks of `CLIENT_TASKS` and `SUBSCRIPTION_TASK`. A client is never
reconnected: `bus.nats.connection` replaces it, so that nothing of a lost connection is carried over.
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
"""Seconds a server may take to answer a ping once a connection is suspected to be dead."""
_CLOSE_TIMEOUT_SECONDS = 1.0

NOT_PERMITTED = "NotPermitted"
"""Reason of the Retry when the server's permissions forbid what was asked."""
CLIENT_TASKS = ("_reading_task", "_flusher_task", "_ping_interval_task")
SUBSCRIPTION_TASK = "_wait_for_msgs_task"
"""Private attributes of nats-py's client and subscription that hold their tasks."""
UNREADABLE = "unreadable-headers"
"""The header that holds, in base64, bytes that are no headers."""


class Client(nats.aio.client.Client):
    """One connection to the server; `who` is named when permissions are missing.

    Args:
        tls_dir: folder of certificates; TLS is demanded unless it is "".
        on_dead: called when the server no longer answers over this connection.
        is_asking: it makes requests, so it listens for answers.
    """

    def __init__(
        self, tls_dir: str, who: str, on_dead: Callable[[], None], *, is_asking: bool = True
    ) -> None:
        super().__init__()
        self._tls_dir = tls_dir
        self._who = who
        self._on_dead = on_dead
        self._is_secured = False
        self._answers = Answers(self.suspect)
        self._inbox = ""
        self._deaf = "" if is_asking else f"{who} makes no requests"
        self.forbidden: set[str] = set()
        """Subjects in lower case that the server's permissions do not let it subscribe to."""
        self._probing: asyncio.Task[None] | None = None
        self._subscribed: WeakSet[Subscription] = WeakSet()
        self._flushing: set[asyncio.Task[None]] = set()

    async def open(self, servers: list[str], options: dict[str, Any]) -> None:
        """Connect once, waiting for a server that is away, and listen for answers.

        Raises:
            nats.errors.Error, OSError: refused, broken, or not secure.
        """
        if self._tls_dir:
            options = {**options, **self._guarded_credentials(servers[0], options)}
        await self.connect(servers, allow_reconnect=False, max_reconnect_attempts=-1, **options)
        if not self.is_connected:
            # What a server does that speaks TLS and does not accept the client's certificate.
            raise nats.errors.Error("the server closed the connection")
        self._inbox = self.new_inbox()
        if self._deaf:
            return
        await self.subscribe(f"{self._inbox}.*", cb=self._on_answer)

    async def discard(self) -> None:
        """End it, whatever state it is in; a server that does not answer delays nothing."""
        await end(self._probing, *self._flushing)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
                await self.close()
        except Exception as error:
            # nats-py's `close` fails in many ways for a client that was never connected.
            log.info("client not closed in order", error=repr(error))
        finally:
            left = self._left_behind()
            for task in left:
                task.add_done_callback(_look_at)
            await end(*left)

    @override
    async def subscribe(self, *args: Any, **options: Any) -> Subscription:
        """As nats-py's; `discard` ends what reads the subscription."""
        subscription = await super().subscribe(*args, **options)
        self._subscribed.add(subscription)
        return subscription

    def _left_behind(self) -> list[asyncio.Task[None]]:
        """The tasks of nats-py. When the connection breaks while something is still to be sent, its own
        closing fails half-way: the read loop ends with an error that nobody looks at, and subscriptions go on
        waiting. There is no public way to end them."""
        tasks = [getattr(self, name, None) for name in CLIENT_TASKS]
        tasks += [getattr(subscription, SUBSCRIPTION_TASK, None) for subscription in self._subscribed]
        return [task for task in tasks if isinstance(task, asyncio.Task)]

    @property
    @override
    def ssl_context(self) -> ssl.SSLContext:
        """Asked for when the handshake begins. Raises nats.errors.Error."""
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
        """The answer to one message, None when nobody listens on the subject.

        Args:
            repeat: send it again while no answer comes; the server must recognize a repetition.

        Raises:
            Unavailable: no answer within `within` seconds, or the connection broke.
            Retry: `NotPermitted`.
            Permanent: a malformed subject or header.
        """
        if self._deaf:
            raise Retry(NOT_PERMITTED, f"{subject}: {self._deaf}")
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
        """As `ask`, for nats-py's JetStream API. Raises NoRespondersError when nobody listens."""
        repeat = bool(_REPEATABLE.match(subject))
        answer = await self.ask(subject, payload, timeout, headers=headers, repeat=repeat)
        if answer is None:
            raise nats.errors.NoRespondersError
        return answer

    @override
    async def flush(self, timeout: int = 10) -> None:
        """Return when the server has processed all commands issued before; a connection on which none answers
        is reported dead.

        The PONG of a cancelled flush would end nats-py's read loop, so a cancelled caller leaves it running.
        """
        flush = asyncio.create_task(self._flush_twice(timeout), name="nats flush")
        self._flushing.add(flush)
        flush.add_done_callback(self._flushing.discard)
        flush.add_done_callback(_look_at)
        await asyncio.wait((flush,))
        if flush.cancelled():
            # By `discard`; the caller was not.
            raise nats.errors.ConnectionClosedError
        flush.result()

    @property
    def waiting(self) -> int:
        """Requests whose answers are still to come."""
        return len(self._answers)

    def suspect(self) -> None:
        """Something did not come in time: check that the server answers, and report it when it does not.

        nats-py's read loop may end without notice and leaves a connection that looks sound.
        """
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(), name="nats probe")

    def refused(self, error: Exception) -> bool:
        """The server reported an error; whether it is a missing permission, which ends the requests that need
        it at once."""
        violation = _VIOLATION.search(str(error))
        if violation is None:
            return False
        what, subject = violation.groups()
        if what == "publish":
            self._answers.fail(self._not_permitted, subject)
        else:
            self._is_unheard(subject)
        return True

    def _is_unheard(self, subject: str) -> None:
        self.forbidden.add(subject)
        if subject == f"{self._inbox}.*".lower():
            self._deaf = f"{self._who} may not subscribe to its inbox {subject}"
            self._answers.fail(lambda asked: Retry(NOT_PERMITTED, f"{asked}: {self._deaf}"))

    def lost(self) -> None:
        """The connection broke: end all requests."""
        self._answers.fail(lambda asked: Unavailable("BusUnreachable", f"{asked}: the connection broke"))

    async def _send(self, subject: str, data: bytes, reply: str, headers: dict[str, str] | None) -> None:
        """Faster than with `mapped`. Raises Retry or Permanent."""
        try:
            await self.publish(subject, data, reply, headers)
        except (nats.errors.Error, OSError) as error:
            raise translated(subject, error) from error

    def _not_permitted(self, subject: str) -> Retry:
        """Not Permanent: permissions may be granted while we run, and no fact must be lost until then."""
        return Retry(
            NOT_PERMITTED, f"{self._who} may not publish to {subject}: the server's permissions forbid it"
        )

    async def _flush_twice(self, timeout: int) -> None:
        """nats-py's PING overtakes commands that wait for its flusher; the second comes behind them."""
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
        """Those of the options, else of the URL.

        nats-py asks for them before it sends its first command, which is when it must not go on without TLS;
        an empty token is none.
        """

        def guarded(value: str) -> Callable[[], str]:
            def reveal() -> str:
                if not self._is_secured:
                    raise nats.errors.Error("the server offers no TLS, but nats_tls_dir asks for it")
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
        """Deliver what nats-py cannot read as well.

        The server stores any bytes as headers, and subjects that are not UTF-8. nats-py's
        read loop ends at either, and would at every redelivery: consumers would never get past the message.
        """
        try:
            await super()._process_msg(sid, subject, reply, data, headers)
        except (IndexError, ValueError):
            text = bytes(subject).decode(errors="backslashreplace").encode()
            for block in (headers, _escaped(headers)):
                with contextlib.suppress(IndexError, ValueError):
                    return await super()._process_msg(sid, text, reply, data, block)


def _look_at(task: asyncio.Task[None]) -> None:
    """Or asyncio complains when the task is collected."""
    _ = task.cancelled() or task.exception()


def _escaped(block: bytes | None) -> bytes:
    return b"NATS/1.0\r\n%b: %b\r\n\r\n" % (UNREADABLE.encode(), base64.b64encode(block or b""))
