"""Progress of one long step: a bar on a terminal, lines without a terminal, or nothing for scripts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from paddlewheel.cli.output import console, visible

Report = Callable[[str, float], None]
"""Called with the current step and the completed fraction, 0 to 1."""


@contextmanager
def progress_reporter(title: str, *, quiet: bool = False) -> Iterator[Report]:
    """Yield a thread-safe `Report` to standard error: a bar on a terminal, else a line for each new text."""
    out = console(stderr=True)
    if quiet:
        yield lambda _text, _fraction: None
    elif out.is_terminal:
        yield from _bar(title, out)
    else:
        yield _Lines(title)


def _bar(title: str, out: Console) -> Iterator[Report]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[title]}", markup=False),
        BarColumn(),
        TextColumn("{task.description}", markup=False),
    )
    lock = threading.Lock()
    with Progress(*columns, TimeElapsedColumn(), console=out) as bar:
        task = bar.add_task("", total=1.0, title=title)

        def report(text: str, fraction: float) -> None:
            with lock:
                bar.update(task, description=visible(text), completed=fraction)

        yield report


class _Lines:
    """A `Report` that writes each new text once."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._last = ""
        self._lock = threading.Lock()

    def __call__(self, text: str, _: float) -> None:
        with self._lock:
            if text == self._last:
                return
            self._last = text
            sys.stderr.write(f"{self._title}: {visible(text)}\n")
            sys.stderr.flush()
