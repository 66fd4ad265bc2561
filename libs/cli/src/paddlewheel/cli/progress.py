"""A progress bar for one long step, or nothing when a script reads the output."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

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
        TextColumn("{task.fields[title]}"),
        BarColumn(),
        TextColumn("{task.description}"),
    )
    lock = threading.Lock()
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=1.0, title=title)

        def report(text: str, fraction: float) -> None:
            with lock:
                bar.update(task, description=text, completed=fraction)

        yield report
