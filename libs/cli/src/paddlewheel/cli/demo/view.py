"""Output while the demo runs: stages with progress bars, and the facts."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from paddlewheel.cli import output

_FACTS_SHOWN = 14
_PROGRESS_INTERVAL_SECONDS = 5.0


class View(Protocol):
    """Receives the progress of the demo."""

    def stage(self, name: str) -> None: ...

    def progress(self, text: str, fraction: float) -> None: ...

    def stage_done(self, seconds: float) -> None: ...

    def fact(self, line: str) -> None: ...


class SilentView:
    """Draws nothing: for scripts and tests."""

    def stage(self, name: str) -> None:
        pass

    def progress(self, text: str, fraction: float) -> None:
        pass

    def stage_done(self, seconds: float) -> None:
        pass

    def fact(self, line: str) -> None:
        pass


class PlainView:
    """Lines for logs and pipes: every fact, and progress every `_PROGRESS_INTERVAL_SECONDS` at most."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage = ""
        self._next_progress = 0.0

    def stage(self, name: str) -> None:
        self._stage = name
        self._console.print(f"== {name}")

    def progress(self, text: str, fraction: float) -> None:
        now = time.monotonic()
        if text and now >= self._next_progress:
            self._next_progress = now + _PROGRESS_INTERVAL_SECONDS
            self._console.print(f"   {self._stage}: {text} {fraction:4.0%}", soft_wrap=True)

    def stage_done(self, seconds: float) -> None:
        self._console.print(f"   {self._stage}: done in {seconds:.1f} s")

    def fact(self, line: str) -> None:
        self._console.print(f"   fact {line}", soft_wrap=True)


class LiveView:
    """Progress bars above, the latest facts below."""

    def __init__(self) -> None:
        self._bars = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.fields[stage]:<10}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
        )
        self._facts: deque[str] = deque(maxlen=_FACTS_SHOWN)
        self._task: TaskID | None = None

    def __rich__(self) -> Group:
        facts = Text("\n".join(self._facts) or "none yet", no_wrap=True, overflow="ellipsis")
        return Group(self._bars, Panel(facts, title="facts on the bus", border_style="dim"))

    def stage(self, name: str) -> None:
        self._task = self._bars.add_task("", total=1.0, stage=name)

    def progress(self, text: str, fraction: float) -> None:
        if self._task is not None:
            self._bars.update(self._task, description=text, completed=min(fraction, 0.999))

    def stage_done(self, seconds: float) -> None:
        if self._task is not None:
            # Without the last progress, which is incomplete.
            self._bars.update(self._task, description="", completed=1.0)
            self._bars.stop_task(self._task)

    def fact(self, line: str) -> None:
        self._facts.append(line)


@contextmanager
def open_view(*, quiet: bool) -> Iterator[View]:
    """Yield a view on standard error: none for scripts, a live one on a terminal, else plain lines."""
    if quiet:
        yield SilentView()
        return
    console = output.console(stderr=True)
    if not sys.stderr.isatty():
        yield PlainView(console)
        return
    view = LiveView()
    with Live(view, console=console, refresh_per_second=6):
        yield view
