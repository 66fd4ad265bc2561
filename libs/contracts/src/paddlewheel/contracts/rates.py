"""Estimates of the time that work still takes."""

from __future__ import annotations


def seconds_left(done: int, total: int, elapsed: float) -> float:
    """Seconds until `total` is done, at the average rate of the `elapsed` seconds; 0 if it is unknown."""
    if done <= 0 or elapsed <= 0:
        return 0.0
    return round(max(0, total - done) * elapsed / done, 1)
