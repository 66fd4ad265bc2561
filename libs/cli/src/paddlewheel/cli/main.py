"""The `paddlewheel` command: one Typer app, one module for each command or group of commands."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from paddlewheel.core import logging
from paddlewheel.core.errors import PaddlewheelError

if TYPE_CHECKING:
    from typer._click import Command, Context

COMMANDS = ("cluster", "dev", "images", "bus", "dlq", "doctor", "demo", "events", "logs", "uninstall")
"""In the order of `--help`; each is the Typer app `app` of the module with its name."""


class LazyGroup(TyperGroup):
    """Imports a command's module when the command is used: importing all takes a second or more."""

    def list_commands(self, ctx: Context) -> list[str]:
        """All names, imported or not."""
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Import the command; for an unknown name import all, so that Typer can suggest a similar one."""
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                self.commands[name] = _load(name)
        return self.commands.get(cmd_name)


def _load(name: str) -> Command:
    command = typer.main.get_command(importlib.import_module(f"paddlewheel.cli.{name}").app)
    command.name = name
    return command


app = typer.Typer(
    name="paddlewheel",
    cls=LazyGroup,
    help="PaddlePaddle on Kubernetes: training jobs, data sets, caches, and every step as an event.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def start() -> None:
    """Commands log warnings and errors to standard error."""
    logging.set_up("paddlewheel", "warning")


def main() -> None:
    """The console script: our own errors are one line with a remedy, never a traceback."""
    try:
        app()
    except PaddlewheelError as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
