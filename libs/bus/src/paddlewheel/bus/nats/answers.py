"""Pending requests: one timer for all of them, and every way a wait may end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import count

from nats.aio.msg import Msg

from paddlewheel.core.errors import PaddlewheelError, Retry, Unavailable

RESEND_INTERVAL_SECONDS = 1.0
"""Seconds without an answer after which a request that may be repeated is sent again: a cluster without a
leader drops requests, and the next leader never receives them."""
_TIMER_MIN_INTERVAL_SECONDS = 0.05
"""Seconds between two looks at what is due, at least: each looks at all that is pending."""

Send = Callable[[], Coroutine[None, None, None]]


@dataclass(slots=True)
class _Wait:
    subject: str
    future: asyncio.Future[Msg | None]
    until: float
    sent: float
    send: Send | None = None

    @property
    def due(self) -> float:
        """When it ends, or is late."""
        return min(self.until, self.sent + RESEND_INTERVAL_SECONDS)


class Answers:
    """Waits by token. `on_late` is called while an answer is `RESEND_INTERVAL_SECONDS` seconds late."""

    def __init__(self, on_late: Callable[[], None]) -> None:
        self._on_late = on_late
        self._waits: dict[str, _Wait] = {}
        self._tokens = count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def expect(self, subject: str, within: float) -> tuple[str, asyncio.Future[Msg | None]]:
        """A new token, and what its answer will be, None when nobody listens on the subject.

        The future may fail with Retry. Whoever stops waiting must `forget` the token.
        """
        loop = asyncio.get_running_loop()
        now, token = loop.time(), str(next(self._tokens))
        wait = _Wait(subject, loop.create_future(), now + within, now)
        self._waits[token] = wait
        self._tick_by(wait.due)
        return token, wait.future

    def repeat(self, token: str, send: Send) -> None:
        """Send again while the answer stays out; the server must recognize a repetition."""
        if token in self._waits:
            self._waits[token].send = send

    def forget(self, token: str) -> None:
        """Nobody waits for it any more; idempotent."""
        self._waits.pop(token, None)

    def take(self, token: str, msg: Msg) -> None:
        """An answer came; one that nobody waits for is dropped."""
        wait = self._waits.get(token)
        self.forget(token)
        if wait is not None and not wait.future.done():
            wait.future.set_result(None if _is_from_nobody(msg) else msg)

    def fail(self, error_for: Callable[[str], Retry], subject: str | None = None) -> None:
        """End all waits, or those on one subject (compared without case), with the error for theirs."""
        for token, wait in list(self._waits.items()):
            if subject is None or wait.subject.lower() == subject.lower():
                self._end(token, wait, error_for(wait.subject))

    def __len__(self) -> int:
        return len(self._waits)

    def _tick_by(self, when: float) -> None:
        """Not later than that."""
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._tick)

    def _tick(self) -> None:
        now, self._timer = asyncio.get_running_loop().time(), None
        for token, wait in list(self._waits.items()):
            if wait.until <= now:
                self._end(token, wait, Unavailable("BusUnreachable", f"{wait.subject}: no answer in time"))
            elif wait.sent + RESEND_INTERVAL_SECONDS <= now:
                wait.sent = now
                self._late(wait)
        if self._waits:
            self._tick_by(
                max(min(wait.due for wait in self._waits.values()), now + _TIMER_MIN_INTERVAL_SECONDS)
            )

    def _late(self, wait: _Wait) -> None:
        self._on_late()
        if wait.send is not None:
            task = asyncio.create_task(_sent(wait.send), name="nats request again")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def _end(self, token: str, wait: _Wait, error: Retry) -> None:
        del self._waits[token]
        if not wait.future.done():
            wait.future.set_exception(error)


async def _sent(send: Send) -> None:
    """A lost connection ends the wait by itself."""
    with contextlib.suppress(PaddlewheelError):
        await send()


def _is_from_nobody(msg: Msg) -> bool:
    """The server's answer to a message on a subject that nobody listens on."""
    return not msg.data and (msg.headers or {}).get("Status") == "503"
