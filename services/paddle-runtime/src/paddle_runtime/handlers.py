"""The HTTP endpoints: Open Inference Protocol v2, and Paddle Serving's older one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import orjson
import structlog
from aiohttp import web

from paddle_runtime import VERSION
from paddle_runtime.domain import oip, prediction
from paddle_runtime.domain.model import Identity, Refused, Tensors
from paddle_runtime.lifecycle import Lifecycle, Phase, Serving
from paddle_runtime.metrics import Metrics
from paddle_runtime.ports import EngineDied
from paddlewheel.core.clock import Clock

LARGE = 256 * 1024
"""Bytes from which a body is read and written in a thread, so that other requests go on."""
NOT_READY_AFTER = 2
"""Seconds that a client is asked to wait while the model is loaded."""

_JSON = "application/json"
_BINARY = "application/octet-stream"
_MODEL = "/v2/models/{model}"
_VERSIONED = f"{_MODEL}/versions/{{version}}"

T = TypeVar("T")
Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class BodyLimits:
    """`seconds`: in which a body must have arrived."""

    size: int
    seconds: float


class Handlers:
    """Answers requests about the one model, and requests to it."""

    def __init__(
        self, identity: Identity, lifecycle: Lifecycle, limits: BodyLimits, metrics: Metrics, clock: Clock
    ) -> None:
        self._identity = identity
        self._lifecycle = lifecycle
        self._limits = limits
        self._metrics = metrics
        self._clock = clock

    @property
    def routes(self) -> list[web.RouteDef]:
        """For the service's HTTP server."""
        infer = self._measured("oip", self._infer)
        return [
            # First, for routes of one prefix are tried in order.
            *(web.post(f"{path}/infer", infer) for path in (_MODEL, _VERSIONED)),
            web.get("/v2", self._server),
            web.get("/v2/health/live", self._live),
            web.get("/v2/health/ready", self._ready),
            *(web.get(path, self._described) for path in (_MODEL, _VERSIONED)),
            *(web.get(f"{path}/ready", self._model_ready) for path in (_MODEL, _VERSIONED)),
            web.post("/{model}/prediction", self._measured("prediction", self._predict)),
        ]

    async def _server(self, _: web.Request) -> web.Response:
        return _answer(oip.server_metadata(VERSION))

    async def _live(self, _: web.Request) -> web.Response:
        return _answer({"live": True})

    async def _ready(self, _: web.Request) -> web.Response:
        ready = await self._lifecycle.is_ready()
        return _answer({"ready": ready is True}, 200 if ready is True else 503)

    async def _model_ready(self, request: web.Request) -> web.Response:
        try:
            self._check_model(request)
        except Refused as error:
            return _refusal(error)
        ready = await self._lifecycle.is_ready() is True
        return _answer({"name": self._identity.name, "ready": ready}, 200 if ready else 503)

    async def _described(self, request: web.Request) -> web.Response:
        try:
            self._check_model(request)
            signature = (await self._serving()).signature
        except Refused as error:
            return _refusal(error)
        return _answer(oip.model_metadata(self._identity, signature))

    async def _infer(self, request: web.Request) -> web.Response:
        self._check_model(request)
        serving = await self._serving()
        length = _json_length(request)
        body = await self._body(request)
        inference = await _aside(len(body), lambda: oip.parse(body, length, serving.signature))
        outputs = await serving.batcher.infer(inference.tensors)
        reply = await _aside(_size(outputs), lambda: oip.reply(self._identity, inference, outputs))
        if reply.json_length is None:
            return web.Response(body=reply.body, content_type=_JSON)
        headers = {oip.HEADER_LENGTH: str(reply.json_length)}
        return web.Response(body=reply.body, content_type=_BINARY, headers=headers)

    async def _predict(self, request: web.Request) -> web.Response:
        self._check_model(request)
        serving = await self._serving()
        body = await self._body(request)
        asked = await _aside(len(body), lambda: prediction.parse(body, serving.signature))
        outputs = await serving.batcher.infer(asked.tensors)
        text = await _aside(_size(outputs), lambda: prediction.reply(asked, outputs))
        return web.Response(body=text, content_type=_JSON)

    def _check_model(self, request: web.Request) -> None:
        """Raises Refused: 404."""
        name, own = request.match_info["model"], self._identity
        wanted = request.match_info.get("version", own.version)
        if name != own.name or wanted != own.version:
            asked = f"model {name[:80]!r}, version {wanted[:80]!r}: not here"
            raise Refused(f"{asked}; this server has {own.name!r}, version {own.version!r}", 404)

    async def _serving(self) -> Serving:
        """Raises Refused: 503."""
        if self._lifecycle.serving is None:
            state = await self._lifecycle.is_ready()
            raise Refused(f"the model is not ready: {state}", 503, NOT_READY_AFTER)
        return self._lifecycle.serving

    async def _body(self, request: web.Request) -> bytes:
        """Raises Refused: 413, or 408."""
        most = self._limits.size
        if (request.content_length or 0) > most:
            raise Refused(f"body: {request.content_length} bytes; at most {most} are accepted", 413)
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await _read(request, most)
        except TimeoutError:
            raise Refused(f"body: did not arrive within {self._limits.seconds:g} s", 408) from None

    def _measured(self, protocol: str, handle: Handle) -> Handle:
        """Counts, maps errors to answers, and asks clients to leave while the replica drains."""

        async def measured(request: web.Request) -> web.StreamResponse:
            began, outcome = self._clock.monotonic(), "gone"
            try:
                with self._lifecycle.request():
                    answer, outcome = await _outcome(handle, request)
                    if self._lifecycle.phase is Phase.DRAINING:
                        answer.force_close()
                    await answer.prepare(request)
                    await answer.write_eof()
                    return answer
            finally:
                self._metrics.answered(protocol, outcome, self._clock.monotonic() - began)

        return measured


async def _outcome(handle: Handle, request: web.Request) -> tuple[web.StreamResponse, str]:
    try:
        return await handle(request), "ok"
    except Refused as error:
        return _refusal(error), "busy" if error.status == 503 else "refused"
    except EngineDied as error:
        log.error("request failed", error=str(error))
        return _refusal(Refused("the process that runs the model has ended", 503, NOT_READY_AFTER)), "failed"
    except asyncio.CancelledError:
        raise
    except Exception:
        log.exception("request failed")
        return _refusal(Refused("internal error, see the log of the server", 500)), "failed"


async def _read(request: web.Request, most: int) -> bytes:
    pieces, size = [], 0
    async for piece in request.content.iter_any():
        size += len(piece)
        if size > most:
            raise Refused(f"body: at most {most} bytes are accepted", 413)
        pieces.append(piece)
    return b"".join(pieces)


async def _aside(size: int, work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work) if size > LARGE else work()


def _size(outputs: Tensors) -> int:
    return sum(array.nbytes for array in outputs.values())


def _json_length(request: web.Request) -> int | None:
    """Raises Refused."""
    given = request.headers.get(oip.HEADER_LENGTH)
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise Refused(f"{oip.HEADER_LENGTH}: expected a number of bytes, got {given[:80]!r}")
    return int(given)


def _answer(value: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type=_JSON)


def _refusal(error: Refused) -> web.Response:
    answer = _answer({"error": error.message}, error.status)
    if error.retry_after is not None:
        answer.headers["Retry-After"] = str(error.retry_after)
    if error.status in (408, 413):
        # The rest of the body is not read.
        answer.force_close()
    return answer
