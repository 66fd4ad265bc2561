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
from rich.text import Text

from paddlewheel.cli.ending import end_early
from paddlewheel.core.tasks import end

T = TypeVar("T")

_CHECK_EVERY = 0.5
"""Seconds between two checks whether the output is still read."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_STEPS = ("B", "KiB", "MiB", "GiB")


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="text for people, json for scripts.")]
NAME_VARIABLE = "PADDLEWHEEL_CLUSTER"
"""Variable with the embedded cluster that commands use unless they name one."""


def console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is: rich would make an emoji of `:100:`."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def print_line(text: str) -> None:
    """One line to standard output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def confirm(question: str) -> None:
    """Raises what ends the command unless the answer is yes. Not while an event loop runs: there, Ctrl-C does
    not reach a prompt."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("no terminal to ask for confirmation: add --yes", param_hint="--yes")
    typer.confirm(question, abort=True, err=True)


def print_foreign(text: str) -> None:
    """What a program that is not ours said: as it is, and on a terminal without what could control it."""
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
    """Run `work`; when the reader of the output exits while there is nothing to write, the command ends."""
    watching = asyncio.create_task(_watch_reader())
    try:
        return await work
    finally:
        await end(watching)


async def _watch_reader() -> None:
    """A file or a terminal always counts as read."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    while not poll.poll(0):  # noqa: ASYNC110 - nothing wakes a writer when its reader exits
        await asyncio.sleep(_CHECK_EVERY)
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
    """On one line, without control characters, which could rewrite what the terminal shows."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
