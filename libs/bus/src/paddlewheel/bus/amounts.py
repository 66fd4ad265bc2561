"""Sizes and times as they are written in values: `64Mi`, `1Gi`, `36h`, `30d`."""

from __future__ import annotations

SIZE = r"[0-9]+(Mi|Gi)"
AGE = r"[0-9]+(h|d)"
_UNITS = {"Mi": 1024**2, "Gi": 1024**3, "h": 3600, "d": 86400}


def measured(text: str) -> float:
    """Bytes or seconds; 0 for ""."""
    number = text.rstrip("MGihd")
    return float(number) * _UNITS[text.removeprefix(number)] if text else 0.0
