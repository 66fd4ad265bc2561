"""How commands are answered and answers gathered, whatever carries them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from paddlewheel.bus.ports import Answering
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import PaddlewheelError, Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.tasks import end

MAX_BYTES: Final = 64 * 1024
"""Of a command, and of an answer."""
AT_ONCE: Final = 8
"""Commands one replica works on at the same time; more are refused."""
SIGN_EVERY: Final = 0.5
"""Seconds between two signs of life of a replica at work."""

WHO: Final = "Pw-Replica"
STATE: Final = "Pw-State"
WORKING, DONE, FAILED = "working", "done", "failed"

log = LibraryLogger(__name__)


@dataclass(frozen=True)
class Reply:
    """One message on the way back. `who` is one replica's work on one command."""

    who: str
    state: str
    body: bytes = b""

    def headers(self) -> dict[str, str]:
        """Everything but the body."""
        return {WHO: self.who, STATE: self.state}


def read_reply(headers: Mapping[str, str], body: bytes) -> Reply | None:
    """None for a message that is no reply of ours."""
    if not headers.get(WHO) or headers.get(STATE) not in (WORKING, DONE, FAILED):
        return None
    return Reply(headers[WHO], headers[STATE], body)


Send = Callable[[Reply], Awaitable[None]]
"""Takes a reply to the asker; never raises."""


def check_command(subject: str, data: bytes) -> None:
    """Raises Permanent for a command that is too large."""
    if len(data) > MAX_BYTES:
        raise Permanent("TooLarge", f"{subject}: {len(data)} bytes, a command has {MAX_BYTES} at most")


class Desk:
    """One replica's work on the commands of one subject."""

    def __init__(self, subject: str, handler: Answering, clock: Clock) -> None:
        self._subject = subject
        self._handler = handler
        self._clock = clock
        self._running: set[asyncio.Task[None]] = set()

    def take(self, data: bytes, send: Send) -> None:
        """Begin a command beside those under way."""
        task = asyncio.create_task(self._serve(data, send, is_full=len(self._running) >= AT_ONCE))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Drop what is under way; its askers will miss the signs of life."""
        await end(*self._running)

    async def _serve(self, data: bytes, send: Send, *, is_full: bool) -> None:
        who = uuid4().hex
        if is_full:
            return await send(Reply(who, FAILED, b"Busy: too many commands at once, ask again later"))
        # Before the work begins: it may keep this process from everything else.
        await send(Reply(who, WORKING))
        signs = asyncio.create_task(self._give_signs(who, send))
        try:
            reply = await self._carry_out(who, data)
        finally:
            await end(signs)
        return await send(reply)

    async def _give_signs(self, who: str, send: Send) -> None:
        while True:
            await self._clock.sleep(SIGN_EVERY)
            await send(Reply(who, WORKING))

    async def _carry_out(self, who: str, data: bytes) -> Reply:
        try:
            body = await self._handler(data)
            if len(body) > MAX_BYTES:
                raise Permanent(
                    "TooLarge", f"the answer has {len(body)} bytes, at most {MAX_BYTES} can be sent"
                )
        except PaddlewheelError as error:
            log.warning("command failed", subject=self._subject, error=str(error))
            return Reply(who, FAILED, str(error).encode())
        except Exception as error:
            log.exception("command failed by a bug", subject=self._subject)
            return Reply(who, FAILED, f"bug: {type(error).__name__}: {error}".encode())
        return Reply(who, DONE, body)


class Gathering:
    """The answers to one command as they come in. Times are seconds of one monotonic clock."""

    def __init__(self, within: float, now: float) -> None:
        self._within = within
        self._began = now
        self._heard: dict[str, tuple[float, Reply]] = {}

    def take(self, reply: Reply, now: float) -> None:
        """A replica came forward, showed that it lives, or has ended."""
        self._heard[reply.who] = (now, reply)

    def left(self, now: float) -> float:
        """Seconds still to wait for the next reply; not above 0 = it is over."""
        at_work = (heard for heard, reply in self._heard.values() if reply.state == WORKING)
        return max((self._began, *at_work)) + self._within - now

    def answers(self) -> list[bytes]:
        """Once it is over. Raises Retry when a replica failed or fell silent."""
        replies = [reply for _, reply in self._heard.values()]
        failed = [r for r in replies if r.state != DONE]
        if failed:
            first = failed[0].body.decode(errors="replace") or "it fell silent"
            raise Retry("CommandFailed", f"{len(failed)} of {len(replies)} replicas did not succeed: {first}")
        return [r.body for r in replies]


Replies = asyncio.Queue[Reply | Retry | None]
"""None = nobody listens, Retry = nobody can be heard any more."""


async def gather(replies: Replies, within: float, clock: Clock) -> list[bytes]:
    """Wait for the answers as `Gathering` says. Raises Retry."""
    gathering = Gathering(within, clock.monotonic())
    # What has arrived counts, however late this process gets to it.
    while (left := gathering.left(clock.monotonic())) > 0 or not replies.empty():
        try:
            async with asyncio.timeout(max(left, 0)):
                reply = await replies.get()
        except TimeoutError:
            continue
        if reply is None:
            break
        if isinstance(reply, Retry):
            raise reply
        gathering.take(reply, clock.monotonic())
    return gathering.answers()
