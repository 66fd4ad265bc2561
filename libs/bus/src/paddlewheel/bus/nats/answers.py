"""Requests whose answers are still to come: one timer for all of them, and every way such a wait may end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from paddlewheel.core.errors import Retry

RESEND = 1.0
"""Seconds without an answer after which a request that may be repeated is sent again: a cluster without a
leader drops requests, and the next leader never hears of them."""

_NO_RESPONDERS = b"NATS/1.0 503"


@dataclass(frozen=True, slots=True)
class Answer:
    """As it came; `headers` is empty or the whole block."""

    headers: bytes
    data: bytes


@dataclass(slots=True)
class _Wait:
    subject: str
    future: asyncio.Future[Answer | None]
    until: float
    sent: float
    frame: bytes = b""


class Answers:
    """Waits by token, oldest first. `send` puts a frame on the wire again."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._waits: dict[bytes, _Wait] = {}
        self._tokens = count(1)
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, subject: str, within: float) -> tuple[bytes, asyncio.Future[Answer | None]]:
        """A new token, and what its answer will be, None when nobody listens on the subject.

        The future may fail with Retry. Whoever stops waiting must `forget` the token.
        """
        loop = asyncio.get_running_loop()
        now, token = loop.time(), b"%d" % next(self._tokens)
        wait = _Wait(subject, loop.create_future(), now + within, now)
        self._waits[token] = wait
        if self._timer is None:
            self._timer = loop.call_at(min(wait.until, now + RESEND), self._tick)
        return token, wait.future

    def repeat(self, token: bytes, frame: bytes) -> None:
        """Send this frame again while its answer stays out; the server must know a repetition as such."""
        self._waits[token].frame = frame

    def forget(self, token: bytes) -> None:
        """Nobody waits for it any more; idempotent."""
        self._waits.pop(token, None)

    def take(self, token: bytes, headers: bytes, data: bytes) -> None:
        """An answer came; one that nobody waits for is dropped."""
        wait = self._waits.pop(token, None)
        if wait is not None and not wait.future.done():
            nobody = not data and bool(headers) and headers.startswith(_NO_RESPONDERS)
            wait.future.set_result(None if nobody else Answer(headers or b"", data))

    def fail(self, error_for: Callable[[str], Retry], subject: str | None = None) -> None:
        """All waits, or those on one subject (compared without case), end now with the error for theirs."""
        for token, wait in list(self._waits.items()):
            if subject is None or wait.subject.lower() == subject.lower():
                self._end(token, wait, error_for(wait.subject))

    def __len__(self) -> int:
        return len(self._waits)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        for token, wait in list(self._waits.items()):
            if wait.until <= now:
                self._end(token, wait, Retry("BusUnreachable", f"{wait.subject}: no answer in time"))
            elif wait.frame and wait.sent + RESEND <= now:
                wait.sent = now
                self._send(wait.frame)
        if self._waits:
            soonest = min(wait.until for wait in self._waits.values())
            self._timer = loop.call_at(min(soonest, now + RESEND), self._tick)

    def _end(self, token: bytes, wait: _Wait, error: Retry) -> None:
        del self._waits[token]
        if not wait.future.done():
            wait.future.set_exception(error)
