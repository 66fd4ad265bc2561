"""Reads for agents with tokens: what stays within their set is handed on, and the answers are handed back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.set_reads import (
    MAX_BODY,
    Read,
    busy,
    parse_read,
    read_subjects,
    refusal,
    set_of,
    shown_info,
)
from paddlewheel.bus.nats.answers import RESEND
from paddlewheel.bus.nats.client import NOT_PERMITTED, Client
from paddlewheel.bus.nats.connection import TIMEOUT, Connection
from paddlewheel.bus.nats.consume import PAUSE
from paddlewheel.bus.nats.publish import wire_size
from paddlewheel.bus.turns import Limits, Turn, Turns
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.tasks import end, finish

GROUP = "bus-auth"
"""Queue group: each request is answered by one replica."""
_WAITING = 512
LIMITS = Limits(at_work=8, waiting=_WAITING, all_at_work=16, all_waiting=64 * _WAITING, patience=RESEND / 2)
"""Of each data set. With `BATCH_BYTES` and `MAX_BODY` they bound the memory of answers and requests.

Agents ask again for a batch whose first message has not come within `RESEND`. So what is taken must be begun
within the other half of it: 16 of the largest batches are handed back in half a second.
"""
_SILENCE = RESEND / 4
"""Seconds without a first answer after which a read rests. After `RESEND` it ends: its asker has asked again.

So what the server may still answer with is what it was asked within `RESEND + _SILENCE`: 80 of the largest
batches, which are 40 MiB. Of 64 MiB it would close the connection.
"""
_HEARD = 4096
"""Requests on one subject that may wait to be looked at; more are dropped, and asked again."""
_PENDING = {"pending_msgs_limit": _HEARD, "pending_bytes_limit": _HEARD * MAX_BODY}
_ASKERS = "_R_."
"""Where the server has answers for other accounts. It hands an asker's `$JS.ACK` on as it is."""
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

Report = Callable[[str], None]
"""Told the outcome of each request: `answered`, `refused`, `busy` or `unanswered`."""


class SetReader:
    """Answers agents' reads; reconnects for as long as it runs.

    Its connection is its own: what agents ask for must not hold up the requests to let them in.
    """

    def __init__(
        self, access: Access, clock: Clock, report: Report, *, name: str, limits: Limits = LIMITS
    ) -> None:
        self._connection = Connection(access, name)
        self._clock, self._report = clock, report
        self._turns = Turns(limits)
        self._listens = False

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            while True:
                try:
                    await self._serve()
                except Retry as error:
                    log.warning("agents cannot read for now", why=str(error))
                await self._clock.sleep(PAUSE)
        finally:
            self._listens = False
            await self._connection.close()

    async def is_ready(self) -> bool | str:
        """For readiness: requests arrive here."""
        return (self._listens and self._connection.connected) or f"not connected{self._connection.trouble}"

    async def _serve(self) -> None:
        """Until the connection is lost; when cancelled, until what has come is answered. Raises Retry."""
        client = await self._connection.client()
        relay, lost = Relay(client), asyncio.Event()
        desk = Desk(client, relay, self._turns, self._report)
        stop_listening = self._connection.on_lost(lost.set)
        try:
            async with self._connection.calling("subscribe to reads of sets"):
                await relay.open()
                await desk.open()
                await client.flush()
            if client.unheard:
                raise Retry(NOT_PERMITTED, f"no subscription to {', '.join(sorted(client.unheard))}")
            self._listens = True
            await lost.wait()
        finally:
            self._listens = False
            stop_listening()
            await finish(_leave(desk, relay, is_lost=lost.is_set()))


async def _leave(desk: Desk, relay: Relay, *, is_lost: bool) -> None:
    """In an order that loses no request, while there is a connection."""
    if not is_lost:
        await desk.drain()
    await desk.close()
    await relay.close()


class Desk:
    """Requests as they come in: judged at once, and answered in turn."""

    def __init__(self, client: Client, relay: Relay, turns: Turns, report: Report) -> None:
        self._client, self._relay, self._turns, self._report = client, relay, turns, report
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscriptions: list[Subscription] = []

    async def open(self) -> None:
        """Have requests come in."""
        for subject in sorted(read_subjects()):
            self._subscriptions.append(
                await self._client.subscribe(subject, queue=GROUP, cb=self.take, **_PENDING)
            )

    async def take(self, msg: Msg) -> None:
        """nats-py hands over the next message when this has returned."""
        # No task holds what is too large, for it may wait seconds for its turn, and with it thousands.
        work = self._too_large(msg.subject, msg.reply) if _is_too_large(msg) else self._answer(msg)
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Leave requests to other replicas, and answer what the server has sent to this one."""
        with suppress(nats.errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(TIMEOUT):
                await asyncio.gather(*(each.drain() for each in self._subscriptions))  # type: ignore[no-untyped-call]
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=TIMEOUT)

    async def close(self) -> None:
        """Answer nothing more."""
        await end(*self._tasks)

    async def _too_large(self, subject: str, reply: str) -> None:
        if reply.startswith(_ASKERS):
            await _refuse(self._client, subject, reply, f"it has more than {MAX_BODY} bytes")
        self._report("refused")

    async def _answer(self, msg: Msg) -> None:
        """With "busy" when the set asks for too much, or nothing came in time: agents ask again."""
        if not msg.reply.startswith(_ASKERS):
            self._report("refused")
            return
        try:
            async with asyncio.timeout(TIMEOUT), self._turns.taken(set_of(msg.subject)) as turn:
                outcome = await self._result(msg, turn)
        except TimeoutError:
            outcome = "unanswered"
        except Retry:
            outcome = "busy"
        self._report(outcome)
        if outcome in ("unanswered", "busy"):
            await _send(self._client, msg.reply, *busy(msg.subject))

    async def _result(self, msg: Msg, turn: Turn) -> str:
        """The outcome."""
        try:
            read = parse_read(msg.subject, msg.data)
        except Permanent as error:
            await _refuse(self._client, msg.subject, msg.reply, error.message)
            return "refused"
        return await self._relay.hand_on(read, msg.reply, turn)


def _is_too_large(msg: Msg) -> bool:
    """Whether it has more than any request has. Readers send no headers."""
    headers = msg.headers or {}
    return len(msg.data) > MAX_BODY or wire_size(headers, b"") > MAX_BODY


async def _refuse(client: Client, subject: str, reply: str, why: str) -> None:
    await _send(client, reply, *refusal(subject, why))


async def _send(client: Client, reply: str, headers: Mapping[str, str], body: bytes) -> None:
    """Who cannot be reached asks again."""
    with suppress(nats.errors.Error, OSError):
        await client.publish(reply, body, headers=dict(headers) or None)


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
            return "unanswered"

    async def _answered(self, inbox: _Inbox, read: Read, reply: str, turn: Turn) -> str:
        token, loop = str(next(self._tokens)), asyncio.get_running_loop()
        self._waiting[token] = waiting = _Waiting(read, reply, loop.create_future())
        waiting.timers.append(loop.call_later(_SILENCE, inbox.rest, turn))
        waiting.timers.append(loop.call_later(RESEND, waiting.end, "unanswered"))
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
            waiting.end("unanswered")

    async def _hand_back(self, waiting: _Waiting, msg: Msg) -> None:
        headers = {name: value for name, value in (msg.headers or {}).items() if name in _HANDED_BACK}
        body = shown_info(msg.data) if waiting.read.is_info and msg.data else msg.data
        if wire_size(headers, body) > self._client.max_payload:
            # The leader's answer has a message in base64, by a third larger than any client may send; and
            # bytes of headers that are no text become more. The server would close the connection.
            await _refuse(self._client, waiting.read.subject, waiting.reply, "the message is too large")
            waiting.end("refused")
            return
        await self._client.publish(waiting.reply, body, headers=headers or None)
        if not (waiting.read.is_batch and "Nats-Sequence" in headers):
            waiting.end("answered")
