"""`paddlewheel doctor`: what is missing on this machine, and the command that installs it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from paddlewheel.cli.output import Format, Output, console, print_json
from paddlewheel.cli.table import Table, print_table
from paddlewheel.devcluster.doctor import Check, examine, install_missing

HELP = """Show what is missing on this machine and how to install it; exit code 1 when something is missing.

[bold]Examples[/bold]

[cyan]paddlewheel doctor[/cyan]  one row for each requirement, with the command that fixes it

[cyan]paddlewheel doctor --fix[/cyan]  install the missing packages
"""

app = typer.Typer(add_completion=False)


@app.command(help=HELP)
def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Install the missing packages.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Check, fix, check again, print."""
    checks = examine()
    if fix and any(not check.ok for check in checks):
        install_missing(checks, console(stderr=True).print)
        checks = examine()
    _print(checks, output)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def _print(checks: tuple[Check, ...], output: Format) -> None:
    if output is Format.JSON:
        print_json([asdict(check) for check in checks])
        return
    table = Table(("check", "state", "found", "to do"), wraps={"found", "to do"}, states={"state"})
    for check in checks:
        table.add_row(check.name, "ok" if check.ok else "missing", check.found, check.remedy)
    print_table(table)
