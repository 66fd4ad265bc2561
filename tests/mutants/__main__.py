"""`make mutants`: change the pure code in small ways and see which changes no unit test notices.

Packages, their goal and the survivors that are accepted are listed in tests/mutants.toml.
"""

from __future__ import annotations

from typing import Annotated

import typer
from tests.mutants.config import Config, Package, load
from tests.mutants.report import Outcome, judge
from tests.mutants.workspace import MutmutFailedError, Workspace


def main(
    only: Annotated[str, typer.Option(help="Packages, separated by commas.")] = "",
    within: Annotated[float, typer.Option(help="Seconds for one package.")] = 3600.0,
) -> None:
    """Exit code 1 when a package falls short of the goal or an accepted survivor is there no more."""
    config = load()
    packages = _chosen(config, only)
    outcomes = [_run(package, config, within) for package in packages]
    for outcome in outcomes:
        typer.echo(outcome.line(config.goal))
    if not all(outcome.passes(config.goal) for outcome in outcomes):
        raise typer.Exit(1)


def _chosen(config: Config, only: str) -> list[Package]:
    names = only.split(",") if only else list(config.packages)
    if unknown := [name for name in names if name not in config.packages]:
        known = ", ".join(config.packages)
        raise typer.BadParameter(f"no package {', '.join(unknown)}; there are: {known}", param_hint="--only")
    return [config.packages[name] for name in names]


def _run(package: Package, config: Config, within: float) -> Outcome:
    typer.echo(f"{package.name}: {', '.join(package.mutate)} of {package.source}")
    workspace = Workspace(package)
    try:
        workspace.run(within)
    except MutmutFailedError as error:
        typer.echo(str(error), err=True)
        return judge(package.name, (), (), (), ())
    statuses = workspace.statuses()
    survivors = workspace.survivors(statuses)
    outcome = judge(package.name, list(statuses.values()), survivors, config.accepted, workspace.files)
    for survivor in outcome.survivors:
        typer.echo(survivor.text())
    for entry in outcome.unused:
        typer.echo(f"accepted, but killed or gone: {entry.file}: {entry.was!r} -> {entry.becomes!r}")
    return outcome


typer.run(main)
