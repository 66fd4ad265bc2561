"""Output of the commands: tables for people, JSON for scripts."""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Coroutine
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import orjson
import typer
from rich.console import Console
from rich.prompt import Confirm
from rich.text import Text

from paddlewheel.cli.ending import end_early
from paddlewheel.core.tasks import end

T = TypeVar("T")

_READER_INTERVAL_SECONDS = 0.5
"""Time between two checks whether the output is still read."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_STEPS = ("B", "KiB", "MiB", "GiB")


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="text for people, json for scripts.")]
NAME_VARIABLE = "PADDLEWHEEL_CLUSTER"
"""Variable with the name of the embedded cluster."""


def console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is: rich would make an emoji of `:100:`."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def print_line(text: str) -> None:
    """One line to standard output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def confirm(question: str) -> None:
    """Ask, and raise an error that ends the command unless the answer is yes.

    Call it outside of an event loop: inside, Ctrl-C does not reach a prompt.
    """
    if not sys.stdin.isatty():
        raise typer.BadParameter("no terminal to ask for confirmation: add --yes", param_hint="--yes")
    # typer.confirm turns Ctrl-C into the exit code of a "no".
    if not Confirm.ask(Text(question), console=console(stderr=True), default=False):
        raise typer.Abort


def print_foreign(text: str) -> None:
    """Print the output of another program: unchanged, but without control characters on a terminal."""
    print_line(visible_lines(text) if sys.stdout.isatty() else text)


def print_styled(*parts: str | tuple[str, str], stderr: bool = False) -> None:
    """Print one line of text and of (text, style); styles are left out where there is no terminal."""
    clean = [
        visible_lines(part) if isinstance(part, str) else (visible_lines(part[0]), part[1]) for part in parts
    ]
    console(stderr=stderr).print(Text.assemble(*clean), soft_wrap=True)


def visible_lines(text: str) -> str:
    """The same lines without control characters, see `visible`."""
    return "\n".join(map(visible, text.split("\n")))


def print_json(data: Any) -> None:
    """One JSON value, indented."""
    print_line(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode())


async def while_read(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`. End the command when the reader of the output exits, even if there is nothing to write."""
    watching = asyncio.create_task(_watch_reader())
    try:
        return await work
    finally:
        await end(watching)


async def _watch_reader() -> None:
    """Wait until the reader of a pipe exits; files and terminals always have a reader."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    while not poll.poll(0):  # noqa: ASYNC110 - nothing wakes a writer when its reader exits
        await asyncio.sleep(_READER_INTERVAL_SECONDS)
    end_early()


def age(since: datetime, now: datetime) -> str:
    """Elapsed time in the largest fitting unit: 12s, 5m, 3h, 2d."""
    seconds = max(0, int((now - since) / timedelta(seconds=1)))
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    return f"{seconds // size}{unit}"


def amount(size: float) -> str:
    """Bytes, human-readable: 312 B, 4.0 KiB."""
    step = 0
    while size >= 1024 and step < len(_STEPS) - 1:
        size, step = size / 1024, step + 1
    return f"{size:.0f} B" if step == 0 else f"{size:.1f} {_STEPS[step]}"


def visible(text: str) -> str:
    """Escape line feeds and control characters, which could change what the terminal shows."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
