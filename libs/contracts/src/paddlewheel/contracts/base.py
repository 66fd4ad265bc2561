"""The base of every generated contract model: the rules of proto3 JSON as pydantic types.

proto3 JSON writes 64-bit integers as strings, enums by name, times as RFC 3339, bytes as base64 and
non-finite doubles as words, omits defaults, and reads lowerCamelCase as well as the original names.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    model_validator,
)

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def json_name(name: str) -> str:
    """The lowerCamelCase name of a field in proto3 JSON."""
    return re.sub(r"_+(.)?", lambda m: (m[1] or "").upper(), name)


def _integer(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a whole number, not a boolean")
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value) if value.lstrip("-").isdigit() else _whole(float(value))
    return _whole(value) if isinstance(value, float) else value


def _whole(value: float) -> int:
    if not value.is_integer():
        raise ValueError("must be a whole number")
    return int(value)


def _double(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number, not a boolean")
    if not isinstance(value, str):
        return value
    if value not in _WORDS and not _NUMBER.fullmatch(value):
        raise ValueError("must be a number, NaN, Infinity or -Infinity")
    return _WORDS.get(value) if value in _WORDS else float(value)


def _write_double(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def _time(value: object) -> object:
    if isinstance(value, str):
        if not _RFC3339.fullmatch(value):
            raise ValueError("must be an RFC 3339 time, e.g. 2026-01-31T12:00:00Z")
        value = datetime.fromisoformat(value.upper())
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError("must be a time with a zone")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        # Pydantic does not turn an OverflowError into the ValidationError that callers catch.
        raise ValueError("must be a time between year 1 and 9999 in UTC") from error


def write_time(value: datetime) -> str:
    """RFC 3339 in UTC with 0, 3 or 6 digits of a second, as proto3 JSON writes it."""
    precision = (
        "microseconds" if value.microsecond % 1000 else "milliseconds" if value.microsecond else "seconds"
    )
    return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision)}Z"


def _bytes(value: object) -> object:
    if not isinstance(value, str):
        return value
    plain = value.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError("must be base64") from error


Bool = Annotated[bool, Field(strict=True)]
Bytes = Annotated[
    bytes, BeforeValidator(_bytes), PlainSerializer(lambda b: base64.b64encode(b).decode(), when_used="json")
]
Double = Annotated[float, BeforeValidator(_double), PlainSerializer(_write_double, when_used="json")]
Int32 = Annotated[int, BeforeValidator(_integer), Field(ge=-(2**31), lt=2**31)]
Int64 = Annotated[
    int, BeforeValidator(_integer), Field(ge=-(2**63), lt=2**63), PlainSerializer(str, when_used="json")
]
Timestamp = Annotated[datetime, BeforeValidator(_time), PlainSerializer(write_time, when_used="json")]
_TIMESTAMP: TypeAdapter[datetime] = TypeAdapter(Timestamp)


def read_time(value: str) -> datetime:
    """A time as messages contain it. Raises ValidationError."""
    return _TIMESTAMP.validate_python(value)


class WireEnum(StrEnum):
    """A proto enum.

    The value is the name in the proto, `number` its number. Unknown values read as number 0.
    """

    number: int

    def __new__(cls, value: str, number: int) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.number = number
        return member

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            return None
        members = list(cls)
        return next((m for m in members if m.number == value), members[0])


class WireModel(BaseModel):
    """The base of all generated messages: immutable, with proto3's defaults. Unknown fields are ignored."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=json_name, validate_by_name=True, validate_by_alias=True
    )

    proto_name: ClassVar[str] = ""
    """Full name of the message in `protos/`."""

    oneofs: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Groups of fields, at most one of which may be set."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if value is not None}

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        for group, names in self.oneofs.items():
            given = [name for name in names if getattr(self, name) is not None]
            if len(given) > 1:
                raise ValueError(f"{group}: set only one of {', '.join(given)}")
        return self
