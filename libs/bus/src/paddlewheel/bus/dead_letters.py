"""The port to dead letters: messages that a durable could not handle."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
class DeadLetter:
    """A message that `durable` could not handle.

    `sequence` is its number among the dead letters; `stream`, `source_sequence`, `subject`, `published_at`,
    `data` and `headers` are those of the message as it was delivered. `is_cut` = only the beginning of its
    data is kept.
    """

    sequence: int
    durable: str
    reason: str
    message: str
    attempts: int
    stream: str
    source_sequence: int
    subject: str
    published_at: datetime
    parked_at: datetime
    data: bytes
    headers: Mapping[str, str]
    is_cut: bool = False


class DeadLetterBox(Protocol):
    """Messages that no handler could handle, until they are replayed or dropped. Stream `PW_DLQ` stores them,
    and `PW_REPLAY` stores replayed ones until a consumer has ended them."""

    def list(self, durable: str | None = None) -> AsyncGenerator[DeadLetter, None]:
        """Yield the letters that are stored now, oldest first; `durable` None = of all durables.

        Holds one letter in memory at a time. Waits for a server that restarts, and raises Unavailable when it
        does not come back.
        """
        ...

    async def get(self, sequence: int) -> DeadLetter:
        """The letter. Raises NotFound or Retry."""
        ...

    async def replay(self, sequence: int) -> None:
        """Deliver the message again to the durable that failed, and to no other, and remove the letter.

        It is handled in turn with the other messages of its object, its attempts are counted from one, and it
        is parked again when it fails again. Called twice, or again after a crash, it is replayed once.

        Raises:
            NotFound: the letter is not stored.
            Permanent: `NoSuchDurable`: no consumer would receive it; `LetterCut`: its data are incomplete.
            Retry: the bus does not answer, or is full; the letter is kept.
        """
        ...

    async def drop(self, sequence: int) -> None:
        """Delete the letter for good. Raises NotFound or Retry."""
        ...
