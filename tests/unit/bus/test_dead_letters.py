"""Dead letters by hand: what is kept of a message, what is cut, and how it comes back."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime

import pytest

from paddlewheel.bus.consume.dead_letters import (
    FULL_HASH,
    KEPT_PAYLOAD,
    LOST_HEADERS,
    ORIGINAL,
    Replayed,
    cut,
    dead_letter,
    read_letter,
    replay_of,
)
from paddlewheel.bus.ports import RawMessage
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.fakes import AT, FakeMessage

PARKED = datetime(2026, 2, 3, tzinfo=UTC)
BAD = Permanent("Bad", "two\r\nlines")
ODD = {
    "Nats-Expected-Stream": "X",
    "nats-rollup": "all",
    'quo"te': "1",
    "pw-dlq-reason": "forged",
    "per%20cent": "2",
    "Ünïcode": "größer",
    "Status": "503",
}

HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""The header names that NATS clients accept."""


def test_a_letter_records_reason_attempts_and_origin() -> None:
    message = FakeMessage(7, attempt=3)
    letter = dead_letter("d", message, BAD, 3)
    again = dead_letter("d", message, Permanent("Bad", "other words"), 4)
    assert (letter.subject, letter.data) == ("pw.dlq.d", message.data)
    assert letter.headers["Nats-Msg-Id"] == again.headers["Nats-Msg-Id"]
    assert letter.headers["pw-dlq-header-Nats-Msg-Id"] == "7"
    assert letter.headers["ce-type"] == "paddlewheel.jobs.v1.JobGated"
    assert letter.headers["pw-dlq-message"] == "two lines"
    assert letter.headers["pw-dlq-published-at"] == "2026-01-01T00:00:00Z"


def test_headers_with_an_effect_in_nats_are_kept_aside_and_restored() -> None:
    message = FakeMessage()
    message.headers |= ODD
    letter = dead_letter("d", message, BAD, 1)
    assert [n for n in letter.headers if n.lower().startswith("nats-")] == ["Nats-Msg-Id"]
    assert letter.headers["pw-dlq-reason"] == "Bad"
    assert letter.headers[f"{ORIGINAL}Nats-Expected-Stream"] == "X"
    assert all(HEADER_NAME.fullmatch(name) for name in letter.headers)
    assert read_letter(letter, 1, PARKED).headers == message.headers


def test_oversized_headers_are_truncated_to_the_server_limit() -> None:
    message = FakeMessage()
    message.headers = {f"x-{n}": "y" * 100 for n in range(600)} | message.headers
    letter = dead_letter("d", message, BAD, 1)
    assert sum(len(f"{name}: {value}\r\n") for name, value in letter.headers.items()) < 63 * 1024
    kept = read_letter(letter, 1, PARKED).headers
    assert kept.items() <= message.headers.items()
    assert letter.headers[LOST_HEADERS] == str(len(message.headers) - len(kept))
    assert letter.headers["ce-id"] == "1"


def test_a_cut_payload_says_so_and_is_not_replayed() -> None:
    message = FakeMessage()
    message.data = b"x" * 2_000_000
    letter = cut(dead_letter("d", message, BAD, 1))
    read = read_letter(letter, 5, PARKED)
    assert (read.data, read.is_cut) == (b"x" * KEPT_PAYLOAD, True)
    assert letter.headers[FULL_HASH] == hashlib.sha256(message.data).hexdigest()
    with pytest.raises(Permanent, match=r"LetterCut: .*message 1 of PW_JOBS"):
        replay_of(letter, 5, PARKED)


def test_a_foreign_message_is_parsed_best_effort() -> None:
    headers = {"pw-dlq-attempts": "many", "pw-dlq-sequence": "9" * 5000, "pw-dlq-published-at": "now"}
    read = read_letter(RawMessage("pw.dlq.d", b"?", headers), 5, PARKED)
    assert (read.durable, read.attempts, read.source_sequence, read.published_at) == ("d", 0, 0, PARKED)
    assert (read.subject, read.data, read.headers) == ("", b"?", {})


def test_a_replay_restores_the_message_and_has_an_id_of_its_own() -> None:
    message = FakeMessage(7, "uid-7")
    letter = dead_letter("d", message, BAD, 3)
    again = replay_of(letter, 5, PARKED)
    assert again.subject == "pw.dlq.d.again"
    assert again.headers["Nats-Msg-Id"] == replay_of(letter, 5, PARKED).headers["Nats-Msg-Id"]
    assert again.headers["Nats-Msg-Id"] != replay_of(letter, 6, PARKED).headers["Nats-Msg-Id"]
    assert again.headers["Nats-Msg-Id"] != replay_of(letter, 5, AT).headers["Nats-Msg-Id"]

    carrier = FakeMessage(1, stream="PW_REPLAY", published_at=PARKED)
    carrier.subject, carrier.data, carrier.headers = again.subject, again.data, dict(again.headers)
    replayed = Replayed(carrier)
    assert (replayed.subject, replayed.data, replayed.headers) == (
        message.subject,
        message.data,
        message.headers,
    )
    assert (replayed.stream, replayed.sequence, replayed.published_at) == ("PW_JOBS", 7, AT)
    assert (replayed.identity, replayed.attempt) == (carrier.identity, 1)

    second = dead_letter("d", replayed, BAD, 8)
    assert second.headers["Nats-Msg-Id"] != letter.headers["Nats-Msg-Id"]
    differing = {k for k in letter.headers if letter.headers[k] != second.headers.get(k)}
    assert differing == {"Nats-Msg-Id", "pw-dlq-attempts"}
