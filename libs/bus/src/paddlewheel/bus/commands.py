"""Serving commands and collecting replies, independent of the transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from paddlewheel.bus.ports import CommandHandler
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import PaddlewheelError, Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.tasks import end

MAX_BYTES: Final = 64 * 1024
"""The largest size of a command or of an answer."""
AT_ONCE: Final = 8
"""Commands that one replica runs at the same time; further ones are refused."""
PROGRESS_INTERVAL_SECONDS: Final = 0.5
"""Seconds between two progress replies of a replica that runs a command."""

REPLICA: Final = "Pw-Replica"
STATE: Final = "Pw-State"
WORKING, DONE, FAILED = "working", "done", "failed"

log = LibraryLogger(__name__)


@dataclass(frozen=True)
class Reply:
    """One reply to a command. `replica` identifies one replica's run of one command."""

    replica: str
    state: str
    body: bytes = b""

    def headers(self) -> dict[str, str]:
        """Everything but the body."""
        return {REPLICA: self.replica, STATE: self.state}


def read_reply(headers: Mapping[str, str], body: bytes) -> Reply | None:
    """The reply in a message; None when the message is not a reply to a command."""
    if not headers.get(REPLICA) or headers.get(STATE) not in (WORKING, DONE, FAILED):
        return None
    return Reply(headers[REPLICA], headers[STATE], body)


Send = Callable[[Reply], Awaitable[None]]
"""Sends a reply to the requester; never raises."""


def check_command(subject: str, data: bytes) -> None:
    """Raises Permanent for a command that is too large."""
    if len(data) > MAX_BYTES:
        raise Permanent("TooLarge", f"{subject}: {len(data)} bytes, a command may have at most {MAX_BYTES}")


class CommandServer:
    """Runs the commands of one subject in this replica."""

    def __init__(self, subject: str, handler: CommandHandler, clock: Clock) -> None:
        self._subject = subject
        self._handler = handler
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, data: bytes, send: Send) -> None:
        """Start a command, concurrently with others."""
        task = asyncio.create_task(self._serve(data, send, is_full=len(self._tasks) >= AT_ONCE))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel running commands; their requesters stop waiting when progress replies are missing."""
        await end(*self._tasks)

    async def _serve(self, data: bytes, send: Send, *, is_full: bool) -> None:
        replica = uuid4().hex
        if is_full:
            return await send(Reply(replica, FAILED, b"Busy: too many commands at once, try again later"))
        # Before the handler starts, because it may block this process.
        await send(Reply(replica, WORKING))
        progress = asyncio.create_task(self._report_progress(replica, send))
        try:
            reply = await self._run(replica, data)
        finally:
            await end(progress)
        return await send(reply)

    async def _report_progress(self, replica: str, send: Send) -> None:
        while True:
            await self._clock.sleep(PROGRESS_INTERVAL_SECONDS)
            await send(Reply(replica, WORKING))

    async def _run(self, replica: str, data: bytes) -> Reply:
        try:
            body = await self._handler(data)
            if len(body) > MAX_BYTES:
                raise Permanent(
                    "TooLarge", f"the answer has {len(body)} bytes, an answer may have at most {MAX_BYTES}"
                )
        except PaddlewheelError as error:
            log.warning("command failed", subject=self._subject, error=str(error))
            return Reply(replica, FAILED, str(error).encode())
        except Exception as error:
            log.exception("command failed by a bug", subject=self._subject)
            return Reply(replica, FAILED, f"bug: {type(error).__name__}: {error}".encode())
        return Reply(replica, DONE, body)


class ReplyCollector:
    """The replies to one command as they arrive. Times are seconds of one monotonic clock."""

    def __init__(self, within: float, now: float) -> None:
        self._within = within
        self._started = now
        self._latest: dict[str, tuple[float, Reply]] = {}

    def take(self, reply: Reply, now: float) -> None:
        """Record a reply that arrived at `now`: a replica started, reports progress, or ended."""
        self._latest[reply.replica] = (now, reply)

    def left(self, now: float) -> float:
        """Seconds left to wait for the next reply; 0 or less = stop waiting."""
        at_work = (arrived for arrived, reply in self._latest.values() if reply.state == WORKING)
        return max((self._started, *at_work)) + self._within - now

    def answers(self) -> list[bytes]:
        """The answers of all replicas. Raises Retry when a replica failed or stopped reporting."""
        replies = [reply for _, reply in self._latest.values()]
        failed = [r for r in replies if r.state != DONE]
        if failed:
            first = failed[0].body.decode(errors="replace") or "a replica stopped reporting progress"
            raise Retry("CommandFailed", f"{len(failed)} of {len(replies)} replicas did not succeed: {first}")
        return [r.body for r in replies]


Replies = asyncio.Queue[Reply | Retry | None]
"""None = no subscriber, Retry = no more replies can arrive."""


async def gather(replies: Replies, within: float, clock: Clock) -> list[bytes]:
    """Wait for the replies of all replicas. Raises Retry."""
    gathering = ReplyCollector(within, clock.monotonic())
    # A reply that has arrived counts, even if this process reads it late.
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
