"""Sizes as text, for statuses and messages."""

from __future__ import annotations

import math

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def iec(size: int) -> str:
    """Bytes as IEC text: `200 B`, `4.2 GiB`, `58 MiB`; one decimal below 10 units."""
    if size < 10:
        return f"{size} B"
    power = min(int(math.log(size, 1024)), len(_UNITS) - 1)
    value = math.floor(size / 1024**power * 10 + 0.5) / 10
    return f"{value:.1f} {_UNITS[power]}" if value < 10 else f"{value:.0f} {_UNITS[power]}"
