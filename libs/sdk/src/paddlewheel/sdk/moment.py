"""The start of a subscription: a time, a duration ago, or the oldest event."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from paddlewheel.sdk.errors import InvalidArgument

Since = datetime | timedelta | str | None

BEGINNING = datetime(1970, 1, 2, tzinfo=UTC)
"""Earlier than any event."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_PART = re.compile(r"(\d{1,9})([smhd])")
_DURATION = re.compile(r"(\d{1,9}[smhd])+")
_REMEDY = 'pass a duration ("30s", "10m", "2h", "1d12h" or a timedelta), a time with its zone, "all", or None'


def moment(since: Since, now: datetime) -> datetime | None:
    """The time at which a subscription starts; None = now.

    Raises:
        InvalidArgument: `since` is not a time, has no time zone, or is in the future.
    """
    if since is None or since == "":
        return None
    found = _moment(since, now)
    if found > now:
        raise InvalidArgument("since", f"{since!r} is in the future", _REMEDY)
    return max(found, BEGINNING)


def _moment(since: datetime | timedelta | str, now: datetime) -> datetime:
    if since == "all":
        return BEGINNING
    if isinstance(since, str):
        return _parsed(since, now)
    if isinstance(since, timedelta):
        return _back(since, now)
    if not isinstance(since, datetime) or since.tzinfo is None:
        raise InvalidArgument("since", f"{since!r} is not a time with a zone", _REMEDY)
    return since


def parse_duration(text: str) -> timedelta | None:
    """Parse a duration such as `90s`, `10m` or `1d12h`; None for other text.

    The result is at most timedelta.max.
    """
    if not _DURATION.fullmatch(text):
        return None
    try:
        return timedelta(**{_UNITS[unit]: int(number) for number, unit in _PART.findall(text)})
    except OverflowError:
        return timedelta.max


def _parsed(since: str, now: datetime) -> datetime:
    if (duration := parse_duration(since)) is not None:
        return _back(duration, now)
    try:
        return _moment(datetime.fromisoformat(since), now)
    except ValueError:
        raise InvalidArgument("since", f"{since!r} is neither a duration nor a time", _REMEDY) from None


def _back(duration: timedelta, now: datetime) -> datetime:
    try:
        return now - duration
    except OverflowError:
        return BEGINNING
