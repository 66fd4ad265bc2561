"""Pending requests: one timer for all of them, and the ways in which a wait ends."""

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
"""The shortest time between two checks for late requests: each check reads all pending requests."""

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
        """When the wait ends, or the answer is late."""
        return min(self.until, self.sent + RESEND_INTERVAL_SECONDS)


class Answers:
    """Waits by token. `on_late` is called each time an answer is `RESEND_INTERVAL_SECONDS` late."""

    def __init__(self, on_late: Callable[[], None]) -> None:
        self._on_late = on_late
        self._waits: dict[str, _Wait] = {}
        self._tokens = count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def expect(self, subject: str, within: float) -> tuple[str, asyncio.Future[Msg | None]]:
        """A new token and the future of its answer, which is None when the subject has no subscriber. The
        future may fail with Retry. A caller that stops waiting must `forget` the token."""
        loop = asyncio.get_running_loop()
        now, token = loop.time(), str(next(self._tokens))
        wait = _Wait(subject, loop.create_future(), now + within, now)
        self._waits[token] = wait
        self._tick_by(wait.due)
        return token, wait.future

    def repeat(self, token: str, send: Send) -> None:
        """Send again while no answer arrives; the server must recognize a repetition."""
        if token in self._waits:
            self._waits[token].send = send

    def forget(self, token: str) -> None:
        """End the wait for a token; idempotent."""
        self._waits.pop(token, None)

    def take(self, token: str, msg: Msg) -> None:
        """Deliver an answer. One without a wait is dropped."""
        wait = self._waits.get(token)
        self.forget(token)
        if wait is not None and not wait.future.done():
            wait.future.set_result(None if _is_no_responders(msg) else msg)

    def fail(self, error_for: Callable[[str], Retry], subject: str | None = None) -> None:
        """Fail all waits, or the waits on one subject (compared without case), with `error_for(subject)`."""
        for token, wait in list(self._waits.items()):
            if subject is None or wait.subject.lower() == subject.lower():
                self._end(token, wait, error_for(wait.subject))

    def __len__(self) -> int:
        return len(self._waits)

    def _tick_by(self, when: float) -> None:
        """Check for late requests at `when` at the latest."""
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
    """Send without raising: a lost connection fails the wait elsewhere."""
    with contextlib.suppress(PaddlewheelError):
        await send()


def _is_no_responders(msg: Msg) -> bool:
    """Whether it is the server's answer to a message on a subject without a subscriber."""
    return not msg.data and (msg.headers or {}).get("Status") == "503"
