"""Output of a long run: the name of each failed test at once, and at the end the minutes of each folder."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pytest
from _pytest.terminal import TerminalReporter


@dataclass
class FolderTime:
    """The time that the tests of one folder took, over all workers."""

    tests: int = 0
    seconds: float = 0.0


def folder_of(nodeid: str) -> str:
    """The folder under which a test is counted: `tests/unit`, `tests/integration/bus`."""
    folders = nodeid.partition("::")[0].split("/")[:-1]
    return "/".join(folders[: 2 if folders[1:2] in (["unit"], ["e2e"]) else 3])


class FailedTests:
    """Prints the name of a test when the test fails, because the report may be an hour away."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called in the process that controls the workers, too."""
        terminal: TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write(f"\nFAILED {report.nodeid} ({report.when})\n", red=True)


def pytest_configure(config: pytest.Config) -> None:
    """A worker has no terminal."""
    config.pluginmanager.register(FailedTests(config))


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
