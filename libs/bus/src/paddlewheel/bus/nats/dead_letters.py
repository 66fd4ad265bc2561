"""Dead letters on JetStream: parked in stream `PW_DLQ`, replayed through stream `PW_REPLAY`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from paddlewheel.bus.consume.dead_letter_limit import DeadLetterLimitError
from paddlewheel.bus.consume.dead_letters import (
    cut,
    dead_letter,
    durable_of,
    read_letter,
    replay_of,
    replays_durable,
)
from paddlewheel.bus.consume.settle import Message
from paddlewheel.bus.dead_letters import DeadLetter
from paddlewheel.bus.nats.api import MISSING, Stored, ask_api, get_message
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.consume import REOPEN_INTERVAL_SECONDS
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.nats.publish import StreamPublisher
from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.streams import BUS_FULL, DEAD_LETTERS, REPLAYS
from paddlewheel.contracts.subjects import dead_letter_subject
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger

DEAD_LETTERS_TIMEOUT_SECONDS = 20.0
"""Seconds for which a listing waits for an unreachable server."""

_FULL = 0.9
"""Share of the stream's bytes below which a consumer that found it full resumes."""

_NEVER = 2**63

T = TypeVar("T")

log = LibraryLogger(__name__)


class NatsDeadLetters:
    """The dead letters of one durable."""

    def __init__(
        self, connection: Connection, provision: Provision, publisher: StreamPublisher, durable: str
    ) -> None:
        self._connection = connection
        self._provision = provision
        self._publisher = publisher
        self._durable = durable

    async def park(self, message: Message, error: Permanent, attempts: int) -> None:
        letter = dead_letter(self._durable, message, error, attempts)
        try:
            await self._park(letter)
        except Permanent as refusal:
            log.warning("message parked without its whole payload", subject=message.subject, why=str(refusal))
            await self._park(cut(letter))

    async def _park(self, letter: RawMessage) -> None:
        try:
            await self._publisher.publish(letter)
        except Retry as error:
            if error.reason == BUS_FULL:
                raise DeadLetterLimitError(error.message) from error
            raise

    async def has_room(self, most: int) -> bool:
        js = await self._provision.ready()
        subject = dead_letter_subject(self._durable)
        async with self._connection.calling(f"stream {DEAD_LETTERS.name}"):
            info = await js.stream_info(DEAD_LETTERS.name, subjects_filter=subject)
        stored = (info.state.subjects or {}).get(subject, 0)
        return stored < most and info.state.bytes < _FULL * (info.config.max_bytes or DEAD_LETTERS.max_bytes)


class NatsDeadLetterBox:
    """DeadLetterBox on a live server."""

    def __init__(
        self, connection: Connection, provision: Provision, publisher: StreamPublisher, clock: Clock
    ) -> None:
        self._connection = connection
        self._provision = provision
        self._publisher = publisher
        self._clock = clock

    async def list(self, durable: str | None = None) -> AsyncGenerator[DeadLetter, None]:
        subject = dead_letter_subject(durable) if durable else DEAD_LETTERS.subjects[0]
        last, sequence = await self._waiting_for_server(self._last), 0
        while sequence < last:
            after = sequence + 1
            letter = await self._waiting_for_server(lambda: self._next(subject, after))  # noqa: B023 - awaited here
            if letter is None or letter.sequence > last:
                return
            yield letter
            sequence = letter.sequence

    async def get(self, sequence: int) -> DeadLetter:
        return _letter(await self._fetch(sequence))

    async def replay(self, sequence: int) -> None:
        found = await self._fetch(sequence)
        again = replay_of(found.message, sequence, found.at)
        await self._check_consumed(durable_of(found.message.subject))
        await self._publisher.publish(again)
        # If interrupted here, the letter is replayed again, and its id prevents a second copy.
        await self._delete(sequence)

    async def drop(self, sequence: int) -> None:
        await self._fetch(sequence)
        await self._delete(sequence)

    async def _last(self) -> int:
        try:
            reply = await self._call(f"STREAM.INFO.{DEAD_LETTERS.name}")
        except NotFound:
            return 0
        return int(reply["state"]["last_seq"])

    async def _next(self, subject: str, after: int) -> DeadLetter | None:
        try:
            return _letter(await self._read(seq=after, next_by_subj=subject))
        except NotFound:
            return None

    async def _fetch(self, sequence: int) -> Stored:
        try:
            # No letter has number 0, which the server would refuse as malformed.
            return await self._read(seq=sequence or _NEVER)
        except NotFound:
            raise NotFound(f"dead letter {sequence}") from None

    async def _read(self, **which: object) -> Stored:
        """Raises NotFound, Retry or Permanent."""
        await self._provision.ready()
        found = await get_message(self._connection, DEAD_LETTERS.name, which, absent=MISSING)
        if found is None:
            raise NotFound("dead letter")
        return found

    async def _delete(self, sequence: int) -> None:
        """Delete a letter; idempotent."""
        try:
            await self._call(f"STREAM.MSG.DELETE.{DEAD_LETTERS.name}", seq=sequence, no_erase=True)
        except Retry:
            # The server reports the same error when it could not delete a message and when there is none.
            with suppress(NotFound):
                await self._read(seq=sequence)
                raise

    async def _check_consumed(self, durable: str) -> None:
        try:
            await self._call(f"CONSUMER.INFO.{REPLAYS.name}.{replays_durable(durable)}")
        except NotFound:
            text = f"no consumer {durable} takes replays on this server: drop the letter"
            raise Permanent("NoSuchDurable", text) from None

    async def _call(self, call: str, **wanted: object) -> dict[str, Any]:
        """Raises NotFound, Retry or Permanent."""
        await self._provision.ready()
        reply = await ask_api(self._connection, call, wanted)
        if reply is None:
            raise NotFound(call)
        return reply

    async def _waiting_for_server(self, action: Callable[[], Awaitable[T]]) -> T:
        """Repeat an action while it raises Retry, for at most `DEAD_LETTERS_TIMEOUT_SECONDS`."""
        deadline = self._clock.monotonic() + DEAD_LETTERS_TIMEOUT_SECONDS
        while True:
            try:
                return await action()
            except Retry as error:
                if self._clock.monotonic() > deadline:
                    raise
                log.info("waiting for the bus", why=str(error))
            await self._clock.sleep(REOPEN_INTERVAL_SECONDS)


def _letter(found: Stored) -> DeadLetter:
    return read_letter(found.message, found.sequence, found.at)
