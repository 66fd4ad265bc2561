"""Garbage collection of this process."""

from __future__ import annotations

import gc

_ALLOCATED, _YOUNG, _MIDDLE = 50_000, 20, 50


def collect_rarely() -> None:
    """A listing makes millions of small objects that are in no cycle. With Python's own thresholds, looking
    for cycles among them takes a sixth of its time."""
    gc.set_threshold(_ALLOCATED, _YOUNG, _MIDDLE)
