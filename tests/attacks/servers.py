"""The chart's servers on which all attacks are tried: two, each with other settings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from tests.attacks.stand import SERVICES
from tests.attacks.watchers import CONFIGURED

from paddlewheel.testkit.chart_bus import ChartBus, running


class Servers:
    """Each server starts with the first attack on it. An attack first removes the streams of the one before.

    Args:
        folder: for their files.
        ends: stops them.
        change: to their configuration; `opened` makes servers that guard nothing.
    """

    def __init__(self, folder: Path, ends: ExitStack, change: Callable[[str], str] = str) -> None:
        self._folder, self._ends, self._change = folder, ends, change

    @cached_property
    def with_passwords(self) -> ChartBus:
        """Roles, and services of others."""
        return self._start("roles", *SERVICES)

    @cached_property
    def with_teams(self) -> ChartBus:
        """Two teams of subscribers."""
        return self._start("teams", *CONFIGURED, passwords=False)

    def _start(self, name: str, *values: str, passwords: bool = True) -> ChartBus:
        made = running(self._folder / name, *values, change=self._change, passwords=passwords)
        return self._ends.enter_context(made)
