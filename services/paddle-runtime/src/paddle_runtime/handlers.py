"""The HTTP endpoints: Open Inference Protocol v2, and Paddle Serving's older one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import orjson
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from paddle_runtime import VERSION
from paddle_runtime.batcher import Batcher
from paddle_runtime.budget import Budget, Share
from paddle_runtime.domain import oip, prediction
from paddle_runtime.domain.model import Identity, Refused, Signature, Tensors
from paddle_runtime.lifecycle import Lifecycle, Phase
from paddle_runtime.metrics import Metrics
from paddle_runtime.ports import EngineDied
from paddle_runtime.timing import NOT_READY_RETRY_INTERVAL_SECONDS
from paddlewheel.core import http
from paddlewheel.core.clock import Clock
from paddlewheel.core.tasks import finish

LARGE = 256 * 1024
"""Bytes from which a body is decoded and encoded in a thread, so that other requests go on."""

_JSON = "application/json"
_BINARY = "application/octet-stream"
_MODEL = "/v2/models/{model}"
_VERSIONED = f"{_MODEL}/versions/{{version}}"

T = TypeVar("T")
Handle = Callable[[web.Request, Share], Awaitable[web.Response]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ServedModel:
    """The model that answers."""

    identity: Identity
    signature: Signature
    batcher: Batcher


@dataclass(frozen=True)
class RequestLimits:
    """Bytes of a body, and of its JSON; seconds until it has arrived, and until its answer is read."""

    body: int
    json: int
    arrival: float
    answer: float


class Handlers:
    """Answers requests about the one model, and requests to it."""

    def __init__(
        self,
        model: ServedModel,
        lifecycle: Lifecycle,
        limits: RequestLimits,
        budget: Budget,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._model = model
        self._lifecycle = lifecycle
        self._limits = limits
        self._budget = budget
        self._metrics = metrics
        self._clock = clock
        # One thread: decoders hold Python's global lock, so more of them would only take more memory.
        self._aside = ThreadPoolExecutor(1, "large-bodies")

    @property
    def routes(self) -> list[web.RouteDef]:
        """The routes of the HTTP server."""
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
        ready = await self._lifecycle.is_ready() is True
        return _answer({"ready": ready}, 200 if ready else 503)

    async def _model_ready(self, request: web.Request) -> web.Response:
        try:
            self._check_model(request)
        except Refused as error:
            return _refusal(error)
        ready = await self._lifecycle.is_ready() is True
        return _answer({"name": self._model.identity.name, "ready": ready}, 200 if ready else 503)

    async def _described(self, request: web.Request) -> web.Response:
        try:
            self._check_model(request)
        except Refused as error:
            return _refusal(error)
        return _answer(oip.model_metadata(self._model.identity, self._model.signature))

    async def _infer(self, request: web.Request, share: Share) -> web.Response:
        self._admit(request)
        length = self._json_length(request)
        most = self._limits.json if length is None else self._limits.body
        inference = await self._decoded(
            request, share, most, lambda body: oip.parse(body, length, self._model.signature)
        )
        outputs = await self._run(inference.tensors, share)
        reply = await self._work(_size(outputs), lambda: oip.reply(self._model.identity, inference, outputs))
        if reply.json_length is None:
            return web.Response(body=reply.body, content_type=_JSON)
        headers = {oip.HEADER_LENGTH: str(reply.json_length)}
        return web.Response(body=reply.body, content_type=_BINARY, headers=headers)

    async def _predict(self, request: web.Request, share: Share) -> web.Response:
        self._admit(request)
        asked = await self._decoded(
            request, share, self._limits.json, lambda body: prediction.parse(body, self._model.signature)
        )
        outputs = await self._run(asked.tensors, share)
        text = await self._work(_size(outputs), lambda: prediction.reply(asked, outputs))
        return web.Response(body=text, content_type=_JSON)

    def _admit(self, request: web.Request) -> None:
        """Check a request before its body is read. Raises Refused."""
        self._check_model(request)
        self._model.batcher.check_room()

    async def _run(self, tensors: Tensors, share: Share) -> Tensors:
        """Outputs by name; the request holds its tensors now, not its body. Raises Refused, EngineDied."""
        share.hold(_size(tensors))
        return await self._model.batcher.infer(tensors)

    def _check_model(self, request: web.Request) -> None:
        """Raises Refused: 404."""
        name, own = request.match_info["model"], self._model.identity
        wanted = request.match_info.get("version", own.version)
        if name != own.name or wanted != own.version:
            asked = f"model {name[:80]!r}, version {wanted[:80]!r}: not here"
            raise Refused(f"{asked}; this server has {own.name!r}, version {own.version!r}", 404)

    def _json_length(self, request: web.Request) -> int | None:
        """Raises Refused."""
        given = request.headers.get(oip.HEADER_LENGTH)
        if given is None:
            return None
        if not given.isascii() or not given.isdigit() or len(given) > 18:
            raise Refused(f"{oip.HEADER_LENGTH}: expected a number of bytes, got {given[:80]!r}")
        if int(given) > self._limits.json:
            raise Refused(
                f"{oip.HEADER_LENGTH}: {given}; at most {self._limits.json} bytes of JSON are accepted", 413
            )
        return int(given)

    async def _decoded(
        self, request: web.Request, share: Share, most: int, decode: Callable[[bytes], T]
    ) -> T:
        """The body lives no longer than this. Raises Refused."""
        body = await self._body(request, share, most)
        return await self._work(len(body), lambda: decode(body))

    async def _body(self, request: web.Request, share: Share, most: int) -> bytes:
        """Raises Refused: 413, 408, 503 when there is no room, 400 when it is incomplete or badly encoded."""
        length = request.content_length or 0
        if length > most:
            raise Refused(f"body: {length} bytes; {self._accepted(most)}", 413)
        share.check(length)
        try:
            if request.content.is_eof():
                # A small body comes with the head: no time-out has to be set up.
                return await self._read(request, share, most)
            async with asyncio.timeout(self._limits.arrival):
                return await self._read(request, share, most)
        except TimeoutError:
            raise Refused(f"body: did not arrive within {self._limits.arrival:g} s", 408) from None
        except web.RequestPayloadError as error:
            # Or aiohttp reads on after the answer, and logs this again as a fault of ours.
            request.content.feed_eof()
            raise Refused(f"body: cannot be read: {error}") from None

    async def _read(self, request: web.Request, share: Share, most: int) -> bytes:
        pieces, size = [], 0
        async for piece in request.content.iter_any():
            size += len(piece)
            if size > most:
                raise Refused(f"body: {self._accepted(most)}", 413)
            share.take(len(piece))
            pieces.append(piece)
        return b"".join(pieces)

    def _accepted(self, most: int) -> str:
        if most < self._limits.body:
            return f"at most {most} bytes of JSON are accepted, and {self._limits.body} with binary tensors"
        return f"at most {most} bytes are accepted"

    async def _work(self, size: int, work: Callable[[], T]) -> T:
        """Decode or encode so many bytes."""
        if size <= LARGE:
            return work()
        # A thread cannot be cancelled, so what it works on is counted until it is done.
        return await finish(self._in_thread(work))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._aside, work)

    def _measured(self, protocol: str, handle: Handle) -> Handler:
        """Counts, maps errors to answers, and asks clients to leave while the replica drains."""

        async def measured(request: web.Request) -> web.StreamResponse:
            began, outcome = self._clock.monotonic(), "gone"
            try:
                with self._lifecycle.request(), self._budget.share() as share:
                    answer, outcome = await _outcome(handle, request, share)
                    share.hold(int(answer.content_length or 0))
                    if self._is_last(request):
                        answer.force_close()
                    if not await http.send(request, answer, self._limits.answer):
                        outcome = "gone"
                    return answer
            finally:
                self._metrics.answered(protocol, outcome, self._clock.monotonic() - began)

        return measured

    def _is_last(self, request: web.Request) -> bool:
        """Whether the connection ends: the replica ends, or the rest of the body is unread."""
        is_read = request.content.is_eof() and request.content.exception() is None
        return self._lifecycle.phase in (Phase.DRAINING, Phase.FAILED) or not is_read


async def _outcome(handle: Handle, request: web.Request, share: Share) -> tuple[web.Response, str]:
    try:
        return await handle(request, share), "ok"
    except Refused as error:
        return _refusal(error), "busy" if error.status == 503 else "refused"
    except EngineDied as error:
        log.error("request failed", error=str(error))
        return _refusal(
            Refused("the process that runs the model has ended", 503, NOT_READY_RETRY_INTERVAL_SECONDS)
        ), "failed"
    except asyncio.CancelledError:
        raise
    except Exception:
        log.exception("request failed")
        return _refusal(Refused("internal error, see the log of the server", 500)), "failed"


def _size(tensors: Tensors) -> int:
    """Bytes."""
    return sum(array.nbytes for array in tensors.values())


def _answer(value: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type=_JSON)


def _refusal(error: Refused) -> web.Response:
    answer = _answer({"error": error.message}, error.status)
    if error.retry_after is not None:
        answer.headers["Retry-After"] = str(error.retry_after)
    return answer
