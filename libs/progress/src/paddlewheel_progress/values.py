"""The reported numbers, and the speed of the training."""

from __future__ import annotations

import math
import numbers
import re
from collections import deque
from typing import Any

COUNTS = ("step", "total_steps", "epoch", "total_epochs")
FIELDS = (*COUNTS, "loss", "samples_per_second")
MAX_METRICS = 32
WINDOW = 64
"""Reports that the speed is computed from,"""
APART = 1.0
"""and seconds between two of them."""

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,64}\Z")
_LARGEST = 2**53


class Values:
    """The newest value of everything that was reported, and the pace."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._metrics: dict[str, float] = {}
        self._speed = Pace()
        self._calls = Pace()
        self._count = 0

    def take(self, now: float, given: dict[str, Any]) -> str:
        """Take in what can be used; `now` is monotonic.

        Returns:
            Why something was left out, "" when nothing was.
        """
        refused = ""
        for name, value in given.items():
            if value is not None:
                refused = self._set(name, value) or refused
        self._count += 1
        self._calls.note(now, self._count)
        self._speed.note(now, self._done()[0])
        return refused

    def body(self) -> dict[str, Any]:
        """The body of a request, for job-controller."""
        done, total = self._done()
        body = dict(self._fields, metrics=dict(self._metrics))
        speed, calls = self._speed.per_second, self._calls.per_second
        if speed and total is not None:
            body["eta_seconds"] = max(0.0, (total - done) / speed)
        if calls:
            body["interval_seconds"] = 1.0 / calls
        return body

    def _done(self) -> tuple[float, float | None]:
        """Steps, or else epochs, and how many there are."""
        for name in ("step", "epoch"):
            if name in self._fields:
                return self._fields[name], self._fields.get(f"total_{name}s")
        return 0, None

    def _set(self, name: str, value: Any) -> str:
        # numpy's scalars are numbers.Real as well. A tensor is refused, because reading it may be slow.
        if not isinstance(value, (int, float, numbers.Real)):
            return f"{name}: pass a number, not {type(value).__name__}"
        number = float(value)
        if name in COUNTS:
            return self._set_count(name, number)
        store = self._fields if name in FIELDS else self._metrics
        if store is self._metrics and (problem := self._problem(name)):
            return problem
        if name == "samples_per_second" and number < 0:
            return f"{name}: pass a number from 0 on, not {number!r}"
        if math.isfinite(number):
            store[name] = number
        else:
            # JSON cannot express it. No value is better than an old one.
            store.pop(name, None)
        return ""

    def _set_count(self, name: str, number: float) -> str:
        least = 1 if name.startswith("total_") else 0
        if not least <= number <= _LARGEST:
            return f"{name}: pass a number from {least} on, not {number!r}"
        self._fields[name] = int(number)
        return ""

    def _problem(self, name: str) -> str:
        if not _NAME.match(name):
            return f"{name[:64]!r}: name metrics with up to 64 letters, digits and _ . / -"
        if name not in self._metrics and len(self._metrics) >= MAX_METRICS:
            return f"{name}: at most {MAX_METRICS} metrics are reported"
        return ""


class Pace:
    """How much is done in a second, over the last reports."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=WINDOW)

    def note(self, now: float, done: float) -> None:
        """Start again when `done` goes back, for example after a restart from a checkpoint."""
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()
        if not self._seen or (done > self._seen[-1][1] and now >= self._seen[-1][0] + APART):
            self._seen.append((now, done))

    @property
    def per_second(self) -> float:
        """0 while unknown."""
        if len(self._seen) < 2:
            return 0.0
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - began) if ended > began else 0.0
