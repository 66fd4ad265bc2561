"""How long work that goes on will still take."""

from __future__ import annotations


def seconds_left(done: int, total: int, elapsed: float) -> float:
    """Until `total` is done, at the average rate of the `elapsed` seconds; 0 when nobody can tell."""
    if done <= 0 or elapsed <= 0:
        return 0.0
    return round(max(0, total - done) * elapsed / done, 1)
