"""Numbers as the published contract writes them, and times as Kubernetes does."""

from __future__ import annotations

import math
from datetime import UTC, datetime

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def iec(size: int) -> str:
    """Bytes as IEC text: `200 B`, `4.2 GiB`, `58 MiB`; one decimal below 10 units."""
    if size < 10:
        return f"{size} B"
    power = min(int(math.log(size, 1024)), len(_UNITS) - 1)
    value = math.floor(size / 1024**power * 10 + 0.5) / 10
    return f"{value:.1f} {_UNITS[power]}" if value < 10 else f"{value:.0f} {_UNITS[power]}"


def thousands(count: int) -> str:
    """`128,660`."""
    return f"{count:,}"


def count_of(text: str) -> int:
    """Reverse of `thousands`; 0 for "" or nonsense."""
    digits = text.replace(",", "")
    return int(digits) if digits.isdecimal() else 0


def percent(part: int, whole: int) -> str:
    """`12.3%`; "" when there is no whole."""
    return f"{part / whole * 100:.1f}%" if whole > 0 else ""


def ratio(ready: int, wanted: int) -> str:
    """`1/2`."""
    return f"{ready}/{wanted}"


def stamp(time: datetime) -> str:
    """RFC 3339 UTC to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_stamp(text: str) -> datetime | None:
    """Reverse of `stamp`; None for "" or nonsense."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def age(text: str, now: datetime) -> float:
    """Seconds since a stamp; 0 when there is none."""
    then = parse_stamp(text)
    return (now - then).total_seconds() if then else 0.0
