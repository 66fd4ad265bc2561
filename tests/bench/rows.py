"""One figure of the bench: a name, a value, its goal and whether it is met."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """`value` is met when it is at most `goal` (or at least, with `at_least`)."""

    name: str
    value: float
    goal: float
    unit: str = ""
    at_least: bool = False

    @property
    def verdict(self) -> str:
        met = self.value >= self.goal if self.at_least else self.value <= self.goal
        return "ok" if met else "short"

    def line(self) -> str:
        bound = ">=" if self.at_least else "<="
        return f"{self.name:<48} {self.value:>10.3f} {self.unit:<6} {bound} {self.goal:<8g} {self.verdict}"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


Group = Callable[[], Coroutine[Any, Any, list[Row]]]
