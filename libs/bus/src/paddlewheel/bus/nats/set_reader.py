"""Reads for agents with tokens: what stays within their set is handed on, and the answers are handed back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from paddlewheel.bus.admin.set_reads import (
    MAX_BODY,
    Answer,
    Read,
    busy,
    parse_read,
    read_subjects,
    refusal,
    shown_info,
)
from paddlewheel.bus.nats.answers import RESEND
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.nats.publish import wire_size
from paddlewheel.bus.nats.set_requests import (
    ANSWERED,
    REFUSED,
    SILENCE,
    UNANSWERED,
    Kind,
    SetRequests,
    send,
)
from paddlewheel.bus.turns import Limits, Turn
from paddlewheel.core.library_logging import LibraryLogger

_WAITING = 512
LIMITS = Limits(at_work=8, waiting=_WAITING, all_at_work=16, all_waiting=64 * _WAITING, patience=RESEND / 2)
"""Of each data set. With `BATCH_BYTES` and `MAX_BODY` they bound the memory of answers and requests.

Agents ask again for a batch whose first message has not come within `RESEND`. So what is taken must be begun
within the other half of it: 16 of the largest batches are handed back in half a second.

A read that the server is silent about ends after `RESEND`: its asker has asked again. So what the server may
still answer with is what it was asked within `RESEND + SILENCE`: 80 of the largest batches, which are 40 MiB.
Of 64 MiB it would close the connection.
"""
_HANDED_BACK = frozenset(
    {
        "Nats-Sequence",
        "Nats-Subject",
        "Nats-Time-Stamp",
        "Nats-Num-Pending",
        "Nats-Marker-Reason",
        "KV-Operation",
        "Status",
        "Description",
    }
)
"""Headers that readers need. What else an agent has stored may be more than any client can send."""

log = LibraryLogger(__name__)


def _too_large(subject: str) -> Answer:
    return refusal(subject, f"it has more than {MAX_BODY} bytes")


READS = Kind(
    "reads",
    read_subjects(),
    headers=MAX_BODY,
    body=lambda _: MAX_BODY,
    heard=4096 * MAX_BODY,
    limits=LIMITS,
    refusal=refusal,
    too_large=_too_large,
    # What is not answered is asked again.
    busy=busy,
    unanswered=busy,
)


class SetReader(SetRequests):
    """Answers agents' reads."""

    kind = READS

    def worker(self, client: Client) -> Relay:
        return Relay(client)


@dataclass(frozen=True)
class _Waiting:
    read: Read
    reply: str
    outcome: asyncio.Future[str]
    timers: list[asyncio.TimerHandle] = field(default_factory=list)

    def heard(self) -> None:
        """The server has said something."""
        for timer in self.timers:
            timer.cancel()

    def end(self, outcome: str) -> None:
        """Idempotent."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


@dataclass
class _Inbox:
    """Where answers come in.

    One at which the server was silent gets no more requests, and is closed after its last: what the server
    answers later it does not even send.
    """

    subject: str
    answers: Subscription
    waiting: int = 0
    is_silent: bool = False

    def rest(self, turn: Turn) -> None:
        """The server is silent about a request."""
        self.is_silent = True
        turn.rest()

    async def close(self) -> None:
        """Listen no more."""
        with suppress(nats.errors.Error, OSError):
            await self.answers.unsubscribe()


class Relay:
    """Hands requests on and their answers back, in order, over one connection."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tokens = count(1)
        self._waiting: dict[str, _Waiting] = {}
        self._inbox: _Inbox | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Listen for answers."""
        await self._next_inbox()

    async def close(self) -> None:
        """Listen no more."""
        if self._inbox is not None:
            await self._inbox.close()

    async def _next_inbox(self) -> _Inbox:
        """Of the next request."""
        async with self._opening:
            if self._inbox is None or self._inbox.is_silent:
                subject = self._client.new_inbox()
                answers = await self._client.subscribe(f"{subject}.*", cb=self._take)
                self._inbox = _Inbox(subject, answers)
            return self._inbox

    async def work(self, msg: Msg, turn: Turn) -> str:
        return await self.hand_on(parse_read(msg.subject, msg.data), msg.reply, turn)

    async def hand_on(self, read: Read, reply: str, turn: Turn) -> str:
        """The outcome, when the last answer was handed back, or none will be any more.

        The turn rests while the server is silent: one stream without a leader must not hold up all others. It
        does not outlast `RESEND` of silence, since its asker's next try needs a turn of the same set.
        """
        try:
            inbox = await self._next_inbox()
            inbox.waiting += 1
            try:
                return await self._answered(inbox, read, reply, turn)
            finally:
                inbox.waiting -= 1
                if inbox.is_silent and not inbox.waiting:
                    await inbox.close()
        except (nats.errors.Error, OSError):
            return UNANSWERED

    async def _answered(self, inbox: _Inbox, read: Read, reply: str, turn: Turn) -> str:
        token, loop = str(next(self._tokens)), asyncio.get_running_loop()
        self._waiting[token] = waiting = _Waiting(read, reply, loop.create_future())
        waiting.timers.append(loop.call_later(SILENCE, inbox.rest, turn))
        waiting.timers.append(loop.call_later(RESEND, waiting.end, UNANSWERED))
        try:
            await self._client.publish(read.subject, read.body, f"{inbox.subject}.{token}")
            return await waiting.outcome
        finally:
            waiting.heard()
            del self._waiting[token]

    async def _take(self, msg: Msg) -> None:
        waiting = self._waiting.get(msg.subject.rpartition(".")[2])
        if waiting is None or waiting.outcome.done():
            return
        waiting.heard()
        try:
            await self._hand_back(waiting, msg)
        except (nats.errors.Error, OSError, ValueError, LookupError) as error:
            # Nothing may follow what is missing: it would be taken for all that there is.
            read = waiting.read
            log.warning(
                "an answer cannot be handed back", set=read.set_uid, stream=read.stream, why=repr(error)
            )
            waiting.end(UNANSWERED)

    async def _hand_back(self, waiting: _Waiting, msg: Msg) -> None:
        headers = {name: value for name, value in (msg.headers or {}).items() if name in _HANDED_BACK}
        body = shown_info(msg.data) if waiting.read.is_info and msg.data else msg.data
        if wire_size(headers, body) > self._client.max_payload:
            # The leader's answer has a message in base64, by a third larger than any client may send; and
            # bytes of headers that are no text become more. The server would close the connection.
            answer = refusal(waiting.read.subject, "the message is too large")
            await send(self._client, waiting.reply, answer)
            waiting.end(REFUSED)
            return
        await self._client.publish(waiting.reply, body, headers=headers or None)
        if not (waiting.read.is_batch and "Nats-Sequence" in headers):
            waiting.end(ANSWERED)
