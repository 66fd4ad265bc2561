"""`make bench`: measure, print one row for each figure, write them to build/bench.json.

Every figure is a ratio to a floor measured in the same run, or a count: machines are noisy, ratios less so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from tests.bench import bus, data, from_zero, jobs, runtime, services
from tests.bench.rows import Group, Row, run_groups


async def _measure_serving() -> list[Row]:
    """The controller first: the runtime's load would disturb it."""
    return [*await services.measure(), *await runtime.measure(), *await from_zero.measure()]


GROUPS: dict[str, Group] = {
    "jobs": jobs.measure,
    "bus": bus.measure,
    "serving": _measure_serving,
    "data": data.measure,
}


def main(
    only: Annotated[str, typer.Option(help=f"One group: {', '.join(GROUPS)}.")] = "",
    out: Annotated[Path, typer.Option(help="Where the rows are written as JSON.")] = Path("build/bench.json"),
) -> None:
    """Run the groups one after the other; exit code 1 when a figure falls short of its goal."""
    run_groups(GROUPS, only, out)


typer.run(main)
