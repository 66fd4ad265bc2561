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

BACKOFF_FIRST_INTERVAL_SECONDS = 0.2
BACKOFF_MAX_INTERVAL_SECONDS = 60.0
BACKEND_RETRY_INTERVAL_SECONDS = 2.0
"""Seconds until a handler is called again that found the API server, or the bus, away; twice as many each
time."""
BACKEND_RETRY_MAX_INTERVAL_SECONDS = 30.0
_REMEMBERED = 4096
_TYPES_TOLD = 64
"""Unknown types that are logged; a publisher may invent any number."""

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
        """Which stored message it is; the same at each redelivery, another in a re-created stream."""
        ...

    async def ack(self) -> None:
        """Return when the server confirmed. Raises Retry."""
        ...

    async def term(self) -> None:
        """Never deliver again; return when the server confirmed. Raises Retry."""
        ...

    async def release(self, *, confirm: bool = False) -> None:
        """Give it back for immediate redelivery, to any consumer. Never raises.

        With `confirm`, return when the server has received it and everything released before.
        """
        ...

    async def in_progress(self) -> None:
        """Reset the redelivery timer to `ack_wait`. Never raises."""
        ...


class DeadLetters(Protocol):
    """Where messages that cannot be handled are parked."""

    async def park(self, message: Message, error: Permanent, attempts: int) -> None:
        """Return once payload, headers, error and attempts are stored.

        Raises:
            Retry: not stored, or not known to be.
            DeadLetterLimitError: there is no room; the consumer must stop.
        """
        ...

    async def has_room(self, most: int) -> bool:
        """Fewer than `most` letters of this durable are stored, and there is room for more. Raises Retry."""
        ...


async def release_in_order(messages: Iterable[Message]) -> None:
    """Give messages back; whoever pulls next receives them before all later ones, in the stream's order."""
    ordered = sorted(messages, key=lambda message: message.sequence)
    last = {message.stream: message for message in ordered}
    for message in ordered:
        if message is not last[message.stream]:
            await message.release()
    # At once: a server that hangs over one stream must not keep the others from being given back.
    await asyncio.gather(*(message.release(confirm=True) for message in last.values()))


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed, and when to retry; `after` None = by the backoff."""

    reason: str
    text: str
    after: float | None = None


def backoff(attempt: int) -> float:
    """Seconds before the next attempt when the handler named none."""
    return min(BACKOFF_MAX_INTERVAL_SECONDS, BACKOFF_FIRST_INTERVAL_SECONDS * 2.0 ** min(attempt - 1, 16))


class Settler:
    """Brings messages to their end, one call each.

    A retried message is held here until its delay is over rather than given back to the server: only that
    keeps the messages behind it, of the same object, in order (docs/decisions/0006).
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
            DeadLetterLimitError: it must be parked, and may not be; it is unsettled.
        """
        if message.identity in self._ended:
            # Its effect is done, only its acknowledgement was lost.
            await self._end(message, message.ack)
            return
        if self._poison.is_poison(message.attempt):
            await self._park(message, Permanent("TooManyAttempts", "no attempt ended"), message.attempt - 1)
            return
        tries = 1
        while True:
            # As one, or a handler that always finds something away would never be seen.
            with self._handlers.running(self._subscription, message.subject):
                delay = await self._answered(message, tries)
            if delay is None:
                return
            await self._clock.sleep(delay)
            tries += 1

    async def _answered(self, message: Message, tries: int) -> float | None:
        """Attempt number `tries`, made again for as long as what it needs is away. Returns as `_try`."""
        away, others = 0, self._handled
        while True:
            try:
                return await self._try(message, tries)
            except Unavailable as error:
                if self._handled > others:
                    # Not for every message alike: this one may be given up.
                    return await self._again(message, Failure(error.reason, str(error), error.after), tries)
                self._instruments.settled(self._durable, "retried")
                log.info("message waits", subject=message.subject, why=str(error))
                delay = (
                    min(BACKEND_RETRY_INTERVAL_SECONDS * 2.0**away, BACKEND_RETRY_MAX_INTERVAL_SECONDS)
                    if error.after is None
                    else error.after
                )
            away = min(away + 1, 16)
            await self._clock.sleep(delay)

    async def _try(self, message: Message, tries: int) -> float | None:
        """One call of the handler. Returns the seconds until the next, None when the message has ended.

        Raises:
            Unavailable: the handler found nobody to answer; that uses up no attempt.
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
        """Of a newer release, as while both run side by side: there is nothing to repair and replay."""
        self._instruments.settled(self._durable, "unknown")
        if error.type not in self._unknown and len(self._unknown) < _TYPES_TOLD:
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
            # Never end what is not parked: it delays its own object only.
            log.error("message not parked yet", subject=message.subject, why=str(trouble))
            return False
        return True

    async def _end(self, message: Message, confirm: Callable[[], Awaitable[None]]) -> None:
        """Acknowledge, and remember it: a redelivery after a lost acknowledgement has no second effect."""
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
