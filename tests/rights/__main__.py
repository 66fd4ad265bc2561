"""`make rights`: rights of the chart that the last test run missed or never used; 0 of each is right."""

from __future__ import annotations

from typing import Annotated

import typer
from tests.rights.reviewed import UNUSED

from paddlewheel.testkit.rights import by_consent, compare, kept, requested


def main(
    missing_only: Annotated[
        bool, typer.Option("--missing-only", help="Fail for missing rights only, and print the others.")
    ] = False,
) -> None:
    """Compare; exit code 1 when something is wrong, or a service made no requests."""
    given, asked = requested(), kept()
    if silent := sorted({right.account for right in given} - {right.account for right in asked.used}):
        typer.echo(f"no requests of {', '.join(silent)} in an audit log: run make test first, without ARGS")
        raise typer.Exit(1)
    found = compare(given, asked, frozenset(UNUSED), by_consent())
    for what, rights in (
        ("missing: asked for and refused", found.missing),
        ("unused: granted and never asked for", found.unused),
        ("used or not granted, though tests/rights/reviewed.py has it", found.stale),
    ):
        for right in rights:
            typer.echo(f"{right}: {what}")
    typer.echo(f"{len(given)} rights granted, {len(asked.used & given)} used, {len(UNUSED)} reviewed")
    of_review = () if missing_only else (*found.unused, *found.stale)
    raise typer.Exit(1 if (*found.missing, *of_review) else 0)


if __name__ == "__main__":
    typer.run(main)
