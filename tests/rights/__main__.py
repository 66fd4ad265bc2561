"""`make rights`: rights of the chart that the last test run missed or never used; 0 of each is right."""

from __future__ import annotations

import typer
from tests.rights.reviewed import UNUSED

from paddlewheel.testkit.rights import compare, everywhere, granted, kept


def main() -> None:
    """Compare; exit code 1 when something is wrong, or nothing was kept."""
    given, asked = granted(everywhere()), kept()
    if not asked.used:
        typer.echo("no audit log was kept: run make test first")
        raise typer.Exit(1)
    found = compare(given, asked, frozenset(UNUSED))
    for what, rights in (
        ("missing: asked for and refused", found.missing),
        ("unused: granted and never asked for", found.unused),
        ("used or not granted, though tests/rights/reviewed.py has it", found.stale),
    ):
        for right in rights:
            typer.echo(f"{right}: {what}")
    typer.echo(f"{len(given)} rights granted, {len(asked.used & given)} used, {len(UNUSED)} reviewed")
    raise typer.Exit(int(bool(found.missing or found.unused or found.stale)))


typer.run(main)
