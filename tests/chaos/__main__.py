"""`make chaos`: break things on purpose, print one row for each promise."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from tests.bench.progress import note
from tests.bench.rows import Group, run_groups
from tests.chaos import data_loss, faults, matrix, poison, power, releases, three_nodes
from tests.chaos.machine import PACKAGE, PROGRAM

NAMES = ("faults", "data-loss", "three-nodes", "poison", "matrix", "power", "releases")


def main(
    only: Annotated[str, typer.Option(help=f"One group: {', '.join(NAMES)}.")] = "",
    json: Annotated[Path | None, typer.Option(help="Where the rows are written as JSON.")] = None,
    logs: Annotated[Path | None, typer.Option(help="A folder that keeps what the services wrote.")] = None,
    seed: Annotated[int | None, typer.Option(help="Repeat the draws of an earlier run.")] = None,
    pairs: Annotated[str, typer.Option(help="Of the matrix: sync/store, sync/ or /store.")] = "",
    rounds: Annotated[int, typer.Option(help="How often each pair of the matrix is played.")] = 1,
    release: Annotated[
        str, typer.Option(help="Commit or tag of the older release; without it no `releases`.")
    ] = "",
    minutes: Annotated[float, typer.Option(help="For how long two releases run beside each other.")] = 60.0,
) -> None:
    """Run the groups one after the other; exit code 1 when a promise is not kept."""
    drawn = random.SystemRandom().randrange(1 << 30) if seed is None else seed
    note(f"seed {drawn}")
    groups: dict[str, Group] = {
        "faults": partial(faults.run, drawn, logs),
        "data-loss": partial(data_loss.run, drawn, logs),
        "three-nodes": three_nodes.run,
        "poison": partial(poison.run, drawn),
        "matrix": partial(matrix.run, drawn, pairs, rounds, logs),
    }
    if power.is_possible() or only == "power":
        groups["power"] = partial(power.run, drawn, logs)
    else:
        note(f"power is left out without {PROGRAM}; `make chaos ONLY=power` installs {PACKAGE}")
    if release:
        groups["releases"] = partial(releases.run, drawn, release, minutes)
    run_groups(groups, only, json)


typer.run(main)
