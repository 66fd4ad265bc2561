"""Progress of one long step: a bar on a terminal, lines without a terminal, or nothing for scripts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from paddlewheel.cli.output import console, visible

Report = Callable[[str, float], None]
"""Called with the current step and the completed fraction, 0 to 1."""


@contextmanager
def progress_reporter(title: str, *, quiet: bool = False) -> Iterator[Report]:
    """Yield a thread-safe `Report` that draws on standard error."""
    if quiet:
        yield lambda _text, _fraction: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[title]}", markup=False),
        BarColumn(),
        TextColumn("{task.description}", markup=False),
    )
    lock = threading.Lock()
    with Progress(*columns, TimeElapsedColumn(), console=console(stderr=True)) as bar:
        task = bar.add_task("", total=1.0, title=title)

        def report(text: str, fraction: float) -> None:
            with lock:
                bar.update(task, description=visible(text), completed=fraction)

        yield report


def step_reporter(title: str, *, quiet: bool = False) -> AbstractContextManager[Report]:
    """Like `progress_reporter`; without a terminal, write a line to standard error for each new step."""
    if quiet or sys.stderr.isatty():
        return progress_reporter(title, quiet=quiet)
    return nullcontext(_Lines(title))


class _Lines:
    """A `Report` that writes each new text once."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._last = ""

    def __call__(self, text: str, _: float) -> None:
        if text != self._last:
            self._last = text
            sys.stderr.write(f"{self._title}: {visible(text)}\n")
            sys.stderr.flush()
