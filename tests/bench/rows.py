"""One figure of a bench or of a fault run: a name, a value, its goal and whether it is met."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import structlog
import typer


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


def run_groups(groups: Mapping[str, Group], only: str, out: Path | None) -> None:
    """Run the groups one after the other, print their rows and write them as JSON.

    What our libraries log below errors is left out: losing the bus is the point of many a run. SIGTERM ends
    a group as Ctrl-C does, so that everything it started is taken down.

    Raises:
        typer.BadParameter: `only` names no group.
        typer.Exit: 1, a figure falls short of its goal.
    """
    if only and only not in groups:
        raise typer.BadParameter(f"no group {only!r}; there are: {', '.join(groups)}", param_hint="--only")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    # A shell starts what runs behind it with Ctrl-C ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    rows: list[Row] = []
    for name, measure in groups.items():
        if only in ("", name):
            rows += asyncio.run(measure())
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(orjson.dumps([row.as_dict() for row in rows], option=orjson.OPT_INDENT_2))
    for row in rows:
        typer.echo(row.line())
    if any(row.verdict == "short" for row in rows):
        raise typer.Exit(1)
