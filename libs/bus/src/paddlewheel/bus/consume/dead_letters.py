"""The form of a parked message: its payload, its headers, and the reason why it could not be handled."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from urllib.parse import quote, unquote

from pydantic import ValidationError

from paddlewheel.bus.consume.settle import Identity, Message
from paddlewheel.bus.dead_letters import DeadLetter
from paddlewheel.bus.ports import RawMessage, Subscription
from paddlewheel.bus.streams import REPLAYS
from paddlewheel.contracts.base import read_time, write_time
from paddlewheel.contracts.subjects import dead_letter_subject, replay_subject
from paddlewheel.contracts.wire import MESSAGE_ID
from paddlewheel.core.errors import Permanent

PREFIX = "pw-dlq-"
ORIGINAL = f"{PREFIX}header-"
LOST_HEADERS = f"{PREFIX}lost-headers"
"""The number of the message's headers that are not kept, because the server limits their size."""
FULL_SIZE = f"{PREFIX}payload-bytes"
FULL_HASH = f"{PREFIX}payload-sha256"
"""Size and hash of the whole payload, in a letter that has only its beginning."""

KEPT_PAYLOAD = 64 * 1024
"""Bytes kept of a payload that is too large for the server."""

REPLAYS_IN_FLIGHT = 8
"""Replayed messages a consumer takes in addition to its `max_in_flight`."""

_KEPT_HEADERS = 40 * 1024
"""Bytes kept of the message's own headers. The server takes 64 KiB, including ours."""
_TEXT = 2000
_IN_NAMES = "!#$&'*+^`|"
"""Characters that header names may have besides letters, digits and `_.-~`."""


def dead_letter(durable: str, message: Message, error: Permanent, attempts: int) -> RawMessage:
    """The message for `pw.dlq.<durable>`. Its id identifies the parked message, so it is stored once.

    Headers that NATS interprets (`Nats-...`) or refuses are kept under `pw-dlq-header-`, without effect.
    """
    stream, sequence, at = message.identity
    about = {
        "reason": error.reason,
        "message": " ".join(error.message.split())[:_TEXT],
        "attempts": str(attempts),
        "durable": durable,
        "stream": message.stream,
        "sequence": str(message.sequence),
        "subject": message.subject,
        "published-at": write_time(message.published_at),
    }
    why = {f"{PREFIX}{name}": value for name, value in about.items()}
    id_ = f"{durable}/{stream}/{sequence}/{at.timestamp()}"
    headers = {**_kept(message.headers), **why, MESSAGE_ID: id_}
    return RawMessage(dead_letter_subject(durable), message.data, headers)


def cut(letter: RawMessage) -> RawMessage:
    """The same letter with only the beginning of its payload, for a server that refuses the whole letter."""
    whole = {FULL_SIZE: str(len(letter.data)), FULL_HASH: hashlib.sha256(letter.data).hexdigest()}
    return RawMessage(letter.subject, letter.data[:KEPT_PAYLOAD], {**letter.headers, **whole})


def read_letter(stored: RawMessage, sequence: int, parked_at: datetime) -> DeadLetter:
    """Read a stored letter. Another message in the stream is read as far as possible."""
    about = {k.removeprefix(PREFIX): v for k, v in stored.headers.items() if k.startswith(PREFIX)}
    return DeadLetter(
        sequence=sequence,
        durable=durable_of(stored.subject),
        reason=about.get("reason", ""),
        message=about.get("message", ""),
        attempts=_number(about.get("attempts", "")),
        stream=about.get("stream", ""),
        source_sequence=_number(about.get("sequence", "")),
        subject=about.get("subject", ""),
        published_at=_time(about.get("published-at", ""), parked_at),
        parked_at=parked_at,
        data=stored.data,
        headers=_originals(stored.headers),
        is_cut=FULL_SIZE in stored.headers,
    )


def replay_of(stored: RawMessage, sequence: int, parked_at: datetime) -> RawMessage:
    """The message for `pw.dlq.<durable>.again`. Its id identifies the letter, so it is stored once.

    Raises:
        Permanent: the letter has only the beginning of its payload.
    """
    letter = read_letter(stored, sequence, parked_at)
    if letter.is_cut:
        where = f"message {letter.source_sequence} of {letter.stream}"
        raise Permanent(
            "LetterCut",
            f"dead letter {sequence} has only the beginning of {where} and cannot be replayed: drop it",
        )
    id_ = f"{letter.durable}/again/{sequence}/{parked_at.timestamp()}"
    return RawMessage(replay_subject(letter.durable), stored.data, {**stored.headers, MESSAGE_ID: id_})


def replays(subscription: Subscription) -> Subscription:
    """The subscription to the replayed messages of a durable."""
    return Subscription(
        durable=replays_durable(subscription.durable),
        stream=REPLAYS.name,
        subjects=(replay_subject(subscription.durable),),
        max_in_flight=REPLAYS_IN_FLIGHT,
        ack_wait=subscription.ack_wait,
    )


def replays_durable(durable: str) -> str:
    """The name of the consumer of a durable's replayed messages."""
    return f"{durable}-again"


def durable_of(subject: str) -> str:
    """The durable of subject `pw.dlq.<durable>` or `pw.dlq.<durable>.again`."""
    return subject.split(".")[2]


class Replayed:
    """A replayed message in the form of its first delivery. Acknowledging it ends the replay."""

    def __init__(self, carrier: Message) -> None:
        stored = RawMessage(carrier.subject, carrier.data, carrier.headers)
        letter = read_letter(stored, carrier.sequence, carrier.published_at)
        self._carrier = carrier
        self.subject = letter.subject
        self.data = letter.data
        self.headers = dict(letter.headers)
        self.stream = letter.stream
        self.sequence = letter.source_sequence
        self.published_at = letter.published_at

    @property
    def identity(self) -> Identity:
        return self._carrier.identity

    @property
    def attempt(self) -> int:
        return self._carrier.attempt

    async def ack(self) -> None:
        await self._carrier.ack()

    async def term(self) -> None:
        await self._carrier.term()

    async def release(self, *, confirm: bool = False) -> None:
        await self._carrier.release(confirm=confirm)

    async def in_progress(self) -> None:
        await self._carrier.in_progress()


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    kept: dict[str, str] = {}
    room = _KEPT_HEADERS
    # Headers of the event come first, because a replay needs them.
    for name, value in sorted(headers.items(), key=lambda pair: not pair[0].startswith("ce-")):
        room -= len(quote(name)) + len(value.encode()) + len(ORIGINAL) + 4
        if room < 0:
            return {**kept, LOST_HEADERS: str(len(headers) - len(kept))}
        kept[_kept_name(name)] = value
    return kept


def _kept_name(name: str) -> str:
    """The name under which a header is kept, with a prefix when NATS or we would interpret it."""
    is_interpreted = name.lower().startswith(("nats-", PREFIX))
    return (
        f"{ORIGINAL}{quote(name, safe=_IN_NAMES)}"
        if is_interpreted or quote(name, safe=_IN_NAMES) != name
        else name
    )


def _originals(headers: Mapping[str, str]) -> dict[str, str]:
    return dict(_original(headers))


def _original(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in headers.items():
        if name.startswith(ORIGINAL):
            yield unquote(name.removeprefix(ORIGINAL)), value
        elif not name.startswith(PREFIX) and not name.lower().startswith("nats-"):
            yield name, value


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


def _time(text: str, otherwise: datetime) -> datetime:
    try:
        return read_time(text)
    except ValidationError:
        return otherwise
