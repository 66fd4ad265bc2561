"""Print the minutes that each folder of tests took, so that growth is visible."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pytest
from _pytest.terminal import TerminalReporter

_DEPTHS = {"unit": 2, "e2e": 2}
"""Path segments shown below each top folder; three elsewhere (`tests/integration/job_controller`)."""


@dataclass
class FolderTime:
    """What the tests of one folder took, over all workers."""

    tests: int = 0
    seconds: float = 0.0


def folder_of(nodeid: str) -> str:
    """The folder under which a test is counted: `tests/unit`, `tests/integration/bus`."""
    parts = nodeid.partition("::")[0].split("/")[:-1]
    return "/".join(parts[: _DEPTHS.get(parts[1], 3)]) if len(parts) > 1 else "/".join(parts)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """List folders by worker-minutes; skipped for a run of one folder in less than a minute."""
    folders: dict[str, FolderTime] = defaultdict(FolderTime)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = folders[folder_of(report.nodeid)]
                folder.seconds += report.duration
                folder.tests += report.when == "call"
    total = sum(folder.seconds for folder in folders.values())
    if len(folders) < 2 and total < 60:
        return
    terminalreporter.section("worker-minutes by folder")
    for name, folder in sorted(folders.items(), key=lambda found: -found[1].seconds):
        terminalreporter.write_line(f"{folder.seconds / 60:7.1f} min {folder.tests:6,} tests  {name}")
    tests = sum(folder.tests for folder in folders.values())
    terminalreporter.write_line(f"{total / 60:7.1f} min {tests:6,} tests  in all")
