"""Shows a dead letter as a row, as a page, or as JSON."""

from __future__ import annotations

import base64
import string
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

import orjson

from paddlewheel.bus.admin.inspect import DurableStatus
from paddlewheel.bus.consume.dead_letters import replays_durable
from paddlewheel.bus.dead_letters import DeadLetter
from paddlewheel.cli.output import age, amount, visible
from paddlewheel.contracts.subjects import replay_subject

_PREVIEW = 40
_SHOWN = 4096
"""Bytes that are shown of a payload that is not JSON."""
_HEX_ROW = 16
_PRINTABLE = frozenset(string.printable) - frozenset("\x0b\x0c\r")


def row(letter: DeadLetter, now: datetime) -> tuple[str, ...]:
    """Sequence, durable, age, reason, attempts, subject, first bytes."""
    since = age(letter.parked_at, now)
    number, attempts = str(letter.sequence), str(letter.attempts)
    return number, letter.durable, since, letter.reason, attempts, letter.subject, preview(letter.data)


def page(letter: DeadLetter, now: datetime) -> Iterator[str]:
    """All lines about a dead letter: why it was parked, its headers, its payload."""
    about = {
        "durable": letter.durable,
        "reason": f"{letter.reason}: {letter.message}" if letter.message else letter.reason,
        "attempts": letter.attempts,
        "parked": f"{letter.parked_at:%Y-%m-%d %H:%M:%S %Z}, {age(letter.parked_at, now)} ago",
        "published": f"{letter.published_at:%Y-%m-%d %H:%M:%S %Z}",
        "from": f"{letter.stream} {letter.source_sequence}",
        "subject": letter.subject,
    }
    yield f"dead letter {letter.sequence}"
    yield from (f"  {name:<10} {visible(str(value))}" for name, value in about.items())
    yield "headers"
    yield from (f"  {name}: {visible(value)}" for name, value in sorted(letter.headers.items()))
    cut = ", only its beginning was kept" if letter.is_cut else ""
    yield f"payload, {amount(len(letter.data))}{cut}"
    yield from (f"  {line}" for line in payload(letter.data))


def unread(replays: DurableStatus) -> str:
    """Why replayed messages are not handled, and what to do about it."""
    durable = replays.name.removesuffix(replays_durable(""))
    some = f"{replays.pending} replayed message{'s' * (replays.pending > 1)}"
    return (
        f"{some} for {durable}, which no process takes: start its service; if that service was removed, "
        f"nats stream purge {replays.stream} --subject {replay_subject(durable)}, "
        f"and nats consumer rm {replays.stream} {replays.name}"
    )


def payload(data: bytes) -> list[str]:
    """Lines of a payload: indented JSON, text, or hexadecimal with the printable characters."""
    if not data:
        return ["(empty)"]
    try:
        return orjson.dumps(orjson.loads(data), option=orjson.OPT_INDENT_2).decode().splitlines()
    except orjson.JSONDecodeError:
        pass
    shown = data[:_SHOWN]
    lines = text.splitlines() if (text := _text(shown)) is not None else list(_hexadecimal(shown))
    left = len(data) - len(shown)
    return [*lines, f"... {left:,} more bytes; use -o json for all"] if left else lines


def preview(data: bytes) -> str:
    """The first bytes on one line."""
    text = _text(data[: 4 * (_PREVIEW + 1)])
    if text is None:
        return f"0x{data[: _PREVIEW // 3].hex()}{'...' if len(data) > _PREVIEW // 3 else ''}"
    line = " ".join(text.split())
    return line if len(line) <= _PREVIEW else f"{line[: _PREVIEW - 3]}..."


def as_json(letter: DeadLetter) -> dict[str, Any]:
    """The dead letter for scripts: `data` is text or base64, see `encoding`."""
    try:
        body = {"encoding": "utf-8", "data": letter.data.decode()}
    except UnicodeDecodeError:
        body = {"encoding": "base64", "data": base64.b64encode(letter.data).decode()}
    return {**asdict(letter), "headers": dict(letter.headers), **body}


def _text(data: bytes) -> str | None:
    """Decode text; None for binary data. An incomplete character at the end is dropped."""
    text = data.decode(errors="ignore")
    if len(data) - len(text.encode()) > 3 or any(c not in _PRINTABLE and not c.isprintable() for c in text):
        return None
    return text


def _hexadecimal(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), _HEX_ROW):
        part = data[start : start + _HEX_ROW]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{start:08x}  {part.hex(' '):<47}  {shown}"
