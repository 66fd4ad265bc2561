"""What agents with tokens ask bus-auth for: judged as it comes in, worked on in turn, and always answered."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.set_reads import Answer, set_of
from paddlewheel.bus.nats.answers import RESEND
from paddlewheel.bus.nats.client import NOT_PERMITTED, Client
from paddlewheel.bus.nats.connection import TIMEOUT
from paddlewheel.bus.nats.listener import Listener
from paddlewheel.bus.nats.publish import wire_size
from paddlewheel.bus.turns import Limits, Turn, Turns
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.tasks import end, finish

GROUP = "bus-auth"
"""Queue group: each request is answered by one replica."""
ANSWERED, REFUSED, BUSY, UNANSWERED = "answered", "refused", "busy", "unanswered"
"""Outcomes of a request."""
SILENCE = RESEND / 4
"""Seconds without a first answer after which a request rests."""
_HEARD = 4096
"""Requests on one subject that may wait to be looked at; more are dropped, and asked again."""
_ASKERS = "_R_."
"""Where the server has answers for other accounts. It hands an asker's `$JS.ACK` on as it is."""

Report = Callable[[str], None]
"""Told the outcome of each request."""


class Worker(Protocol):
    """Works on one kind of requests, over one connection."""

    async def open(self) -> None:
        """Before any request."""

    async def work(self, msg: Msg, turn: Turn) -> str:
        """Answer a request in its turn, unless it is `BUSY` or `UNANSWERED`.

        Raises:
            Permanent: it is to be refused.
            Retry: it was not begun.
        """

    async def close(self) -> None:
        """After the last one."""


@dataclass(frozen=True)
class Kind:
    """One kind of requests.

    Args:
        what: agents do by them.
        subjects: on which they are asked.
        headers, body: bytes that a request on a subject may have at most; more is refused unread.
        heard: bytes on one subject that may wait to be looked at.
        limits: of each data set and of all.
        refusal: the answer to what is refused, by its subject and the reason.
        too_large, busy, unanswered: by its subject, to what is larger, is not begun, and is not answered by
            the server.
    """

    what: str
    subjects: frozenset[str]
    headers: int
    body: Callable[[str], int]
    heard: int
    limits: Limits
    refusal: Callable[[str, str], Answer]
    too_large: Callable[[str], Answer]
    busy: Callable[[str], Answer]
    unanswered: Callable[[str], Answer]

    def is_too_large(self, msg: Msg) -> bool:
        """Whether it has more than any request on its subject has."""
        return wire_size(msg.headers or {}, b"") > self.headers or len(msg.data) > self.body(msg.subject)


class SetRequests(Listener):
    """Answers one kind of requests.

    Its connection is its own: what agents ask for must not hold up the requests to let them in.
    """

    kind: Kind

    def __init__(self, access: Access, clock: Clock, report: Report, *, name: str) -> None:
        super().__init__(access, clock, name)
        self.hears = f"{self.kind.what} of agents"
        self._report = report
        self._turns = Turns(self.kind.limits)

    @abstractmethod
    def worker(self, client: Client) -> Worker:
        """Over this connection."""

    @asynccontextmanager
    async def receiving(self, client: Client, lost: asyncio.Event) -> AsyncIterator[None]:
        """When cancelled, what has come is answered."""
        worker = self.worker(client)
        desk = Desk(client, self.kind, worker, self._turns, self._report)
        try:
            async with self._connection.calling(f"subscribe to {self.kind.what} of sets"):
                await worker.open()
                await desk.open()
                await client.flush()
            if client.unheard:
                raise Retry(NOT_PERMITTED, f"no subscription to {', '.join(sorted(client.unheard))}")
            yield
        finally:
            await finish(_leave(desk, worker, is_lost=lost.is_set()))


async def _leave(desk: Desk, worker: Worker, *, is_lost: bool) -> None:
    """In an order that loses no request, while there is a connection."""
    if not is_lost:
        await desk.drain()
    await desk.close()
    await worker.close()


class Desk:
    """Requests as they come in: judged at once, and answered in turn."""

    def __init__(self, client: Client, kind: Kind, worker: Worker, turns: Turns, report: Report) -> None:
        self._client, self._kind, self._worker = client, kind, worker
        self._turns, self._report = turns, report
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscriptions: list[Subscription] = []

    async def open(self) -> None:
        """Have requests come in."""
        pending = {"pending_msgs_limit": _HEARD, "pending_bytes_limit": self._kind.heard}
        for subject in sorted(self._kind.subjects):
            self._subscriptions.append(
                await self._client.subscribe(subject, queue=GROUP, cb=self.take, **pending)
            )

    async def take(self, msg: Msg) -> None:
        """nats-py hands over the next message when this has returned."""
        # No task holds what is too large, for it may wait seconds for its turn, and with it thousands.
        is_too_large = self._kind.is_too_large(msg)
        work = self._too_large(msg.subject, msg.reply) if is_too_large else self._answer(msg)
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
            await send(self._client, reply, self._kind.too_large(subject))
        self._report(REFUSED)

    async def _answer(self, msg: Msg) -> None:
        """With "busy" when the set asks for too much, or nothing came in time: agents ask again."""
        if not msg.reply.startswith(_ASKERS):
            self._report(REFUSED)
            return
        outcome, answer = await self._outcome(msg)
        self._report(outcome)
        if answer is not None:
            await send(self._client, msg.reply, answer)

    async def _outcome(self, msg: Msg) -> tuple[str, Answer | None]:
        """What became of it, and the answer unless the worker has given it."""
        kind, subject = self._kind, msg.subject
        try:
            async with asyncio.timeout(TIMEOUT), self._turns.taken(set_of(subject), len(msg.data)) as turn:
                outcome = await self._worker.work(msg, turn)
        except Permanent as error:
            return REFUSED, kind.refusal(subject, error.message)
        except TimeoutError:
            outcome = UNANSWERED
        except Retry:
            outcome = BUSY
        return outcome, {UNANSWERED: kind.unanswered, BUSY: kind.busy}.get(outcome, _nothing)(subject)


def _nothing(_: str) -> None:
    """Has been answered."""


async def send(client: Client, reply: str, answer: Answer) -> None:
    """Who cannot be reached asks again."""
    headers, body = answer
    with suppress(nats.errors.Error, OSError):
        await client.publish(reply, body, headers=dict(headers) or None)


@contextmanager
def resting_in_silence(turn: Turn) -> Iterator[Callable[[], None]]:
    """The turn rests while the server is silent: one stream without a leader must not hold up all others.

    Yields what is to be called once the server has said something.
    """
    silence = asyncio.get_running_loop().call_later(SILENCE, turn.rest)
    try:
        yield silence.cancel
    finally:
        silence.cancel()
