"""The only place where a message ends: acknowledged after its effect, retried, or parked."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from paddlewheel.bus.consume.dead_letter_limit import DeadLetterLimit
from paddlewheel.bus.consume.handlers import Handlers
from paddlewheel.bus.consume.poison import PoisonGuard
from paddlewheel.bus.instruments import Instruments
from paddlewheel.bus.ports import Delivery, Handler, Subscription
from paddlewheel.contracts import wire
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry, Unavailable
from paddlewheel.core.library_logging import LibraryLogger

ATTEMPT_FIRST_INTERVAL_SECONDS = 0.2
"""Seconds until the second attempt at a message; doubled each time."""
ATTEMPT_MAX_INTERVAL_SECONDS = 60.0
"""The longest of these intervals."""
BACKEND_RETRY_INTERVAL_SECONDS = 2.0
"""Seconds until a handler whose backend did not answer is called again; doubled each time."""
BACKEND_RETRY_MAX_INTERVAL_SECONDS = 30.0
"""The longest of these intervals."""
_REMEMBERED = 4096
_LOGGED_TYPES_MAX = 64
"""The number of unknown types that are logged; a publisher may invent any number."""

log = LibraryLogger(__name__)

Identity = tuple[str, int, datetime]
"""Stream, sequence and time of storing."""


class Message(Protocol):
    """One unsettled message of an adapter."""

    @property
    def subject(self) -> str: ...

    @property
    def data(self) -> bytes: ...

    @property
    def headers(self) -> dict[str, str]: ...

    @property
    def stream(self) -> str: ...

    @property
    def sequence(self) -> int: ...

    @property
    def attempt(self) -> int:
        """How often the server has delivered it, from 1."""
        ...

    @property
    def published_at(self) -> datetime: ...

    @property
    def identity(self) -> Identity:
        """Identifies the stored message: the same at each redelivery, different in a re-created stream."""
        ...

    async def ack(self) -> None:
        """Acknowledge; return when the server has confirmed it. Raises Retry."""
        ...

    async def term(self) -> None:
        """End redelivery; return when the server has confirmed it. Raises Retry."""
        ...

    async def release(self, *, confirm: bool = False) -> None:
        """Return it to the server for immediate redelivery to any process. Never raises. With `confirm`,
        return when the server has received this release and all earlier ones."""
        ...

    async def in_progress(self) -> None:
        """Reset the redelivery timer to `ack_wait`. Never raises."""
        ...


class DeadLetters(Protocol):
    """The store for messages that one durable cannot handle."""

    async def park(self, message: Message, error: Permanent, attempts: int) -> None:
        """Return when payload, headers, error and attempts are stored.

        Raises:
            Retry: they are not stored, or it is not known whether they are.
            DeadLetterLimitError: the store is full; the consumer must stop.
        """
        ...

    async def has_room(self, most: int) -> bool:
        """Fewer than `most` letters of this durable are stored, and there is room for more. Raises Retry."""
        ...


async def release_in_order(messages: Iterable[Message]) -> None:
    """Release messages so that the next pull receives them before later messages, in the stream's order."""
    ordered = sorted(messages, key=lambda message: message.sequence)
    last = {message.stream: message for message in ordered}
    for message in ordered:
        if message is not last[message.stream]:
            await message.release()
    # Concurrently, so that a stream that does not answer delays no other stream.
    await asyncio.gather(*(message.release(confirm=True) for message in last.values()))


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed, and the seconds until the next; `after` None = by the backoff."""

    reason: str
    text: str
    after: float | None = None


def backoff(attempt: int) -> float:
    """Seconds before the next attempt when the handler named none."""
    return min(ATTEMPT_MAX_INTERVAL_SECONDS, ATTEMPT_FIRST_INTERVAL_SECONDS * 2.0 ** min(attempt - 1, 16))


class Settler:
    """Handles and ends messages, one call for each message.

    A retried message is held here during its delay and not released to the server. That keeps later messages
    of the same object in order (docs/decisions/0006).
    """

    def __init__(
        self,
        subscription: Subscription,
        handle: Handler,
        dead: DeadLetters,
        clock: Clock,
        instruments: Instruments,
        handlers: Handlers,
    ) -> None:
        self.limit = DeadLetterLimit(subscription.max_parked, subscription.parked_window, clock)
        self._poison = PoisonGuard(subscription, clock)
        self._durable = subscription.durable
        self._max_attempts = subscription.max_attempts
        self._handle = handle
        self._dead = dead
        self._clock = clock
        self._instruments = instruments
        self._handlers, self._subscription = handlers, subscription
        self._handled = 0
        self._unknown: set[str] = set()
        self._ended: OrderedDict[Identity, None] = OrderedDict()

    async def settle(self, message: Message) -> None:
        """Return when the message has ended; cancellation leaves it unsettled.

        Raises:
            DeadLetterLimitError: it must be parked, but no further message may be. It stays unsettled.
        """
        if message.identity in self._ended:
            # The handler has run; only the acknowledgement was lost.
            await self._end(message, message.ack)
            return
        if self._poison.is_poison(message.attempt):
            await self._park(
                message,
                Permanent("TooManyAttempts", "the process died during every attempt"),
                message.attempt - 1,
            )
            return
        tries = 1
        while True:
            # One span over all calls, so that a handler that never reaches its backend counts as late.
            with self._handlers.running(self._subscription, message.subject):
                delay = await self._try_with_backend(message, tries)
            if delay is None:
                return
            await self._clock.sleep(delay)
            tries += 1

    async def _try_with_backend(self, message: Message, tries: int) -> float | None:
        """Attempt number `tries`, repeated while the handler raises Unavailable. Returns as `_try`."""
        calls, others = 0, self._handled
        while True:
            try:
                return await self._try(message, tries)
            except Unavailable as error:
                if self._handled > others:
                    # The backend answers for other messages, so this counts as a failed attempt.
                    return await self._again(message, Failure(error.reason, str(error), error.after), tries)
                self._instruments.settled(self._durable, "retried")
                log.info(
                    "message waits for a backend of its handler", subject=message.subject, why=str(error)
                )
                delay = (
                    min(BACKEND_RETRY_INTERVAL_SECONDS * 2.0**calls, BACKEND_RETRY_MAX_INTERVAL_SECONDS)
                    if error.after is None
                    else error.after
                )
            calls = min(calls + 1, 16)
            await self._clock.sleep(delay)

    async def _try(self, message: Message, tries: int) -> float | None:
        """One call of the handler. Returns the seconds until the next, None when the message has ended.

        Raises:
            Unavailable: a backend of the handler did not answer. This does not count as an attempt.
        """
        attempt = message.attempt + tries - 1
        try:
            delivery = _delivery(message, attempt)
            async with self._poison.turn(message.subject, message.attempt):
                with self._instruments.handling(self._durable, delivery.event.traceparent):
                    await self._handle(delivery)
        except Unavailable:
            raise
        except Retry as error:
            return await self._again(message, Failure(error.reason, str(error), error.after), tries)
        except wire.UnknownFact as error:
            await self._skip_unknown(message, error)
        except Permanent as error:
            await self._park(message, error, attempt)
        except Exception as error:
            log.exception("handler failed unexpectedly", subject=message.subject, attempt=attempt)
            return await self._again(message, Failure("Bug", f"{type(error).__name__}: {error}"), tries)
        else:
            self._handled += 1
            self._instruments.settled(self._durable, "acked")
            await self._end(message, message.ack)
        return None

    async def _skip_unknown(self, message: Message, error: wire.UnknownFact) -> None:
        """Acknowledge a fact of a newer release, as during an upgrade. There is nothing to repair."""
        self._instruments.settled(self._durable, "unknown")
        if error.type not in self._unknown and len(self._unknown) < _LOGGED_TYPES_MAX:
            self._unknown.add(error.type)
            log.info("facts of a type that this release does not know are skipped", type=error.type)
        await self._end(message, message.ack)

    async def _again(self, message: Message, why: Failure, tries: int) -> float | None:
        attempt = message.attempt + tries - 1
        if tries >= self._max_attempts:
            await self._park(message, Permanent(why.reason, why.text), attempt)
            return None
        delay = backoff(tries) if why.after is None else why.after
        self._instruments.settled(self._durable, "retried")
        log.info(
            "message will be retried", subject=message.subject, attempt=attempt, delay=delay, why=why.text
        )
        return delay

    async def _park(self, message: Message, error: Permanent, attempts: int) -> None:
        self.limit.admit()
        tries = 0
        while not await self._parked(message, error, attempts):
            tries += 1
            await self._clock.sleep(backoff(tries))
        self._instruments.settled(self._durable, "parked")
        log.warning("message parked", subject=message.subject, reason=error.reason, attempts=attempts)
        await self._end(message, message.term)

    async def _parked(self, message: Message, error: Permanent, attempts: int) -> bool:
        try:
            await self._dead.park(message, error, attempts)
        except (Retry, Permanent) as trouble:
            # A message that is not parked must not end. It delays only its own object.
            log.error("message not parked yet", subject=message.subject, why=str(trouble))
            return False
        return True

    async def _end(self, message: Message, confirm: Callable[[], Awaitable[None]]) -> None:
        """Confirm the end, and remember the message: one that is redelivered must not be handled again."""
        self._remember(message)
        try:
            await confirm()
        except (Retry, Permanent) as error:
            log.info("end of message unconfirmed", subject=message.subject, why=str(error))

    def _remember(self, message: Message) -> None:
        self._ended[message.identity] = None
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)


def _delivery(message: Message, attempt: int) -> Delivery:
    return Delivery(
        event=wire.decode(message.subject, message.data, message.headers),
        subject=message.subject,
        attempt=attempt,
        sequence=message.sequence,
        published_at=message.published_at,
    )
