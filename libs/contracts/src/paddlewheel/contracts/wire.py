"""Converts events and records to bytes and back: bodies in proto3 JSON, CloudEvents headers in binary
mode."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from paddlewheel.contracts.base import WireModel, read_time, write_time
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import EVENTS
from paddlewheel.contracts.subjects import event_subject, is_place_of_unknown, parse_event_subject
from paddlewheel.core.errors import Permanent

M = TypeVar("M", bound=BaseModel)

CONTENT_TYPE = "application/json"
SPEC_VERSION = "1.0"
MESSAGE_ID = "Nats-Msg-Id"
"""The header from which a stream detects duplicates."""

_REQUIRED = ("ce-specversion", "ce-id", "ce-type", "ce-source", "ce-time")


class UnknownFact(Permanent):
    """A valid event of a type that only a newer release knows. Consumers skip it; it is not a dead letter."""

    def __init__(self, type_: str) -> None:
        super().__init__("UnknownFact", f"ce-type {type_!r} or its version is unknown to this release")
        self.type = type_


def to_json(model: BaseModel) -> bytes:
    """Render proto3 JSON: lowerCamelCase names, 64-bit integers as strings, RFC 3339 times, no defaults."""
    return model.model_dump_json(by_alias=True, exclude_defaults=True).encode()


def from_json(model: type[M], data: bytes) -> M:
    """Parse proto3 JSON. Unknown fields are ignored.

    Raises:
        Permanent: the text is not a JSON object, or a field has an invalid value; the message names the
            field.
    """
    try:
        return model.model_validate(orjson.loads(data))
    except orjson.JSONDecodeError as error:
        raise Permanent("MalformedJson", f"{model.__name__}: not JSON: {error}") from error
    except ValidationError as error:
        raise Permanent("MalformedJson", f"{model.__name__}: {_first_problem(error)}") from error


def encode(event: Event) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of an event."""
    headers = {
        "ce-specversion": SPEC_VERSION,
        "ce-id": event.id,
        "ce-type": event.type,
        "ce-source": event.source,
        "ce-subject": event.subject,
        "ce-time": write_time(event.time),
        "content-type": CONTENT_TYPE,
        MESSAGE_ID: event.id,
    }
    if event.traceparent:
        headers["traceparent"] = event.traceparent
    return to_json(event.data), headers


def decode(subject: str, data: bytes, headers: Mapping[str, str]) -> Event:
    """Parse an event.

    Raises:
        UnknownFact: the event is valid, but this release does not know its type.
        Permanent: `MalformedEvent`; the message names the header or field.
    """
    try:
        return _decode(subject, data, headers)
    except UnknownFact:
        raise
    except Permanent as error:
        raise Permanent("MalformedEvent", f"{subject}: {error.message}") from error


def _decode(subject: str, data: bytes, headers: Mapping[str, str]) -> Event:
    for name in _REQUIRED:
        if not headers.get(name):
            raise Permanent("MissingHeader", f"header {name} is missing")
    if headers["ce-specversion"] != SPEC_VERSION:
        raise Permanent("WrongVersion", f"ce-specversion {headers['ce-specversion']!r} is not {SPEC_VERSION}")
    type_, time = headers["ce-type"], _read_time(headers["ce-time"])
    if type_ not in EVENTS and is_place_of_unknown(type_, subject):
        from_json(WireModel, data)
        raise UnknownFact(type_)
    _check_place(subject, type_)
    return Event(
        id=headers["ce-id"],
        type=type_,
        source=headers["ce-source"],
        subject=subject,
        time=time,
        data=from_json(EVENTS[type_], data),
        traceparent=headers.get("traceparent", ""),
    )


def _check_place(subject: str, type_: str) -> None:
    """Check that the type is known, and that the subject belongs to it."""
    if type_ not in EVENTS:
        raise Permanent("UnknownType", f"ce-type {type_!r} or its version is unknown")
    place = parse_event_subject(subject)
    if event_subject(type_, place.namespace, place.uid) != subject:
        raise Permanent("WrongSubject", f"ce-type {type_} does not belong on this subject")


def _read_time(text: str) -> datetime:
    try:
        return read_time(text)
    except ValidationError as error:
        raise Permanent("MalformedTime", f"ce-time: {_first_problem(error)}") from error


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]
