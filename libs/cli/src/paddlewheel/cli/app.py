"""The Typer app: one module for each command or group of commands, imported when it is used."""

from __future__ import annotations

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer._click.exceptions import ClickException, NoArgsIsHelpError
from typer.core import TyperCommand, TyperGroup

from paddlewheel.cli.main import COMMANDS
from paddlewheel.cli.output import Format, print_json, print_line, print_styled

if TYPE_CHECKING:
    from typer._click import Command, Context


class LazyGroup(TyperGroup):
    """Imports the module of a command when the command is used: importing all of them takes seconds."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: TyperCommand(name, help=summary) for name, (summary, _) in COMMANDS.items()}

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Import the module of the command to run."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(str(name)), rest

    def main(self, *args: Any, **more: Any) -> Any:
        """Run the command. Errors about options are drawn on a terminal, and one line elsewhere."""
        if not more.get("standalone_mode", True) or sys.stderr.isatty():
            return super().main(*args, **more)
        try:
            code = super().main(*args, **more | {"standalone_mode": False})
        except typer.Abort:
            typer.echo("Aborted.", err=True)
            code = 1
        except ClickException as error:
            # Without arguments, the help has been printed.
            if not isinstance(error, NoArgsIsHelpError):
                print_styled(f"error: {error.format_message()}", stderr=True)
            code = error.exit_code
        sys.exit(code)


def load(name: str) -> Command:
    """A command or group, with all its options."""
    command = typer.main.get_command(importlib.import_module(f"paddlewheel.cli.{name}").app)
    command.name = name
    return command


app = typer.Typer(
    name="paddlewheel",
    cls=LazyGroup,
    help="""PaddlePaddle on Kubernetes: training jobs, data sets, caches, and every step as an event.

[bold]Examples[/bold]

[cyan]paddlewheel demo[/cyan]  from images in an object store to a served model, on a cluster of its own

[cyan]paddlewheel events -A --since 10m[/cyan]  what has happened, then what happens

[cyan]paddlewheel --version -o json[/cyan]  for a bug report
""",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the versions and exit.")] = False,
    output: Annotated[
        Format | None, typer.Option("--output", "-o", help="Format of --version: text or json.")
    ] = None,
) -> None:
    """Set up logging: warnings and errors go to standard error."""
    # asyncio warns whenever the peer closes a TLS connection first; there is nothing to act on.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    if version:
        _print_versions(output)
        raise typer.Exit
    if output:
        raise typer.BadParameter("write it after the command", param_hint="--output")
    if context.invoked_subcommand is None:
        raise typer.BadParameter(f"choose one of {', '.join(COMMANDS)}", param_hint="COMMAND")


def _print_versions(output: Format | None) -> None:
    from importlib.metadata import version
    from platform import python_version

    versions = {"paddlewheel": version("paddlewheel-cli"), "python": python_version()}
    if output is Format.JSON:
        print_json(versions)
    else:
        print_line(", ".join(f"{name} {number}" for name, number in versions.items()))
