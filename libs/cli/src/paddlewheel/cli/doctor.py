"""`paddlewheel doctor`: what is missing on this machine, and the command that installs it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from paddlewheel.devcluster.doctor import Check, examine, mend

app = typer.Typer(add_completion=False)


@app.command()
def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Install the missing packages.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="text or json.")] = "text",
) -> None:
    """Show what is missing on this machine and how to install it; exit code 1 when something is missing."""
    checks = examine()
    if fix and any(not check.ok for check in checks):
        mend(checks, lambda text: Console(stderr=True).print(text, highlight=False))
        checks = examine()
    _print(checks, output)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def _print(checks: tuple[Check, ...], output: str) -> None:
    if output == "json":
        Console(soft_wrap=True).print_json(data=[asdict(check) for check in checks])
        return
    table = Table("check", "", "found", "remedy")
    for check in checks:
        mark = "[green]ok[/green]" if check.ok else "[red]missing[/red]"
        table.add_row(check.name, mark, check.found, check.remedy)
    Console().print(table)
