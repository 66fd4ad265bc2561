"""RFC 3339 time stamps as Kubernetes objects carry them."""

from __future__ import annotations

from datetime import UTC, datetime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for a time that is missing in an object written by hand."""


def seconds_stamp(time: datetime) -> str:
    """`2026-01-31T12:00:00Z`, as Kubernetes writes times. `time` must be aware."""
    return f"{_utc(time).isoformat(timespec='seconds')}Z"


def milliseconds_stamp(time: datetime) -> str:
    """`2026-01-31T12:00:00.250Z`, as announcements carry times. `time` must be aware."""
    return f"{_utc(time).isoformat(timespec='milliseconds')}Z"


def parse_stamp(text: str | None) -> datetime | None:
    """The aware time of a stamp, UTC where the stamp names no zone; None when it is empty or invalid."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def age(text: str | None, now: datetime) -> float:
    """Seconds from a stamp to `now`; 0 when the stamp is empty or invalid."""
    time = parse_stamp(text)
    return (now - time).total_seconds() if time else 0.0


def human_duration(seconds: float) -> str:
    """`45s`, `3m20s`, `2h5m`, `3d4h`: the two largest units."""
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    left, parts = max(0, int(seconds)), list[str]()
    for name, size in units:
        count, left = divmod(left, size)
        parts.append(f"{count}{name}" if count else "")
    first = next((i for i, part in enumerate(parts) if part), len(parts) - 1)
    return "".join(parts[first : first + 2]) or "0s"


def _utc(time: datetime) -> datetime:
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} has no time zone")
    return time.astimezone(UTC).replace(tzinfo=None)
