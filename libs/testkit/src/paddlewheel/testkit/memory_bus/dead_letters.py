"""Dead letters in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from paddlewheel.bus.consume.dead_letter_limit import DeadLetterLimitError
from paddlewheel.bus.consume.dead_letters import dead_letter, durable_of, read_letter, replay_of
from paddlewheel.bus.consume.settle import Message
from paddlewheel.bus.dead_letters import DeadLetter
from paddlewheel.bus.ports import RawMessage
from paddlewheel.contracts.subjects import dead_letter_subject
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.testkit.memory_bus.stream import MemoryStream, Stored


class MemoryDeadLetters:
    """The dead letters of one durable."""

    def __init__(self, letters: MemoryStream, durable: str, check_up: Callable[[], None]) -> None:
        self._letters = letters
        self._durable = durable
        self._check_up = check_up

    async def park(self, message: Message, error: Permanent, attempts: int) -> None:
        self._check_up()
        letter = dead_letter(self._durable, message, error, attempts)
        try:
            self._letters.store(letter.subject, letter.data, letter.headers)
        except Retry as full:
            raise DeadLetterLimitError(full.message) from full

    async def has_room(self, most: int) -> bool:
        self._check_up()
        return len(list(self._letters.after(0, (dead_letter_subject(self._durable),)))) < most


class MemoryDeadLetterBox:
    """DeadLetterBox over two memory streams; `is_consumed` reports whether a durable exists."""

    def __init__(
        self,
        letters: MemoryStream,
        replays: MemoryStream,
        is_consumed: Callable[[str], bool],
        check_up: Callable[[], None],
    ) -> None:
        self._letters = letters
        self._replays = replays
        self._is_consumed = is_consumed
        self._check_up = check_up

    async def list(self, durable: str | None = None) -> AsyncGenerator[DeadLetter, None]:
        filters = (dead_letter_subject(durable),) if durable else self._letters.spec.subjects
        for sequence in [stored.sequence for stored in self._letters.after(0, filters)]:
            self._check_up()
            if sequence in self._letters.messages:
                yield await self.get(sequence)

    async def get(self, sequence: int) -> DeadLetter:
        stored = self._find(sequence)
        return read_letter(_raw(stored), sequence, stored.at)

    async def replay(self, sequence: int) -> None:
        stored = self._find(sequence)
        again = replay_of(_raw(stored), sequence, stored.at)
        durable = durable_of(stored.subject)
        if not self._is_consumed(durable):
            raise Permanent("NoSuchDurable", f"no consumer {durable} takes replays: drop the letter")
        self._replays.store(again.subject, again.data, again.headers)
        self._letters.drop(sequence)

    async def drop(self, sequence: int) -> None:
        self._find(sequence)
        self._letters.drop(sequence)

    def _find(self, sequence: int) -> Stored:
        self._check_up()
        if sequence not in self._letters.messages:
            raise NotFound(f"dead letter {sequence}")
        return self._letters.messages[sequence]


def _raw(stored: Stored) -> RawMessage:
    return RawMessage(stored.subject, stored.data, stored.headers)
