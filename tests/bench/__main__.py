"""`make bench`: measure, print one row for each figure, write them to build/bench.json.

Every figure is a ratio to a floor measured in the same run, or a count: machines are noisy, ratios less so.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import orjson
import typer
from tests.bench import jobs
from tests.bench.rows import Group, Row

GROUPS: dict[str, Group] = {"jobs": jobs.measure}


def main(
    only: Annotated[str, typer.Option(help=f"One group: {', '.join(GROUPS)}.")] = "",
    out: Annotated[Path, typer.Option(help="Where the rows are written as JSON.")] = Path("build/bench.json"),
) -> None:
    """Run the groups one after the other; exit code 1 when a figure falls short of its goal."""
    if only and only not in GROUPS:
        raise typer.BadParameter(f"no group {only!r}; there are: {', '.join(GROUPS)}", param_hint="--only")
    rows: list[Row] = []
    for name, measure in GROUPS.items():
        if only in ("", name):
            rows += asyncio.run(measure())
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(orjson.dumps([row.as_dict() for row in rows], option=orjson.OPT_INDENT_2))
    for row in rows:
        typer.echo(row.line())
    if any(row.verdict == "short" for row in rows):
        raise typer.Exit(1)


typer.run(main)
