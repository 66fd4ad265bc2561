"""The HTTP endpoints /healthz, /readyz and /metrics of every service, and limits for their clients."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from ssl import SSLContext

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from paddlewheel.core.server_tls import serving_tls
from paddlewheel.core.tasks import end
from paddlewheel.core.telemetry import metrics_text

Check = Callable[[], Awaitable[bool | str]]
"""Returns True when ready. Otherwise returns False, or a text with the cause."""
CHECK_TIMEOUT_SECONDS = 2.0
"""Maximum duration of a readiness check."""
_REOPENING_INTERVAL_SECONDS = 1.0
"""The time until connections are accepted again when the process has too many open files."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Limits:
    """Limits on the connections of clients.

    Args:
        connections: maximum number of open connections. Connections without a TLS handshake count, too. Any
            further connection is closed; it gets 503 first when the server has no TLS.
        idle: maximum seconds until the head of a request arrives, counted from the start of the connection or
            the end of the previous answer. This is longer than the 90 s that Go's proxies (Traefik, Knative)
            keep an idle connection: if the server closed first, a request already sent could fail.
        answer: maximum seconds until the client has read an answer.
        handshake: maximum seconds until the TLS handshake is done, and until the client has confirmed the end
            of its connection.
        of_one_address: maximum number of open connections from one address; 0 means no limit.
        headers: maximum number of headers in a request, of 8 KiB each. They take memory until the head is
            complete.
    """

    connections: int = 1000
    idle: float = 120.0
    answer: float = 60.0
    handshake: float = 10.0
    of_one_address: int = 0
    headers: int = 64


_USUAL = Limits()


@asynccontextmanager
async def serve(
    port: int,
    checks: Mapping[str, Check] | None,
    extra_routes: Iterable[web.RouteDef] = (),
    *,
    host: str = "0.0.0.0",
    limits: Limits = _USUAL,
    tls_dir: Path | None = None,
) -> AsyncIterator[int]:
    """Serve while the context is open. Yields the port that was bound.

    Args:
        port: port to listen on. 0 selects a free port.
        checks: readiness checks by name. /readyz returns 200 when all are True, else 503. Its body has the
            result of each check. With None only the extra routes are served, for clients outside the cluster.
        extra_routes: further endpoints of the service.
        tls_dir: folder with tls.crt and tls.key, which may be renewed at any time. None means plain HTTP.
    """
    tls = None if tls_dir is None else serving_tls(tls_dir)
    app = _application(checks, extra_routes, limits)
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=2.0,
        keepalive_timeout=limits.idle,
        max_headers=limits.headers,
    )
    await runner.setup()
    try:
        async with _listening(runner, host, port, limits, tls) as bound:
            yield bound
    finally:
        await runner.cleanup()


async def send(request: web.Request, answer: web.StreamResponse, within: float) -> bool:
    """Send an answer, and return when the kernel has all of it.

    Returns:
        False when the client closed the connection, or was disconnected because it did not read in time.
    """
    transport = request.transport
    if transport is None or transport.is_closing():
        return False
    # Otherwise the transport keeps a part, and waits for the client without a limit even after `close`.
    transport.set_write_buffer_limits(0)
    try:
        async with asyncio.timeout(within):
            await answer.prepare(request)
            await answer.write_eof()
    except ConnectionError:
        return False
    except TimeoutError:
        log.warning("client did not read its answer in time")
        transport.abort()
        return False
    return True


@asynccontextmanager
async def _listening(
    runner: web.AppRunner, host: str, port: int, limits: Limits, tls: SSLContext | None
) -> AsyncIterator[int]:
    assert runner.server is not None, "the runner is set up"
    with socket.create_server((host, port), backlog=128) as listening:
        listening.setblocking(False)
        door = _Door(runner.server, limits, tls, listening)
        door.open()
        try:
            yield listening.getsockname()[1]
        finally:
            await door.close()


class _Door:
    """Accepts connections, and refuses those beyond the limit.

    The sites of aiohttp cannot limit the number of connections. The servers of asyncio report a connection
    after its TLS handshake, so connections without a handshake would not count.
    """

    def __init__(
        self, server: web.Server, limits: Limits, tls: SSLContext | None, listening: socket.socket
    ) -> None:
        self._server, self._limits, self._tls, self._listening = server, limits, tls, listening
        self._opening: set[asyncio.Task[None]] = set()
        self._open: Counter[str] = Counter()
        """Connections by address, also during their handshake."""
        self._number = 0
        self._reopening: asyncio.TimerHandle | None = None

    def open(self) -> None:
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    async def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listening)
        if self._reopening is not None:
            self._reopening.cancel()
        # Each task has begun then, and closes its connection when it is cancelled.
        await asyncio.sleep(0)
        await end(*self._opening)

    def _accept(self) -> None:
        try:
            connection, (address, *_) = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            # The client is gone already.
            return
        except OSError as error:
            log.warning("cannot accept connections", why=repr(error))
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listening)
            self._reopening = loop.call_later(_REOPENING_INTERVAL_SECONDS, self.open)
            return
        if self._is_full(address):
            _refuse(connection, is_plain=self._tls is None)
            return
        self._number += 1
        self._open[address] += 1
        opening = asyncio.create_task(self._pass(connection, address))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    def _is_full(self, address: str) -> bool:
        own = self._limits.of_one_address or self._limits.connections
        return self._number >= self._limits.connections or self._open.get(address, 0) >= own

    async def _pass(self, connection: socket.socket, address: str) -> None:
        """To the server, after the handshake."""
        within = None if self._tls is None else self._limits.handshake
        protocol = _Counted(self._server(), partial(self._left, address))
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=within,
                ssl_shutdown_timeout=within,
            )
        except OSError:
            # Without a handshake in time, or after a failed one, the loop closes the connection.
            protocol.end()

    def _left(self, address: str) -> None:
        self._number -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class _Counted(asyncio.Protocol):
    """The server's end of a connection. Calls `left` once, when the connection ends."""

    def __init__(self, protocol: asyncio.Protocol, left: Callable[[], None]) -> None:
        self._protocol, self._left = protocol, left
        self._has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end()
        self._protocol.connection_lost(exc)

    def end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._left()


def _refuse(connection: socket.socket, *, is_plain: bool) -> None:
    head = "HTTP/1.1 503 Service Unavailable", "Retry-After: 1", "Content-Length: 0", "Connection: close"
    with connection, suppress(OSError):
        if is_plain:
            connection.send("\r\n".join((*head, "", "")).encode())


def _application(
    checks: Mapping[str, Check] | None, extra_routes: Iterable[web.RouteDef], limits: Limits
) -> web.Application:
    @web.middleware
    async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            answer = await handler(request)
        except web.HTTPClientError as error:
            answer = _refusal(request, error)
        if not answer.prepared:
            await send(request, answer, limits.answer)
        return answer

    app = web.Application(middlewares=[answered])
    app.add_routes([] if checks is None else _usual_routes(checks))
    app.add_routes(extra_routes)
    return app


def _usual_routes(checks: Mapping[str, Check]) -> list[web.RouteDef]:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        results = {name: await _is_ready(name, check) for name, check in checks.items()}
        return web.json_response(results, status=200 if _all_true(results) else 503)

    async def metrics(_: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=metrics_text(), headers=headers)

    return [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]


def _refusal(request: web.Request, error: web.HTTPClientError) -> web.Response:
    """A refusal by aiohttp itself (unknown path or method), in JSON like all other refusals."""
    message = f"{request.method} {request.path[:200]}: {error.reason}"
    allowed = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
    return web.json_response({"error": message}, status=error.status, headers=allowed)


def _all_true(results: Mapping[str, bool | str]) -> bool:
    return all(result is True for result in results.values())


async def _is_ready(name: str, check: Check) -> bool | str:
    """The result of a check. A check that raises or hangs has failed: the endpoint must always answer."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
            return await check()
    except Exception as error:
        log.warning("readiness check failed", check=name, error=repr(error))
        return False
