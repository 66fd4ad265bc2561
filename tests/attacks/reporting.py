"""A plugin for pytest: one line of JSON on stdout for each test, and what failed on stderr."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

import pytest


@dataclass(frozen=True)
class Reported:
    """One phase of a test, as `pytest.TestReport` has it."""

    nodeid: str
    when: str
    outcome: str

    @property
    def is_told(self) -> bool:
        """A setup or end that went well says nothing."""
        return self.when == "call" or self.outcome != "passed"


def reported(line: str) -> Reported | None:
    """What a line of the output says; None when a test wrote it."""
    try:
        found = json.loads(line)
        return Reported(**found)
    except (ValueError, TypeError):
        return None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Called after each phase of a test, while nothing of its output is captured."""
    told = Reported(report.nodeid, report.when or "", report.outcome)
    if not told.is_told:
        return
    if told.outcome != "passed":
        sys.stderr.write(f"{report.longreprtext}\n")
    sys.stdout.write(f"{json.dumps(asdict(told))}\n")
    sys.stdout.flush()
