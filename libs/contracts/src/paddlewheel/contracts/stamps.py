"""RFC 3339 time stamps, as in Kubernetes objects."""

from __future__ import annotations

from datetime import UTC, datetime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The value for a time that is missing in an object."""


def seconds_stamp(time: datetime) -> str:
    """The time as Kubernetes writes it, e.g. `2026-01-31T12:00:00Z`. `time` must have a time zone."""
    return f"{_utc(time).isoformat(timespec='seconds')}Z"


def milliseconds_stamp(time: datetime) -> str:
    """The time as announcements contain it, e.g. `2026-01-31T12:00:00.250Z`. `time` must have a time zone."""
    return f"{_utc(time).isoformat(timespec='milliseconds')}Z"


def parse_stamp(text: str | None) -> datetime | None:
    """The time of a stamp, in UTC unless the stamp has a zone; None if the stamp is empty or invalid."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def age(text: str | None, now: datetime) -> float:
    """Seconds from a stamp to `now`; 0 if the stamp is empty or invalid."""
    time = parse_stamp(text)
    return (now - time).total_seconds() if time else 0.0


def human_duration(seconds: float) -> str:
    """The duration in its two largest units: `45s`, `3m20s`, `2h5m`, `3d4h`."""
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
